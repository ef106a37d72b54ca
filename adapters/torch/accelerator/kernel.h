// kernel.h: the kernel on the CPU and on CUDA: from at::Tensor to the ABI and back.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/stable/c/shim.h>

#include <optional>
#include <stdexcept>

#include "accelerator/operator.h"
#include "accelerator/values.h"
#include "common/attributes.h"
#include "common/bind.h"
#include "common/context.h"
#include "common/device.h"
#include "devices.h"
#include "torch_cuda.h"

namespace opforge::torch_host {

// PyTorch's own function: the template at::parallel_for runs serially in a library that is built without
// OpenMP, and with it would bring a second OpenMP runtime.
inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  if (torch_parallel_for(0, chunks, 1, body, user) != 0) throw std::runtime_error("parallel_for failed");
}

// Makes output tensors: before the kernel runs, or during it where a shape depends on data.
struct OutputMaker {
  const Plan& plan;
  const Bound& bound;
  at::Tensor* tensors;
  opforge_tensor* views;
  const c10::SmallVector<int32_t, 4>& numbers;
  opforge_device device;

  void make(size_t o, at::IntArrayRef sizes) {
    const opforge_dtype dtype = bound.dtype(numbers[o]);
    const at::ScalarType type = scalar_type_of(dtype, plan.where);
    at::Tensor tensor = C10_LIKELY(device.type == OPFORGE_DEVICE_CPU)
                            ? at::Tensor(at::detail::empty_cpu(sizes, type))
                            : at::empty(sizes, at::TensorOptions(type).device(
                                                   at::kCUDA, static_cast<c10::DeviceIndex>(device.id)));
    views[o].dtype = dtype;
    fill_view(tensor, &views[o]);
    tensors[o] = std::move(tensor);
  }

  static opforge_status allocate(CallContext* context, int32_t index, const int64_t* shape, int32_t rank) {
    auto& self = *static_cast<OutputMaker*>(context->call);
    if (index < 0 || static_cast<size_t>(index) >= self.numbers.size()) {
      return context->base.error(&context->base, OPFORGE_STATUS_INTERNAL,
                                 "allocate_output: there is no such output");
    }
    try {
      self.make(static_cast<size_t>(index), {shape, static_cast<size_t>(rank)});
    } catch (const std::exception& error) {
      return context->base.error(&context->base, OPFORGE_STATUS_OUT_OF_MEMORY, error.what());
    }
    return OPFORGE_STATUS_OK;
  }
};

// Runs the operator's kernel. `wanted` (or NULL = all) says per output parameter whether it is asked for; one
// that is not gets no tensor. Outputs are appended flat, with a count per parameter.
inline void run_kernel(const Plan& plan, Tensors& inputs, const Counts& counts, const Attributes& attributes,
                       const std::vector<bool>* wanted, Tensors* outputs, Counts* output_counts) {
  const size_t n = inputs.size();
  Small<opforge_tensor, 8> views;
  views.resize(n);
  size_t flat = 0;
  bool on_cpu = true;
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
      const at::Tensor& tensor = inputs[flat];
      if (C10_UNLIKELY(tensor.layout() != at::kStrided)) {
        throw failure(OPFORGE_STATUS_UNSUPPORTED, argument(plan, i), "not a strided tensor",
                      "a dense or strided tensor", c10::str(tensor.layout()),
                      "call to_dense(), or pass a sparse tensor's parts one by one");
      }
      if (C10_UNLIKELY(!tensor.is_cpu())) {
        on_cpu = false;
        if (!tensor.is_cuda()) {
          throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan, i), "inputs are on different devices",
                        "all on the CPU, or all on one CUDA device", c10::str(tensor.device()),
                        "move them to one device");
        }
      }
      opforge_tensor& view = views[flat];
      view.dtype = dtype_of(tensor.scalar_type());
      if (C10_UNLIKELY(view.dtype.bits == 0)) {
        throw foreign_dtype(plan, i, c10::str("torch.", c10::toString(tensor.scalar_type())));
      }
      fill_view(tensor, &view);
    }
  }

  opforge_device device{OPFORGE_DEVICE_CPU, 0};
  if (C10_UNLIKELY(!on_cpu)) {
    device = call_device(plan, views.data(), counts.data(), [&](size_t t, opforge_device to) {
      inputs[t] = value_on(inputs[t], to);
      fill_view(inputs[t], &views[t]);
    });
  }
  Bound bound;
  bind(plan, views.data(), counts.data(), attributes, &bound);
  const opforge_kernel* kernel = device_kernel(plan, bound.types.data(), device.type);
  std::optional<CudaCall<DeviceBytes>> cuda;
  if (!on_cpu) cuda.emplace(device.id, plan.where);

  for (size_t t = 0; t < n; ++t) {
    const bool dense = inputs[t].is_contiguous();
    const bool lies = on_cpu || lies_at(views[t], kernel->alignment);  // on the CPU run_in sees to it
    if (C10_LIKELY(dense && lies)) continue;
    if (!dense && lies && (kernel->flags & OPFORGE_KERNEL_STRIDED) != 0) {
      views[t].strides = const_cast<int64_t*>(inputs[t].strides().data());
      continue;
    }
    inputs[t] = dense ? inputs[t].clone() : inputs[t].contiguous();
    fill_view(inputs[t], &views[t]);
  }

  // An output that is not asked for has count 0 and no tensor.
  const size_t first = outputs->size();
  c10::SmallVector<int32_t, 4> numbers;  // of the outputs that are made, among those of the binding
  int32_t number = 0;
  for (size_t p = 0; p < bound.counts.size(); ++p) {
    const bool asked = wanted == nullptr || (*wanted)[p];
    output_counts->push_back(asked ? bound.counts[p] : 0);
    for (int32_t k = 0; k < bound.counts[p]; ++k, ++number) {
      if (asked) numbers.push_back(number);
    }
  }
  outputs->resize(first + numbers.size());
  views.resize(n + numbers.size());
  OutputMaker made{plan, bound, outputs->data() + first, views.data() + n, numbers, device};
  for (size_t o = 0; o < numbers.size(); ++o) {
    const int32_t output = numbers[o];
    if (bound.known(output)) made.make(o, {bound.sizes(output), static_cast<size_t>(bound.rank(output))});
  }

  CallContext context(&parallel_chunks, kernel->data);
  context.call = &made;
  context.allocate = &OutputMaker::allocate;
  if (cuda) cuda->prepare(&context.base);
  const opforge_arguments in{views.data(), counts.data(), static_cast<int32_t>(n),
                             static_cast<int32_t>(counts.size())};
  const opforge_arguments out{views.data() + n, output_counts->data(), static_cast<int32_t>(numbers.size()),
                              static_cast<int32_t>(output_counts->size())};
  const opforge_status status = run_in(context, *kernel, in, out, attributes.data());
  if (C10_UNLIKELY(status != OPFORGE_STATUS_OK)) throw kernel_failure(plan, status, context.text);
  for (size_t o = first; o < outputs->size(); ++o) {
    if (C10_UNLIKELY(!(*outputs)[o].defined())) {
      throw failure(OPFORGE_STATUS_INTERNAL, plan.where, "the kernel allocated no memory for an output");
    }
  }
}

// Puts flat outputs onto the stack, one value per output parameter.
inline void push_outputs(const Plan& plan, Tensors& outputs, const Counts& counts, torch::jit::Stack* stack) {
  size_t flat = 0;
  for (size_t o = 0; o < plan.signature.outputs.size(); ++o) {
    if (plan.signature.outputs[o].variadic) {
      c10::List<at::Tensor> list;
      for (int32_t k = 0; k < counts[o]; ++k) list.push_back(std::move(outputs[flat++]));
      stack->emplace_back(std::move(list));
    } else if (counts[o] == 0) {
      stack->emplace_back();
    } else {
      stack->emplace_back(std::move(outputs[flat++]));
    }
  }
}

inline void run_on_stack(const Plan& plan, torch::jit::Stack* stack) {
  const size_t base = stack->size() - plan.signature.inputs.size() - plan.signature.attributes.size();
  Tensors inputs, outputs;
  Counts counts, output_counts;
  Attributes attributes;
  collect_inputs(plan, *stack, base, &inputs, &counts);
  read_attributes(plan, stack->data() + base + plan.signature.inputs.size(), &attributes);
  run_kernel(plan, inputs, counts, attributes, nullptr, &outputs, &output_counts);
  stack->resize(base);
  push_outputs(plan, outputs, output_counts, stack);
}

struct DeviceKernel final : c10::OperatorKernel {
  explicit DeviceKernel(Operator* one) : self(one) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    raising([&] { run_on_stack(self->plan, stack); });
  }
  Operator* self;
};

}  // namespace opforge::torch_host
