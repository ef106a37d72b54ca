// call.h: one run of a node: tensors of ONNX Runtime in, our kernel, tensors of ONNX Runtime out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/bind.h"
#include "common/context.h"
#include "onnxruntime/attributes.h"
#include "onnxruntime/device.h"

namespace opforge::onnxruntime_host {

// Where chunks of this thread's call go; set while a kernel divides its work.
inline const KernelContext*& current_context() {
  static thread_local const KernelContext* context = nullptr;
  return context;
}

inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  struct Work {
    void (*body)(int64_t, int64_t, void*);
    void* user;
  } work{body, user};
  const auto one = [](void* pointer, size_t chunk) {
    const auto& self = *static_cast<const Work*>(pointer);
    self.body(static_cast<int64_t>(chunk), static_cast<int64_t>(chunk) + 1, self.user);
  };
  check(api().KernelContext_ParallelFor(current_context(), one, static_cast<size_t>(chunks), 0, &work),
        "KernelContext_ParallelFor");
}

// A node of a graph. Several threads may run it at one time, so it is read only.
struct Node {
  const Definition* definition = nullptr;
  const opforge_kernel* kernel = nullptr;
  NodeAttributes attributes;
  opforge_device device{OPFORGE_DEVICE_CPU, 0};
  DeviceMemory memory;
  // Per input and output of the node its place in the context, -1 where it is not there. A node that stands
  // for itself has its own places; one in a claimed graph has those of the graph, where inputs that are equal
  // are one, and outputs that nobody reads are gone.
  std::vector<int32_t> inputs, outputs;
};

class Call {
 public:
  Call(const Node& node, KernelContext* context) : node_(node), plan_(*node.definition), context_(context) {}
  ~Call() {
    for (void* memory : borrowed_) node_.memory.free(memory);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run();

  // For allocate_late.
  int32_t outputs() const { return bound_.outputs(); }
  void allocate(int32_t flat, const int64_t* shape, int32_t rank);

 private:
  void read_input(size_t index, size_t parameter);
  void* borrow(size_t bytes);
  static void* scratch(opforge_context* context, size_t bytes, size_t alignment);
  static opforge_status divide(opforge_context* context, int64_t n, int64_t grain, opforge_range_fn body,
                               void* user);

  const Node& node_;
  const Definition& plan_;
  KernelContext* context_;
  Small<opforge_tensor, 8> inputs_, outputs_;
  Small<int32_t, 8> counts_, places_;
  std::vector<std::unique_ptr<int64_t[]>> dims_;
  std::vector<std::unique_ptr<char[]>> unwanted_;
  void* stream_ = nullptr;    // of a node on a GPU
  Small<void*, 4> borrowed_;  // memory of its device
  Bound bound_;
};

inline void Call::read_input(size_t index, size_t parameter) {
  const int32_t place = node_.inputs[index];
  const Value* value = nullptr;
  if (place >= 0)
    check(api().KernelContext_GetInput(context_, static_cast<size_t>(place), &value), plan_.where);
  if (value == nullptr) {
    const detail::Parameter& input = plan_.signature.inputs[parameter];
    if (input.optional) return;
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan_, parameter), "missing input", "a tensor",
                  "nothing");
  }
  opforge_tensor view{};
  view.device = node_.device;
  view.dtype = Definition::dtype(plan_.signature.inputs[parameter], node_.kernel->dtypes);
  size_t rank = 0;
  if (api().GetTensorElementTypeAndShapeDataReference != nullptr) {
    int32_t type = 0;
    const int64_t* shape = nullptr;
    check(api().GetTensorElementTypeAndShapeDataReference(value, &type, &shape, &rank), plan_.where);
    view.shape = const_cast<int64_t*>(shape);
  } else {
    TensorInfo* made = nullptr;
    check(api().GetTensorTypeAndShape(value, &made), plan_.where);
    const std::unique_ptr<TensorInfo, void (*)(TensorInfo*)> info(made, api().ReleaseTensorTypeAndShapeInfo);
    check(api().GetDimensionsCount(made, &rank), plan_.where);
    dims_.push_back(std::make_unique<int64_t[]>(rank + 1));
    check(api().GetDimensions(made, dims_.back().get(), rank), plan_.where);
    view.shape = dims_.back().get();
  }
  view.ndim = static_cast<int32_t>(rank);
  check(api().GetTensorMutableData(value, &view.data), plan_.where);
  inputs_.push_back(view);
  ++counts_[parameter];
}

inline void Call::allocate(int32_t flat, const int64_t* shape, int32_t rank) {
  opforge_tensor view{};
  view.device = node_.device;
  view.ndim = rank;
  view.dtype = bound_.dtype(flat);
  view.shape = const_cast<int64_t*>(shape);
  const int32_t place = places_[static_cast<size_t>(flat)];
  Value* value = nullptr;
  if (place >= 0) {
    check(api().KernelContext_GetOutput(context_, static_cast<size_t>(place), shape,
                                        static_cast<size_t>(rank), &value),
          plan_.where);
  }
  if (value != nullptr) {
    check(api().GetTensorMutableData(value, &view.data), plan_.where);
  } else {  // the kernel writes it all the same
    size_t bytes = view.dtype.bits / 8u;
    for (int32_t d = 0; d < rank; ++d) bytes *= static_cast<size_t>(shape[d]);
    if (node_.device.type == OPFORGE_DEVICE_CPU) {
      unwanted_.push_back(std::make_unique<char[]>(bytes + 1));
      view.data = unwanted_.back().get();
    } else {
      view.data = borrow(bytes);
    }
  }
  outputs_[static_cast<size_t>(flat)] = view;
}

inline opforge_status Call::divide(opforge_context* context, int64_t n, int64_t grain, opforge_range_fn body,
                                   void* user) {
  if (n > grain) current_context() = static_cast<Call*>(context_functions::whole(context).call)->context_;
  return context_functions::parallel_for(context, n, grain, body, user);
}

inline void* Call::borrow(size_t bytes) {
  borrowed_.push_back(node_.memory.allocate(context_, stream_, bytes, plan_.where));
  return borrowed_.back();
}

// opforge_context::scratch of nodes on a GPU.
inline void* Call::scratch(opforge_context* context, size_t bytes, size_t alignment) {
  constexpr size_t kAligned = 256;  // what the allocators of devices give
  const size_t more = alignment > kAligned ? alignment : 0;
  if (bytes + more < bytes) return nullptr;
  try {
    Call& self = *static_cast<Call*>(context_functions::whole(context).call);
    const auto address = reinterpret_cast<uintptr_t>(self.borrow(bytes + more));
    return reinterpret_cast<void*>(more == 0 ? address : (address + more - 1) / more * more);
  } catch (const std::exception&) {
    return nullptr;
  }
}

inline void Call::run() {
  if (node_.device.type != OPFORGE_DEVICE_CPU)
    check(api().KernelContext_GetGPUComputeStream(context_, &stream_), plan_.where);
  const detail::Signature& signature = plan_.signature;
  const size_t parameters = signature.inputs.size();
  counts_.resize(parameters);
  for (size_t k = 0; k < node_.inputs.size(); ++k) read_input(k, k < parameters ? k : parameters - 1);
  for (size_t p = node_.inputs.size(); p < parameters; ++p) {
    if (!signature.inputs[p].optional) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "wrong number of inputs",
                    signature.expected_inputs(), std::to_string(node_.inputs.size()));
    }
  }
  bind(plan_, inputs_.data(), counts_.data(), node_.attributes.values, &bound_);
  outputs_.resize(static_cast<size_t>(bound_.outputs()));
  for (size_t p = 0; p < signature.outputs.size(); ++p) {
    for (int32_t k = 0; k < bound_.counts[p]; ++k) {
      const size_t index = p + static_cast<size_t>(k);
      places_.push_back(index < node_.outputs.size() ? node_.outputs[index] : -1);
    }
  }
  for (int32_t k = 0; k < bound_.outputs(); ++k) {
    if (bound_.known(k)) allocate(k, bound_.sizes(k), bound_.rank(k));
  }
  CallContext context(&parallel_chunks, node_.kernel->data);
  context.allocate = &allocate_late<Call>;
  context.call = this;
  context.base.parallel_for = &divide;
  if (node_.device.type != OPFORGE_DEVICE_CPU) {
    context.base.device = node_.device;
    context.base.stream = stream_;
    context.base.scratch = &scratch;
  }
  const opforge_arguments in{inputs_.data(), counts_.data(), static_cast<int32_t>(inputs_.size()),
                             static_cast<int32_t>(counts_.size())};
  const opforge_arguments out{outputs_.data(), bound_.counts.data(), static_cast<int32_t>(outputs_.size()),
                              static_cast<int32_t>(bound_.counts.size())};
  const opforge_status status = run_in(context, *node_.kernel, in, out, node_.attributes.values.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan_, status, context.text);
}

}  // namespace opforge::onnxruntime_host
