// call.h: one run of a node: tensors of OpenVINO in, our kernel, tensors of OpenVINO out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <openvino/runtime/tensor.hpp>

#include "common/bind.h"
#include "common/context.h"
#include "openvino/attributes.h"
#include "openvino/typing.h"

namespace opforge::openvino_host {

static_assert(sizeof(size_t) == sizeof(int64_t), "shapes of OpenVINO are read in place");

// In the arena that the plugin runs in, so with its threads. Isolated: a thread that waits here must not
// begin another node of the plugin meanwhile.
inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, chunks),
                      [&](const tbb::blocked_range<int64_t>& part) { body(part.begin(), part.end(), user); });
  });
}

class Call {
 public:
  Call(const Plan& plan, const Attributes& attributes, const Ports& ports, const Typing& typing,
       ov::TensorVector& outputs, const ov::TensorVector& inputs)
      : plan_(plan),
        attributes_(attributes),
        ports_(ports),
        typing_(typing),
        results_(outputs),
        given_(inputs) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run();

  // For allocate_late.
  int32_t outputs() const { return bound_.outputs(); }
  void allocate(int32_t flat, const int64_t* shape, int32_t rank);

 private:
  void read(const ov::Tensor& tensor, size_t index, size_t parameter);
  void* room(size_t count, opforge_dtype dtype) {
    converted_.push_back(
        std::make_unique<double[]>((count * dtype.bits / 8 + sizeof(double)) / sizeof(double)));
    return converted_.back().get();
  }

  const Plan& plan_;
  const Attributes& attributes_;
  const Ports& ports_;
  const Typing& typing_;
  ov::TensorVector& results_;
  const ov::TensorVector& given_;
  Small<opforge_tensor, 8> inputs_, outputs_;
  Small<int32_t, 8> counts_;
  std::vector<std::unique_ptr<double[]>> converted_;
  Bound bound_;
};

inline void Call::read(const ov::Tensor& tensor, size_t index, size_t parameter) {
  const ov::Shape& shape = tensor.get_shape();
  opforge_tensor view{};
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.ndim = static_cast<int32_t>(shape.size());
  view.dtype = typing_.taken[index];
  view.shape = reinterpret_cast<int64_t*>(const_cast<size_t*>(shape.data()));
  const opforge_dtype given = typing_.given[index];
  view.data = const_cast<void*>(static_cast<const void*>(tensor.data()));
  if (!detail::same(given, view.dtype)) {
    void* const wide = room(tensor.get_size(), view.dtype);
    conversion_of(view.dtype).arrive(view.data, wide, tensor.get_size());
    view.data = wide;
  }
  inputs_.push_back(view);
  ++counts_[parameter];
}

inline void Call::allocate(int32_t flat, const int64_t* shape, int32_t rank) {
  const auto index = static_cast<size_t>(flat);
  ov::Tensor& tensor = results_[index];
  const ov::Shape& now = tensor.get_shape();
  bool fits = now.size() == static_cast<size_t>(rank);
  for (size_t d = 0; fits && d < now.size(); ++d) fits = static_cast<int64_t>(now[d]) == shape[d];
  if (!fits) tensor.set_shape(ov::Shape(shape, shape + rank));
  opforge_tensor view{};
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.ndim = rank;
  view.dtype = bound_.dtype(flat);
  view.shape = const_cast<int64_t*>(shape);
  view.data = detail::same(typing_.shown[index], view.dtype) ? static_cast<void*>(tensor.data())
                                                             : room(tensor.get_size(), view.dtype);
  outputs_[index] = view;
}

inline void Call::run() {
  counts_.resize(plan_.signature.inputs.size());
  size_t tensor = 0;
  for (size_t k = 0; k < ports_.size(); ++k) {
    if (!ports_[k].present) continue;
    read(given_[tensor], tensor, parameter_of(plan_, k));
    ++tensor;
  }
  bind(plan_, inputs_.data(), counts_.data(), attributes_, &bound_);
  if (static_cast<size_t>(bound_.outputs()) != results_.size()) {
    throw failure(OPFORGE_STATUS_INTERNAL, plan_.where, "OpenVINO asks for another number of outputs",
                  std::to_string(bound_.outputs()), std::to_string(results_.size()));
  }
  outputs_.resize(results_.size());
  for (int32_t k = 0; k < bound_.outputs(); ++k) {
    if (bound_.known(k)) allocate(k, bound_.sizes(k), bound_.rank(k));
  }
  CallContext context(&parallel_chunks, typing_.kernel->data);
  context.allocate = &allocate_late<Call>;
  context.call = this;
  const opforge_arguments in{inputs_.data(), counts_.data(), static_cast<int32_t>(inputs_.size()),
                             static_cast<int32_t>(counts_.size())};
  const opforge_arguments out{outputs_.data(), bound_.counts.data(), static_cast<int32_t>(outputs_.size()),
                              static_cast<int32_t>(bound_.counts.size())};
  const opforge_status status = run_in(context, *typing_.kernel, in, out, attributes_.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan_, status, context.text);
  for (size_t k = 0; k < results_.size(); ++k) {
    if (outputs_[k].shape == nullptr)
      throw kernel_failure(plan_, OPFORGE_STATUS_INTERNAL,
                           "the kernel allocated no output " + std::to_string(k));
    if (!detail::same(typing_.shown[k], outputs_[k].dtype)) {
      conversion_of(outputs_[k].dtype).leave(outputs_[k].data, results_[k].data(), results_[k].get_size());
    }
  }
}

}  // namespace opforge::openvino_host
