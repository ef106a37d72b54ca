// kernel.h: the CPU kernel (from at::Tensor to the ABI and back) and the Meta kernel on symbolic sizes.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/stable/c/shim.h>

#include <stdexcept>

#include "accelerator/operator.h"
#include "common/attributes.h"
#include "common/bind.h"
#include "common/context.h"

namespace opforge::torch_host {

using Tensors = c10::SmallVector<at::Tensor, 6>;
using Counts = c10::SmallVector<int32_t, 8>;

inline opforge_dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return {OPFORGE_CODE_FLOAT, 16, 1};
    case at::kBFloat16:
      return {OPFORGE_CODE_BFLOAT, 16, 1};
    case at::kFloat:
      return {OPFORGE_CODE_FLOAT, 32, 1};
    case at::kDouble:
      return {OPFORGE_CODE_FLOAT, 64, 1};
    case at::kChar:
      return {OPFORGE_CODE_INT, 8, 1};
    case at::kShort:
      return {OPFORGE_CODE_INT, 16, 1};
    case at::kInt:
      return {OPFORGE_CODE_INT, 32, 1};
    case at::kLong:
      return {OPFORGE_CODE_INT, 64, 1};
    case at::kByte:
      return {OPFORGE_CODE_UINT, 8, 1};
    case at::kUInt16:
      return {OPFORGE_CODE_UINT, 16, 1};
    case at::kUInt32:
      return {OPFORGE_CODE_UINT, 32, 1};
    case at::kUInt64:
      return {OPFORGE_CODE_UINT, 64, 1};
    case at::kBool:
      return {OPFORGE_CODE_BOOL, 8, 1};
    default:
      return {OPFORGE_CODE_OPAQUE, 0, 0};
  }
}

inline at::ScalarType scalar_type_of(opforge_dtype dtype, const std::string& where) {
  static constexpr at::ScalarType kAll[] = {at::kFloat,  at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                            at::kInt,    at::kShort,  at::kChar, at::kByte,     at::kUInt16,
                                            at::kUInt32, at::kUInt64, at::kBool};
  for (const at::ScalarType type : kAll) {
    if (detail::same(dtype_of(type), dtype)) return type;
  }
  throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "PyTorch has no such dtype", "",
                detail::dtype_name(dtype));
}

// PyTorch's own function: the template at::parallel_for runs serially in a library that is built without
// OpenMP, and with it would bring a second OpenMP runtime.
inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  if (torch_parallel_for(0, chunks, 1, body, user) != 0) throw std::runtime_error("parallel_for failed");
}

inline void fill_view(const at::Tensor& tensor, opforge_tensor* view) {
  view->data = const_cast<void*>(tensor.const_data_ptr());
  view->device = {OPFORGE_DEVICE_CPU, 0};
  view->ndim = static_cast<int32_t>(tensor.dim());
  view->shape = const_cast<int64_t*>(tensor.sizes().data());
  view->strides = nullptr;
  view->byte_offset = 0;
}

// Collects the tensors of all input parameters that lie on a stack from `base` on.
inline void collect_inputs(const Plan& plan, const torch::jit::Stack& stack, size_t base, Tensors* tensors,
                           Counts* counts) {
  for (size_t i = 0; i < plan.signature.inputs.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        tensors->push_back(value.toTensor());
        counts->push_back(1);
      } else {
        counts->push_back(0);
      }
    } else if (value.isNone()) {
      counts->push_back(0);
    } else {
      const c10::List<at::Tensor> list = value.toTensorList();
      for (size_t k = 0; k < list.size(); ++k) tensors->push_back(list.get(k));
      counts->push_back(static_cast<int32_t>(list.size()));
    }
  }
}

// Attributes in the ABI's form. Strings stay in their IValues, which must outlive the result.
inline void read_attributes(const Plan& plan, const c10::IValue* values, Attributes* attributes) {
  for (size_t a = 0; a < plan.signature.attributes.size(); ++a) {
    const c10::IValue& value = values[a];
    if (value.isNone()) {
      attributes->add_default(plan.signature.attributes[a].default_value);
      continue;
    }
    switch (plan.signature.attributes[a].kind) {
      case OPFORGE_ATTRIBUTE_INT:
        attributes->add_int(value.toInt());
        break;
      case OPFORGE_ATTRIBUTE_FLOAT:
        attributes->add_float(value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble());
        break;
      case OPFORGE_ATTRIBUTE_BOOL:
        attributes->add_bool(value.toBool());
        break;
      case OPFORGE_ATTRIBUTE_STRING: {
        const std::string_view text = value.toStringRef();
        attributes->add_string({text.data(), static_cast<int64_t>(text.size())});
        break;
      }
      case OPFORGE_ATTRIBUTE_INTS:
        attributes->add_ints(value.toIntVector());
        break;
      case OPFORGE_ATTRIBUTE_FLOATS:
        attributes->add_floats(value.toDoubleVector());
        break;
      case OPFORGE_ATTRIBUTE_BOOLS: {
        std::vector<int64_t> list;
        for (const bool one : value.toBoolList()) list.push_back(one);
        attributes->add_ints(std::move(list), OPFORGE_ATTRIBUTE_BOOLS);
        break;
      }
      default: {
        std::vector<opforge_string> list;
        for (const c10::IValue& one : value.toListRef()) {
          const std::string& text = one.toStringRef();
          list.push_back({text.data(), static_cast<int64_t>(text.size())});
        }
        attributes->add_strings(std::move(list));
      }
    }
  }
}

// Makes output tensors: before the kernel runs, or during it where a shape depends on data.
struct OutputMaker {
  const Plan& plan;
  const Bound& bound;
  at::Tensor* tensors;
  opforge_tensor* views;
  const c10::SmallVector<int32_t, 4>& numbers;

  void make(size_t o, at::IntArrayRef sizes) {
    const opforge_dtype dtype = bound.dtype(numbers[o]);
    at::Tensor tensor(at::detail::empty_cpu(sizes, scalar_type_of(dtype, plan.where)));
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
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
      const at::Tensor& tensor = inputs[flat];
      if (C10_UNLIKELY(tensor.layout() != at::kStrided)) {
        throw failure(OPFORGE_STATUS_UNSUPPORTED, argument(plan, i), "not a strided tensor",
                      "a dense or strided tensor", c10::str(tensor.layout()),
                      "call to_dense(), or pass a sparse tensor's parts one by one");
      }
      if (C10_UNLIKELY(!tensor.is_cpu())) {
        throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan, i), "inputs are on different devices",
                      "all on the CPU", c10::str(tensor.device()), "move them to one device");
      }
      opforge_tensor& view = views[flat];
      view.dtype = dtype_of(tensor.scalar_type());
      if (C10_UNLIKELY(view.dtype.bits == 0)) {
        throw foreign_dtype(plan, i, c10::str("torch.", c10::toString(tensor.scalar_type())));
      }
      fill_view(tensor, &view);
    }
  }

  Bound bound;
  bind(plan, views.data(), counts.data(), attributes, &bound);
  const opforge_kernel* kernel = plan.kernel(bound.types.data(), OPFORGE_DEVICE_CPU);

  for (size_t t = 0; t < n; ++t) {
    const bool dense = inputs[t].is_contiguous();
    const bool aligned =
        kernel->alignment == 0 || reinterpret_cast<uintptr_t>(views[t].data) % kernel->alignment == 0;
    if (C10_LIKELY(dense && aligned)) continue;
    if (!dense && aligned && (kernel->flags & OPFORGE_KERNEL_STRIDED) != 0) {
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
  OutputMaker made{plan, bound, outputs->data() + first, views.data() + n, numbers};
  for (size_t o = 0; o < numbers.size(); ++o) {
    const int32_t output = numbers[o];
    if (bound.known(output)) made.make(o, {bound.sizes(output), static_cast<size_t>(bound.rank(output))});
  }

  CallContext context(&parallel_chunks, kernel->data);
  context.call = &made;
  context.allocate = &OutputMaker::allocate;
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

struct CpuKernel final : c10::OperatorKernel {
  explicit CpuKernel(Operator* one) : self(one) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    raising([&] { run_on_stack(self->plan, stack); });
  }
  Operator* self;
};

}  // namespace opforge::torch_host
