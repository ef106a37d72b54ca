// autocast.h: the operator's declared rule under autocast. promote: floating inputs take the widest dtype
// among them. f32: half inputs become float32. lower: float32 inputs become autocast's dtype. none: no kernel
// here. Float64 inputs are left alone by f32 and lower, as in PyTorch's own rules. The autocast that counts
// is that of the device on which the call runs: a number on the CPU beside CUDA tensors follows theirs.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "accelerator/kernel.h"

namespace opforge::torch_host {

struct AutocastKernel final : c10::OperatorKernel {
  enum class Rule { kPromote, kFloat32, kLower };

  AutocastKernel(Operator* one, Rule chosen, at::DeviceType type) : self(one), rule(chosen), device(type) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(
        c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(device)));
    const detail::Signature& signature = self->plan.signature;
    const size_t base = stack->size() - signature.inputs.size() - signature.attributes.size();
    Tensors tensors;
    Counts counts;
    collect_inputs(self->plan, *stack, base, &tensors, &counts);
    if (!runs_here(tensors)) return handle.callBoxed(stack);
    const at::ScalarType target = target_of(tensors);
    for (at::Tensor& tensor : tensors) {
      if (tensor.is_floating_point() && (rule == Rule::kPromote || tensor.scalar_type() != at::kDouble)) {
        tensor = tensor.to(target);
      }
    }
    size_t flat = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      c10::IValue& value = (*stack)[base + i];
      if (signature.inputs[i].variadic) {
        c10::List<at::Tensor> list;
        for (int32_t k = 0; k < counts[i]; ++k) list.push_back(std::move(tensors[flat++]));
        value = std::move(list);
      } else if (counts[i] != 0) {
        value = std::move(tensors[flat++]);
      }
    }
    handle.callBoxed(stack);
  }

 private:
  // See call_device: CUDA where any tensor lies there.
  bool runs_here(const Tensors& tensors) const {
    bool all = true, any = false;
    for (const at::Tensor& tensor : tensors) {
      const bool here = tensor.device().type() == device;
      all = all && here;
      any = any || here;
    }
    return device == at::kCPU ? all : any;
  }

  at::ScalarType target_of(const Tensors& tensors) const {
    if (rule == Rule::kFloat32) return at::kFloat;
    if (rule == Rule::kLower) return at::autocast::get_autocast_dtype(device);
    at::ScalarType widest = at::ScalarType::Undefined;
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.is_floating_point()) continue;
      widest = widest == at::ScalarType::Undefined ? tensor.scalar_type()
                                                   : c10::promoteTypes(widest, tensor.scalar_type());
    }
    return widest;
  }

  Operator* self;
  Rule rule;
  at::DeviceType device;
};

}  // namespace opforge::torch_host
