// definition.h: an operator of a kernel library in ONNX Runtime's words: one registration per kernel, which
// is one choice of dtypes. ONNX Runtime joins registrations of one name to one schema.
#pragma once

#include <climits>
#include <memory>
#include <vector>

#include "common/plan.h"
#include "onnxruntime/api.h"
#include "onnxruntime/dtypes.h"

namespace opforge::onnxruntime_host {

using namespace adapter;  // NOLINT: what every adapter shares

struct Definition : Plan {
  using Plan::Plan;

  // dtypes: one per type variable.
  static opforge_dtype dtype(const detail::Parameter& parameter, const opforge_dtype* dtypes) {
    return parameter.variable < 0 ? parameter.dtype : dtypes[parameter.variable];
  }
  bool has_optional_input() const {
    for (const detail::Parameter& input : signature.inputs) {
      if (input.optional) return true;
    }
    return false;
  }
};

struct CustomOp {
  CustomOpHead head{};  // first: ONNX Runtime sees only this
  const Definition* definition = nullptr;
  const opforge_kernel* kernel = nullptr;
  const char* provider = nullptr;  // NULL = the CPU's
};

namespace answers {  // to what ONNX Runtime asks of a registration

inline int32_t input_type(const CustomOp* op, size_t index) {
  return element_type(Definition::dtype(op->definition->signature.inputs[index], op->kernel->dtypes));
}
inline int32_t output_type(const CustomOp* op, size_t index) {
  return element_type(Definition::dtype(op->definition->signature.outputs[index], op->kernel->dtypes));
}
inline int32_t input_presence(const CustomOp* op, size_t index) {
  const detail::Parameter& input = op->definition->signature.inputs[index];
  return input.variadic ? kVariadic : input.optional ? kOptional : kRequired;
}
inline int32_t output_presence(const CustomOp* op, size_t index) {
  const detail::Parameter& output = op->definition->signature.outputs[index];
  return output.variadic ? kVariadic : output.optional ? kOptional : kRequired;
}
inline int32_t least_inputs(const CustomOp* op) {
  return op->definition->signature.inputs.back().optional ? 0 : 1;
}
inline int32_t least_outputs(const CustomOp*) { return 0; }
inline int32_t yes(const CustomOp*) { return 1; }

}  // namespace answers

}  // namespace opforge::onnxruntime_host
