// program.h: the program of a .bin, read in place; verify() proves every id and range before anything uses
// it.
#pragma once

#include "format/reader.h"
#include "memory/bump.h"
#include "program/kernel_api.h"

namespace opforge {

struct Program {
  format::File file;
  uint32_t n_strings = 0;
  const uint32_t* ends = nullptr;
  const char* texts = nullptr;
  uint32_t n_dimensions = 0;
  const format::Dimension* dimensions = nullptr;
  uint32_t n_values = 0, n_dimension_ids = 0;
  const format::Value* values = nullptr;
  const uint32_t* dimension_ids = nullptr;
  format::ProgramHead counts = {};
  const format::Graph* graphs = nullptr;
  const format::Node* nodes = nullptr;
  const format::Attribute* attributes = nullptr;
  const int64_t* integers = nullptr;
  const int32_t* ids = nullptr;
  const float* floats = nullptr;
  uint32_t n_blobs = 0;
  const format::Blob* blobs = nullptr;
  uint32_t n_inputs = 0, n_outputs = 0;
  const format::Named* signature = nullptr;  // inputs, then outputs
  uint32_t n_operators = 0;
  const format::Operator* operators = nullptr;
  uint32_t target = 0, n_features = 0;
  const uint32_t* features = nullptr;
  uint32_t n_metadata = 0;
  const format::Named* metadata = nullptr;
  uint32_t n_plan = 0;
  uint64_t plan_bytes = 0;
  const format::PlanEntry* plan = nullptr;

  StringView text(uint32_t id) const {
    const uint32_t begin = id == 0 ? 0 : ends[id - 1];
    return {texts + begin, static_cast<int64_t>(ends[id] - begin)};
  }
  BytecodeView blob(uint32_t id) const {
    return {file.sections[format::kBytecode].data + blobs[id].offset, static_cast<size_t>(blobs[id].size)};
  }
  const uint8_t* constant(uint32_t value) const {
    return file.sections[format::kWeights].data + values[value].offset;
  }
  bool is_constant(uint32_t value) const { return (values[value].flags & format::kValueConstant) != 0; }
};

// Bytes of scratch that verify() needs for this file.
size_t verify_memory(const format::File& file);

// file must come from format::open. Blobs are verified by the bytecode interpreter.
Status verify(const format::File& file, Program* program, void* memory, size_t size, Error* error);

// The parts of verify().
Status verify_tables(Program* program, Bump* scratch, Error* error);
Status verify_graphs(Program* program, Bump* scratch, Error* error);

// ---- tensors
// ------------------------------------------------------------------------------------------------
bool known_dtype(uint32_t dtype);
const char* dtype_name(DType dtype);
// Whether the bytes are UTF-8: no cut or overlong sequences, no code points beyond U+10FFFF; zero bytes are.
bool valid_utf8(const char* text, size_t size);
// The DLPack triple of a dtype and back (kUndefined when there is none).
opforge_dtype to_dlpack(DType dtype);
DType from_dlpack(opforge_dtype dtype);

// False when a dimension is negative or the tensor is larger than the format allows (no overflow on the way).
bool good_shape(DType dtype, const Shape& shape, const Layout& layout);
// kNone for "" and for unknown names.
Packing packing_of(StringView name);
// Bytes that the packing's rule gives for a logical shape; -1 = the packing is unknown or the rank does not
// fit.
int64_t packed_bytes(StringView packing, DType dtype, const Shape& shape);

// Concrete dimensions of a value when all are numbers.
bool static_shape(const Program& program, uint32_t value, Shape* shape);
// The text of a dimension: "3", "N", "2*N+1", "?"; returns the length that it would need.
size_t dimension_text(const Program& program, uint32_t dimension, char* text, size_t size);
// Value of a dimension given its symbols (values[text id], -1 = not bound); -1 = not known.
int64_t evaluate_dimension(const Program& program, uint32_t dimension, const int64_t* symbols);

inline bool same_text(StringView a, StringView b) {
  return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.size)) == 0);
}
inline bool same_text(StringView a, const char* b) {
  return same_text(a, StringView{b, static_cast<int64_t>(std::strlen(b))});
}

}  // namespace opforge
