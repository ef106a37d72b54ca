// execute.h: runs a gradient program on tensors, directly on our kernels where nothing else listens, else
// through the dispatcher.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <utility>
#include <vector>

#include "accelerator/kernel.h"

namespace opforge::torch_host {

// The tensors of one parameter.
using Group = c10::SmallVector<at::Tensor, 1>;
using Groups = c10::SmallVector<Group, 4>;

// Whether an operator on this tensor would end in our kernel at once: nothing traces, transforms, casts
// or profiles, and the tensor is an ordinary one.
inline bool is_plain(const at::Tensor& tensor) {
  const c10::impl::LocalDispatchKeySet tls = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet keys = (tensor.key_set() | tls.included_) - tls.excluded_ -
                                   c10::autograd_dispatch_keyset_with_ADInplaceOrView -
                                   c10::DispatchKeySet(c10::DispatchKey::BackendSelect);
  return is_device(keys.highestPriorityTypeId());
}

// What a gradient program reads besides its own values.
struct Operands {
  Groups inputs, outputs, gradients, values;

  Group& of(const detail::Operand& operand) {
    static thread_local Group none;
    switch (operand.kind) {
      case 'i':
        return inputs[static_cast<size_t>(operand.index)];
      case 'o':
        return outputs[static_cast<size_t>(operand.index)];
      case 'g':
        return gradients[static_cast<size_t>(operand.index)];
      case 'v':
        return values[static_cast<size_t>(operand.index)];
      default:
        none.clear();
        return none;
    }
  }
};

inline void run_step_directly(const CompiledStep& step, const std::vector<c10::IValue>& forward_attributes,
                              Operands* operands) {
  const Plan& plan = step.target->plan;
  Tensors inputs, outputs;
  Counts counts, output_counts;
  for (const detail::Operand& operand : step.operands) {
    const Group& group = operands->of(operand);
    inputs.append(group.begin(), group.end());
    counts.push_back(static_cast<int32_t>(group.size()));
  }
  c10::SmallVector<c10::IValue, 4> values;
  for (const AttributeSource& source : step.attributes) {
    values.push_back(source.forward < 0 ? source.value
                                        : forward_attributes[static_cast<size_t>(source.forward)]);
  }
  Attributes attributes;
  read_attributes(plan, values.data(), &attributes);
  run_kernel(plan, inputs, counts, attributes, &step.wanted, &outputs, &output_counts);
  size_t flat = 0;
  for (size_t o = 0; o < step.results.size(); ++o) {
    Group& group = operands->values[static_cast<size_t>(step.results[o])];
    for (int32_t k = 0; k < output_counts[o]; ++k) group.push_back(std::move(outputs[flat++]));
  }
}

inline void run_step_by_dispatcher(const CompiledStep& step,
                                   const std::vector<c10::IValue>& forward_attributes, Operands* operands) {
  const detail::Signature& target = step.target->plan.signature;
  torch::jit::Stack stack;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Group& group = operands->of(step.operands[i]);
    if (target.inputs[i].variadic) {
      stack.emplace_back(c10::List<at::Tensor>(at::ArrayRef<at::Tensor>(group.data(), group.size())));
    } else if (group.empty()) {
      stack.emplace_back();
    } else {
      stack.emplace_back(group[0]);
    }
  }
  for (const AttributeSource& source : step.attributes) {
    stack.push_back(source.forward < 0 ? source.value
                                       : forward_attributes[static_cast<size_t>(source.forward)]);
  }
  step.target->handle->callBoxed(&stack);
  for (size_t o = 0; o < step.results.size(); ++o) {
    Group& group = operands->values[static_cast<size_t>(step.results[o])];
    if (stack[o].isTensor()) {
      group.push_back(stack[o].toTensor());
    } else if (!stack[o].isNone()) {
      for (const at::Tensor& one : stack[o].toTensorVector()) group.push_back(one);
    }
  }
}

// Runs a gradient program. Without recording and on ordinary tensors the kernels are called directly and
// compute only what is read; otherwise each step goes through the dispatcher, so that second derivatives
// follow.
inline void run_program(const Program& program, const std::vector<c10::IValue>& attributes,
                        Operands* operands) {
  operands->values.resize(static_cast<size_t>(program.values));
  bool direct =
      !at::GradMode::is_enabled() && !at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  for (const Groups* groups : {&operands->inputs, &operands->outputs, &operands->gradients}) {
    for (const Group& group : *groups) {
      for (const at::Tensor& tensor : group) direct = direct && is_plain(tensor);
    }
  }
  if (direct) {
    const at::AutoDispatchBelowADInplaceOrView below;  // for copies of strided inputs
    for (const CompiledStep& step : program.steps) run_step_directly(step, attributes, operands);
  } else {
    for (const CompiledStep& step : program.steps) run_step_by_dispatcher(step, attributes, operands);
  }
}

}  // namespace opforge::torch_host
