// interpreter.cpp: the bytecode interpreter's functions, forwarded to the build for this machine.
#include "bytecode/interpreter.h"

#include "bytecode/blob.h"
#include "bytecode/isa/table.h"
#include "bytecode/table_select.h"
#include "isa_select.h"

namespace opforge {

namespace baseline {
extern const bytecode::InterpreterTable interpreter_table;
}
#if defined(OPFORGE_HAVE_V3)
namespace v3 {
extern const bytecode::InterpreterTable interpreter_table;
}
#endif
#if defined(OPFORGE_HAVE_V4)
namespace v4 {
extern const bytecode::InterpreterTable interpreter_table;
}
#endif

#if defined(OPFORGE_HAVE_NEON)
namespace neon {
extern const bytecode::InterpreterTable interpreter_table;
}
#endif

namespace bytecode {

const InterpreterTable& table_of(int level) {
  switch (level) {
#if defined(OPFORGE_HAVE_V4)
    case kV4:
      return v4::interpreter_table;
#endif
#if defined(OPFORGE_HAVE_V3)
    case kV3:
      return v3::interpreter_table;
#endif
#if defined(OPFORGE_HAVE_NEON)
    case kNeon:
      return neon::interpreter_table;
#endif
    default:
      return baseline::interpreter_table;
  }
}
const InterpreterTable& table() { return table_of(isa_level()); }

namespace {

// Of a verified blob.
Blob view(const void* data) {
  uint32_t size;
  std::memcpy(&size, static_cast<const char*>(data) + 20, 4);
  Blob blob;
  Status status;
  blob.parse(data, size, status);
  return blob;
}

DType dtype_of(ValueType type, DType storage) {
  switch (type) {
    case ValueType::kBool:
      return DType::kBool;
    case ValueType::kI32:
      return DType::kI32;
    case ValueType::kI64:
      return DType::kI64;
    case ValueType::kF32:
      return DType::kF32;
    case ValueType::kF64:
      return DType::kF64;
    case ValueType::kU8:
      return DType::kU8;
    case ValueType::kI8:
      return DType::kI8;
    case ValueType::kT:
      break;
  }
  return storage;
}

}  // namespace

Counts counts(const void* data) {
  const Blob blob = view(data);
  return {blob.n_inputs, blob.n_attributes, blob.n_constants, blob.n_instructions, blob.n_outputs};
}
int32_t output_sum_to(const void* data, int32_t output) {
  const uint16_t to = view(data).output(output).sum_to;
  return to == kNone ? -1 : to;
}
DType input_dtype(const void* data, int32_t input, DType storage) {
  return dtype_of(view(data).leaf_type(input), storage);
}
DType output_dtype(const void* data, int32_t output, DType storage) {
  return dtype_of(view(data).output(output).type, storage);
}

size_t program_bytes(const void* blob) { return table().program_bytes(blob); }
Status link(const void* blob, DType storage, const double* attributes, uint32_t wanted, void* memory,
            size_t bytes, const Program** program, char* reason, size_t reason_size) {
  return table().link(blob, storage, attributes, wanted, memory, bytes, program, reason, reason_size);
}
bool rows_ready(const Program* program) { return table().rows_ready(program); }
void run_rows(const Program* program, const Operand* inputs, const Operand* outputs, int64_t rows,
              int64_t columns) {
  table().run_rows(program, inputs, outputs, rows, columns);
}
int64_t scratch_bytes(const Program* program, const opforge_tensor* inputs, const opforge_tensor* outputs) {
  return table().scratch_bytes(program, inputs, outputs);
}
Status run_tensors(const Program* program, const opforge_tensor* inputs, const opforge_tensor* outputs,
                   const double* attributes, const Workers& workers, void* scratch, char* reason,
                   size_t reason_size) {
  return table().run_tensors(program, inputs, outputs, attributes, workers, scratch, reason, reason_size);
}

}  // namespace bytecode
}  // namespace opforge
