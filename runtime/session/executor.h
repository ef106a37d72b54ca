// executor.h: operators that the executor does itself (executor_ops.def), and what a file must say about
// them.
#pragma once

#include "format/error.h"
#include "program/kernel_api.h"
#include "program/program.h"

namespace opforge::session {

// What a node without kernel is to the executor. kLeftOut: an optional node that is unknown here.
enum class Control : uint8_t {
  kNone,
  kLeftOut,
#define EXECUTOR_OP(name, inputs, outputs) k##name,
#include "session/executor_ops.def"
#undef EXECUTOR_OP
};

// kNone for operators that are not the executor's.
Control executor_op(StringView domain, StringView name);

// Proves numbers, kinds, dtypes and layouts of the values of a node and of its subgraphs, so that a run need
// not.
Status check_executor_node(const Program& program, uint32_t node, Control control, Error* error);

inline bool is_sequence(const format::Value& value) {
  return value.kind == format::kSequenceValue || value.kind == format::kOptionalSequenceValue;
}
inline bool is_string(const format::Value& value) {
  return value.dtype == static_cast<uint8_t>(DType::kString);
}
inline bool is_optional(const format::Value& value) { return value.kind >= format::kOptionalValue; }

}  // namespace opforge::session
