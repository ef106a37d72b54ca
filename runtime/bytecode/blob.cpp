// blob.cpp: the verifier. A blob that it accepts can be linked and run without any further check.
#include "bytecode/blob.h"

#include <cstdarg>
#include <cstdio>

#include "bytecode/interpreter.h"

namespace opforge::bytecode {

namespace {

struct OpcodeTable {
  OpcodeInfo rows[kOpcodes] = {};
  constexpr OpcodeTable() {
    constexpr Class ARITH = Class::kArith, UNARY = Class::kUnary, COMPARE = Class::kCompare,
                    LOGIC = Class::kLogic, SELECT = Class::kSelect, CAST = Class::kCast,
                    FUSED = Class::kFused;
#define OPCODE(name, number, operands, class_) rows[number] = {#name, operands, class_};
#include "bytecode/opcodes.def"
#undef OPCODE
  }
};
constexpr OpcodeTable kTable;
constexpr OpcodeInfo kUnknown = {};

const char* const kTypeNames[kValueTypes] = {"T", "bool", "i32", "i64", "f32", "f64", "u8", "i8"};
const char* name(ValueType t) { return kTypeNames[static_cast<int>(t)]; }

class Verifier {
 public:
  Verifier(const Blob& blob, char* reason, size_t size) : blob_(blob), reason_(reason), size_(size) {}

  Status run() {
    for (int v = 0; v < blob_.first_instruction(); ++v) {
      if (static_cast<int>(blob_.leaf_type(v)) >= kValueTypes)
        return corrupt("value %d: type %d is not known", v, static_cast<int>(blob_.leaf_type(v)));
      type_[v] = blob_.leaf_type(v);
    }
    for (size_t at = kHeadBytes + size_t(blob_.first_instruction()); at < blob_.constants_at(); ++at) {
      if (blob_.bytes()[at] != 0) return corrupt("padding at offset %zu is not zero", at);
    }
    for (int k = 0; k < blob_.n_instructions; ++k) {
      if (const Status status = check_instruction(k)) return status;
    }
    for (int k = 0; k < blob_.n_outputs; ++k) {
      if (const Status status = check_output(k)) return status;
    }
    return OPFORGE_STATUS_OK;
  }

 private:
  Status corrupt(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    if (reason_ && size_) {
      va_list arguments;
      va_start(arguments, format);
      std::vsnprintf(reason_, size_, format, arguments);
      va_end(arguments);
    }
    return OPFORGE_STATUS_CORRUPT;
  }

  Status check_instruction(int k) {
    const Instruction i = blob_.instruction(k);
    const int self = blob_.first_instruction() + k;
    const OpcodeInfo& info = opcode_info(i.opcode);
    if (!info.name) {
      corrupt("instruction %d: opcode 0x%x is not known", k, i.opcode);
      return i.opcode >= 0x100 && i.opcode < 0x400 ? OPFORGE_STATUS_UNSUPPORTED : OPFORGE_STATUS_CORRUPT;
    }
    if (static_cast<int>(i.type) >= kValueTypes)
      return corrupt("instruction %d: type %d is not known", k, static_cast<int>(i.type));
    const uint8_t* bytes = blob_.bytes() + blob_.instructions_at() + 16 * size_t(k);
    for (int b = 9; b < 16; ++b) {
      if (bytes[b] != 0) return corrupt("instruction %d: reserved byte %d is not zero", k, b);
    }
    ValueType t[3] = {};
    for (int o = 0; o < 3; ++o) {
      if (o >= info.operands) {
        if (i.operand[o] != kNone)
          return corrupt("instruction %d (%s): operand %d must be absent", k, info.name, o);
      } else if (i.operand[o] >= self) {
        return corrupt("instruction %d (%s): operand %d is value %d, which is not defined before it", k,
                       info.name, o, i.operand[o]);
      } else {
        t[o] = type_[i.operand[o]];
      }
    }
    type_[self] = i.type;
    return check_types(k, info, i, t);
  }

  Status check_types(int k, const OpcodeInfo& info, const Instruction& i, const ValueType (&t)[3]) {
    const auto wrong = [&](const char* expected) {
      return corrupt("instruction %d (%s): types do not fit: expected %s, got (%s, %s, %s) -> %s", k,
                     info.name, expected, name(t[0]), info.operands > 1 ? name(t[1]) : "-",
                     info.operands > 2 ? name(t[2]) : "-", name(i.type));
    };
    const bool same = t[0] == (info.operands > 1 ? t[1] : t[0]) && t[0] == (info.operands > 2 ? t[2] : t[0]);
    switch (info.kind) {
      case Class::kArith:
      case Class::kUnary:
      case Class::kFused:
        return same && i.type == t[0] && is_float(t[0]) ? OPFORGE_STATUS_OK
                                                        : wrong("one float type throughout");
      case Class::kCompare:
        return same && i.type == ValueType::kBool && (info.operands == 2 || is_float(t[0]))
                   ? OPFORGE_STATUS_OK
                   : wrong("operands of one type, result bool");
      case Class::kLogic:
        return same && t[0] == ValueType::kBool && i.type == t[0] ? OPFORGE_STATUS_OK
                                                                  : wrong("bool throughout");
      case Class::kSelect:
        return t[0] == ValueType::kBool && t[1] == t[2] && i.type == t[1] ? OPFORGE_STATUS_OK
                                                                          : wrong("(bool, X, X) -> X");
      case Class::kCast:
        if (i.opcode == op_cast) return OPFORGE_STATUS_OK;
        if (i.opcode != op_round_half && t[0] == ValueType::kF32 && i.type == t[0]) return OPFORGE_STATUS_OK;
        return t[0] == ValueType::kT && i.type == t[0] ? OPFORGE_STATUS_OK : wrong("T -> T");
      default:
        return wrong("an elementwise instruction");
    }
  }

  Status check_output(int k) {
    const Output o = blob_.output(k);
    if (o.value >= blob_.n_values()) return corrupt("output %d: value %d does not exist", k, o.value);
    if (static_cast<int>(o.type) >= kValueTypes || o.type != type_[o.value])
      return corrupt("output %d: its type is not that of value %d", k, o.value);
    if (o.sum_to != kNone) {
      if (o.sum_to >= blob_.n_inputs)
        return corrupt("output %d: it is summed to input %d, which does not exist", k, o.sum_to);
      if (o.type != ValueType::kT)
        return corrupt("output %d: only values of type T are summed, this is %s", k, name(o.type));
    }
    const uint8_t* bytes = blob_.bytes() + blob_.outputs_at() + 8 * size_t(k);
    if (bytes[5] || bytes[6] || bytes[7]) return corrupt("output %d: reserved bytes are not zero", k);
    return OPFORGE_STATUS_OK;
  }

  const Blob& blob_;
  char* reason_;
  size_t size_;
  ValueType type_[kMaxBlobValues];
};

}  // namespace

const OpcodeInfo& opcode_info(uint16_t opcode) { return opcode < kOpcodes ? kTable.rows[opcode] : kUnknown; }

const char* Blob::parse(const void* data, size_t bytes, opforge_status& status) {
  bytes_ = static_cast<const uint8_t*>(data);
  status = OPFORGE_STATUS_CORRUPT;
  if (!data || bytes < kHeadBytes) return "shorter than its head (32 bytes)";
  if (std::memcmp(bytes_, "OFBC", 4) != 0) return "magic is not OFBC";
  if (read<uint16_t>(4) != kNumericsVersion) {
    status = OPFORGE_STATUS_UNSUPPORTED;
    return "numerics_version is not 1: made by a newer opforge";
  }
  if (read<uint16_t>(6) != 0) return "flags are not zero";
  n_inputs = read<uint16_t>(8);
  n_attributes = read<uint16_t>(10);
  n_constants = read<uint16_t>(12);
  n_instructions = read<uint16_t>(14);
  n_outputs = read<uint16_t>(16);
  size = read<uint32_t>(20);
  if (n_inputs < 1 || n_inputs > kMaxBlobInputs) return "n_inputs is not in 1 .. 64";
  if (n_attributes > kMaxBlobAttributes) return "n_attributes is above 64";
  if (n_outputs < 1 || n_outputs > kMaxBlobOutputs) return "n_outputs is not in 1 .. 16";
  if (n_values() > kMaxBlobValues) return "more than 4096 values";
  if (read<uint16_t>(18) != n_values()) return "n_values is not the sum of its parts";
  if (read<uint64_t>(24) != 0) return "reserved bytes in the head are not zero";
  constants_ = (kHeadBytes + size_t(first_instruction()) + 7) / 8 * 8;
  instructions_ = constants_ + 8 * size_t(n_constants);
  outputs_ = instructions_ + 16 * size_t(n_instructions);
  if (size != outputs_ + 8 * size_t(n_outputs)) return "size does not fit the counts";
  if (bytes != size) return "size is not the number of bytes given";
  status = OPFORGE_STATUS_OK;
  return nullptr;
}

Status verify(const void* data, size_t size, char* reason, size_t reason_size) {
  Blob blob;
  Status status;
  if (const char* why = blob.parse(data, size, status)) {
    if (reason && reason_size) std::snprintf(reason, reason_size, "bytecode: %s", why);
    return status;
  }
  return Verifier(blob, reason, reason_size).run();
}

}  // namespace opforge::bytecode
