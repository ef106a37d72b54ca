// call.h: one launch on TensorRT's pointers, stream and workspace.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include <NvInfer.h>

#include "common/bind.h"
#include "common/context.h"
#include "common/device.h"
#include "tensorrt/dtypes.h"
#include "tensorrt/fields.h"

namespace opforge::tensorrt_host {

// The device that this thread works on, asked of the driver, which is loaded where an engine runs.
inline int32_t current_device() {
  using Function = int (*)(int*);
  static const auto function = [] {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(driver, "cuCtxGetDevice"));
  }();
  int device = 0;
  return function != nullptr && function(&device) == 0 ? device : 0;
}

struct Workspace {
  char* begin;
  char* end;
};

// Memory of the workspace, from the front; NULL when there is none left.
inline void* workspace_scratch(opforge_context* context, size_t bytes, size_t alignment) {
  constexpr size_t kAlignment = 256;
  auto& left = *static_cast<Workspace*>(context_functions::whole(context).call);
  const size_t step = alignment > kAlignment ? alignment : kAlignment;
  const auto address = reinterpret_cast<uintptr_t>(left.begin);
  const size_t skip = (step - address % step) % step;
  const auto room = static_cast<size_t>(left.end - left.begin);
  if (left.begin == nullptr || skip > room || bytes > room - skip) return nullptr;
  char* const made = left.begin + skip;
  left.begin = made + bytes;
  return made;
}

inline std::vector<int64_t> sizes_of(const nvinfer1::Dims& dims) {
  return std::vector<int64_t>(dims.d, dims.d + (dims.nbDims > 0 ? dims.nbDims : 0));
}

// Tensors per input parameter when that many come.
inline std::vector<int32_t> input_counts(const Plan& plan, const Content& content, int32_t inputs) {
  const auto& parameters = plan.signature.inputs;
  std::vector<int32_t> counts = content.counts;
  if (counts.empty()) {
    const auto least = static_cast<int32_t>(parameters.size());
    for (int32_t k = 0; k < least; ++k) counts.push_back(k < inputs ? 1 : 0);
    if (inputs > least && plan.signature.variadic()) counts.back() += inputs - least;
  }
  int32_t total = 0;
  bool fits = true;
  for (size_t k = 0; k < counts.size(); ++k) {
    total += counts[k];
    fits = fits && (counts[k] > 0 || parameters[k].optional);
  }
  if (total != inputs || !fits) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.key, "wrong number of inputs",
                  plan.signature.expected_inputs(), std::to_string(inputs));
  }
  return counts;
}

inline void launch(const Plan& plan, const Content& content, const nvinfer1::PluginTensorDesc* inputs,
                   int32_t n_inputs, const nvinfer1::PluginTensorDesc* outputs, int32_t n_outputs,
                   const void* const* in, void* const* out, Workspace workspace, void* stream) {
  const opforge_device device{OPFORGE_DEVICE_CUDA, current_device()};
  std::vector<std::vector<int64_t>> sizes;
  std::vector<opforge_tensor> tensors;
  const auto add = [&](const nvinfer1::PluginTensorDesc& desc, void* data) {
    sizes.push_back(sizes_of(desc.dims));
    opforge_tensor tensor{};
    tensor.data = data;
    tensor.device = device;
    tensor.ndim = static_cast<int32_t>(sizes.back().size());
    tensor.dtype = dtype_of(desc.type);
    tensor.shape = sizes.back().data();
    tensors.push_back(tensor);
  };
  sizes.reserve(static_cast<size_t>(n_inputs + n_outputs));
  for (int32_t k = 0; k < n_inputs; ++k) add(inputs[k], const_cast<void*>(in[k]));
  for (int32_t k = 0; k < n_outputs; ++k) add(outputs[k], out[k]);

  const std::vector<int32_t> counts = input_counts(plan, content, n_inputs);
  Bound bound;
  bind(plan, tensors.data(), counts.data(), content.packed, &bound);
  bool fits = bound.outputs() == n_outputs;
  for (int32_t k = 0; fits && k < n_outputs; ++k) {
    const opforge_tensor& tensor = tensors[static_cast<size_t>(n_inputs + k)];
    fits = bound.rank(k) == tensor.ndim && detail::same(bound.dtype(k), tensor.dtype);
    for (int32_t d = 0; fits && d < tensor.ndim; ++d) fits = bound.sizes(k)[d] == tensor.shape[d];
  }
  if (!fits) {
    throw failure(OPFORGE_STATUS_INTERNAL, plan.key, "TensorRT's outputs are not those of the operator");
  }
  const opforge_kernel* const kernel = device_kernel(plan, bound.types.data(), OPFORGE_DEVICE_CUDA);
  CallContext context(nullptr, kernel->data);
  context.base.device = device;
  context.base.stream = stream;
  context.base.scratch = &workspace_scratch;
  context.call = &workspace;
  const opforge_arguments arguments{tensors.data(), counts.data(), n_inputs,
                                    static_cast<int32_t>(counts.size())};
  const opforge_arguments results{tensors.data() + n_inputs, bound.counts.data(), n_outputs,
                                  static_cast<int32_t>(bound.counts.size())};
  const opforge_status status = kernel->run(&context.base, &arguments, &results, content.packed.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan, status, context.text);
}

}  // namespace opforge::tensorrt_host
