// blob.h: reading a bytecode blob (docs/design/bytecode.md) byte by byte, without assumptions about
// alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "opforge/abi.h"

namespace opforge::bytecode {

constexpr uint16_t kNumericsVersion = 1;
constexpr uint16_t kNone = 0xFFFF;  // unused operand; no sum_to
constexpr size_t kHeadBytes = 32;
constexpr int kMaxBlobInputs = 64, kMaxBlobAttributes = 64, kMaxBlobOutputs = 16, kMaxBlobValues = 4096;

enum class Class : uint8_t { kNone, kArith, kUnary, kCompare, kLogic, kSelect, kCast, kFused, kReduce };
enum class ValueType : uint8_t {
  kT = 0,
  kBool = 1,
  kI32 = 2,
  kI64 = 3,
  kF32 = 4,
  kF64 = 5,
  kU8 = 6,
  kI8 = 7
};
constexpr int kValueTypes = 8;
inline bool is_float(ValueType t) {
  return t == ValueType::kT || t == ValueType::kF32 || t == ValueType::kF64;
}

enum Opcode : uint16_t {
#define OPCODE(name, number, operands, class_) op_##name = number,
#include "bytecode/opcodes.def"
#undef OPCODE
};
constexpr int kOpcodes = 164;  // one above the highest

struct OpcodeInfo {
  const char* name;  // NULL: no such opcode
  uint8_t operands;
  Class kind;
};
const OpcodeInfo& opcode_info(uint16_t opcode);

struct Instruction {
  uint16_t opcode, operand[3];
  ValueType type;
};
struct Output {
  uint16_t value, sum_to;
  ValueType type;
};

// A view of a blob whose head is sound (parse) and whose contents are (verify). Values are numbered: inputs,
// attributes, constants, instructions.
class Blob {
 public:
  int n_inputs, n_attributes, n_constants, n_instructions, n_outputs;
  size_t size;

  // Checks the head and that all tables lie inside the blob. NULL or the reason.
  const char* parse(const void* data, size_t bytes, opforge_status& status);

  int n_values() const { return n_inputs + n_attributes + n_constants + n_instructions; }
  int first_attribute() const { return n_inputs; }
  int first_constant() const { return n_inputs + n_attributes; }
  int first_instruction() const { return n_inputs + n_attributes + n_constants; }
  // The type of an input, attribute or constant.
  ValueType leaf_type(int value) const { return static_cast<ValueType>(bytes_[kHeadBytes + value]); }
  double constant(int k) const { return read<double>(constants_ + 8 * size_t(k)); }
  Instruction instruction(int k) const {
    const size_t at = instructions_ + 16 * size_t(k);
    return {read<uint16_t>(at),
            {read<uint16_t>(at + 2), read<uint16_t>(at + 4), read<uint16_t>(at + 6)},
            static_cast<ValueType>(bytes_[at + 8])};
  }
  Output output(int k) const {
    const size_t at = outputs_ + 8 * size_t(k);
    return {read<uint16_t>(at), read<uint16_t>(at + 2), static_cast<ValueType>(bytes_[at + 4])};
  }
  const uint8_t* bytes() const { return bytes_; }
  size_t constants_at() const { return constants_; }
  size_t instructions_at() const { return instructions_; }
  size_t outputs_at() const { return outputs_; }

 private:
  template <class N>
  N read(size_t at) const {
    N value;
    std::memcpy(&value, bytes_ + at, sizeof value);
    return value;
  }
  const uint8_t* bytes_ = nullptr;
  size_t constants_ = 0, instructions_ = 0, outputs_ = 0;
};

}  // namespace opforge::bytecode
