// call.h: one call of an operator: ExecuTorch's values in, our kernel, memory that ExecuTorch planned out.
#pragma once

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <climits>
#include <string>
#include <vector>

#include "common/bind.h"
#include "common/context.h"
#include "common/dense.h"
#include "common/pool.h"
#include "executorch/dtypes.h"
#include "executorch/values.h"

namespace opforge::executorch_host {

using ::executorch::aten::SizesType;
using ::executorch::aten::Tensor;
using ::executorch::runtime::Error;
using ::executorch::runtime::KernelRuntimeContext;
using ::executorch::runtime::Span;

// Inputs, attributes and outputs lie on the stack in the order of the schema, one value per parameter.
class Call {
 public:
  Call(const Plan& plan, Span<EValue*> stack) : plan_(plan), stack_(stack) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run();

  // For allocate_late.
  int32_t outputs() const { return bound_.outputs(); }
  void allocate(int32_t flat, const int64_t* shape, int32_t rank);

 private:
  void read_inputs();
  void add_input(const Tensor& tensor, size_t parameter);
  void find_outputs(size_t first);
  void resize(int32_t flat, const Tensor& tensor, const int64_t* shape, int32_t rank);
  void make_fit(const opforge_kernel& kernel, CallContext* context);

  [[noreturn]] static void refuse(const std::string& where, const std::string& expected,
                                  const std::string& got) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, where, "wrong kind of argument", expected, got,
                  "lower the model again with this declaration");
  }
  std::string output(int32_t flat) const { return plan_.where + ", output " + std::to_string(flat); }
  template <class Sizes>
  static std::string listed(const Sizes& sizes, size_t count) {
    std::vector<std::string> items;
    for (size_t d = 0; d < count; ++d) items.push_back(std::to_string(sizes[d]));
    return "[" + detail::join(items) + "]";
  }

  const Plan& plan_;
  Span<EValue*> stack_;
  Small<opforge_tensor, 8> inputs_, outputs_;
  Small<const Tensor*, 8> sources_, targets_;
  Small<int64_t, 24> dims_;
  Small<int64_t, 16> strides_;
  Small<int32_t, 8> counts_;
  Attributes attributes_;
  Bound bound_;
};

inline void Call::add_input(const Tensor& tensor, size_t parameter) {
  const DtypeRow* const row = row_of(tensor.scalar_type());
  if (row == nullptr) throw foreign_dtype(plan_, parameter, name_of(tensor.scalar_type()));
  opforge_tensor view{};
  view.data = const_cast<void*>(tensor.const_data_ptr());
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.ndim = static_cast<int32_t>(tensor.dim());
  view.dtype = row->ours;
  if (view.data == nullptr && tensor.numel() != 0) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan_, parameter), "the tensor has no memory");
  }
  for (const SizesType size : tensor.sizes()) dims_.push_back(size);
  inputs_.push_back(view);
  sources_.push_back(&tensor);
  ++counts_[parameter];
}

inline void Call::read_inputs() {
  const auto& declared = plan_.signature.inputs;
  counts_.resize(declared.size());
  for (size_t p = 0; p < declared.size(); ++p) {
    const EValue& value = *stack_[p];
    if (declared[p].variadic) {
      const auto list = value.tryToTensorList();
      if (!list.ok()) refuse(argument(plan_, p), "a list of tensors", kind_of(value));
      for (const Tensor& tensor : list.get()) add_input(tensor, p);
    } else if (value.isTensor()) {
      add_input(value.toTensor(), p);
    } else if (!declared[p].optional || !value.isNone()) {
      refuse(argument(plan_, p), "a tensor", kind_of(value));
    }
  }
  int64_t* dims = dims_.data();  // they move while they grow
  for (opforge_tensor& view : inputs_) {
    view.shape = dims;
    dims += view.ndim;
  }
}

inline void Call::find_outputs(size_t first) {
  const auto& declared = plan_.signature.outputs;
  for (size_t p = 0; p < declared.size(); ++p) {
    const EValue& value = *stack_[first + p];
    const auto where = [&] { return plan_.where + ", output " + declared[p].name; };
    if (!declared[p].variadic) {
      if (!value.isTensor()) refuse(where(), "a tensor", kind_of(value));
      targets_.push_back(&value.toTensor());
      continue;
    }
    const auto list = value.tryToTensorList();
    const auto wanted = static_cast<size_t>(bound_.counts[p]);
    if (!list.ok()) refuse(where(), "a list of tensors", kind_of(value));
    if (list.get().size() != wanted) {
      refuse(where(), std::to_string(wanted) + " tensors", std::to_string(list.get().size()));
    }
    for (const Tensor& tensor : list.get()) targets_.push_back(&tensor);
  }
}

// ExecuTorch has planned the memory of an output up to a bound; its sizes are set here.
inline void Call::resize(int32_t flat, const Tensor& tensor, const int64_t* shape, int32_t rank) {
  bool same = tensor.dim() == rank;
  for (int32_t d = 0; same && d < rank; ++d) same = tensor.sizes()[static_cast<size_t>(d)] == shape[d];
  if (same) return;
  Small<SizesType, 8> sizes;
  bool fits = tensor.dim() == rank;
  for (int32_t d = 0; d < rank; ++d) {
    fits = fits && shape[d] <= INT32_MAX;
    sizes.push_back(static_cast<SizesType>(shape[d]));
  }
  const std::string before = listed(tensor.sizes(), tensor.sizes().size());
  if (!fits || ::executorch::runtime::resize_tensor(tensor, {sizes.data(), sizes.size()}) != Error::Ok) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, output(flat),
                  "the output does not fit the memory that the file plans for it", before,
                  listed(shape, static_cast<size_t>(rank)),
                  "lower the model with dynamic_shapes that reach this far");
  }
}

inline void Call::allocate(int32_t flat, const int64_t* shape, int32_t rank) {
  const Tensor& tensor = *targets_[static_cast<size_t>(flat)];
  const DtypeRow* const row = row_of(tensor.scalar_type());
  if (row == nullptr || !detail::same(row->ours, bound_.dtype(flat))) {
    throw failure(OPFORGE_STATUS_TYPE, output(flat), "the file gives the output another dtype",
                  detail::dtype_name(bound_.dtype(flat)), name_of(tensor.scalar_type()),
                  "lower the model again with this declaration");
  }
  resize(flat, tensor, shape, rank);
  opforge_tensor view{};
  view.data = tensor.mutable_data_ptr();
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.ndim = rank;
  view.dtype = row->ours;
  view.shape = const_cast<int64_t*>(shape);
  if (view.data == nullptr && tensor.numel() != 0) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, output(flat), "the output has no memory");
  }
  if (!is_dense(rank, shape, tensor.strides().data())) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, output(flat), "the output is not dense in row-major order", "",
                  "strides " + listed(tensor.strides(), static_cast<size_t>(rank)));
  }
  outputs_[static_cast<size_t>(flat)] = view;
}

// Gives strides to kernels that take them, and dense copies to others.
inline void Call::make_fit(const opforge_kernel& kernel, CallContext* context) {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    opforge_tensor& view = inputs_[k];
    const auto strides = sources_[k]->strides();
    if (is_dense(view.ndim, view.shape, strides.data())) continue;
    strides_.resize(dims_.size());  // those of an input lie where its sizes do
    view.strides = strides_.data() + (view.shape - dims_.data());
    for (int32_t d = 0; d < view.ndim; ++d) view.strides[d] = strides[static_cast<size_t>(d)];
    if ((kernel.flags & OPFORGE_KERNEL_STRIDED) != 0) continue;
    const size_t bytes = static_cast<size_t>(element_count(view)) * (view.dtype.bits / 8u);
    auto* const copy = static_cast<char*>(context->base.scratch(&context->base, bytes, 64));
    if (copy == nullptr)
      throw failure(OPFORGE_STATUS_OUT_OF_MEMORY, plan_.where, "no memory for a dense copy");
    copy_dense(view, copy);
    view.data = copy;
    view.strides = nullptr;
  }
}

inline void Call::run() {
  const detail::Signature& signature = plan_.signature;
  const size_t inputs = signature.inputs.size(), attributes = signature.attributes.size();
  if (stack_.size() < inputs + attributes + signature.outputs.size()) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "wrong number of arguments",
                  std::to_string(inputs + attributes + signature.outputs.size()),
                  std::to_string(stack_.size()), "lower the model again with this declaration");
  }
  read_inputs();
  AttributeReader reader(plan_, &attributes_);
  for (size_t a = 0; a < attributes; ++a) reader.read(signature.attributes[a], *stack_[inputs + a]);
  bind(plan_, inputs_.data(), counts_.data(), attributes_, &bound_);
  const opforge_kernel* const kernel = plan_.kernel(bound_.types.data(), OPFORGE_DEVICE_CPU);
  CallContext context(&pool_chunks, kernel->data);
  context.allocate = &allocate_late<Call>;
  context.call = this;
  find_outputs(inputs + attributes);
  outputs_.resize(static_cast<size_t>(bound_.outputs()));
  for (int32_t k = 0; k < bound_.outputs(); ++k) {
    if (bound_.known(k)) allocate(k, bound_.sizes(k), bound_.rank(k));
  }
  make_fit(*kernel, &context);
  const opforge_arguments in{inputs_.data(), counts_.data(), static_cast<int32_t>(inputs_.size()),
                             static_cast<int32_t>(counts_.size())};
  const opforge_arguments out{outputs_.data(), bound_.counts.data(), static_cast<int32_t>(outputs_.size()),
                              static_cast<int32_t>(bound_.counts.size())};
  const opforge_status status = run_in(context, *kernel, in, out, attributes_.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan_, status, context.text);
}

}  // namespace opforge::executorch_host
