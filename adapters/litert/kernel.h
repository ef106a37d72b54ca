// kernel.h: what LiteRT calls for the nodes of one name in one compiled model. LiteRT heeds no status that
// these functions return, so the first failure is kept for whoever ran the model.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/bind.h"
#include "common/context.h"
#include "common/pool.h"
#include "litert/api.h"
#include "litert/dtypes.h"
#include "litert/operator.h"

namespace opforge::litert_host {

// The first failure since it was last asked for.
class Failures {
 public:
  void add(const Failure& failure) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (first_.status == OPFORGE_STATUS_OK) first_ = {failure.status, failure.text};
  }
  LastFailure take() {
    const std::lock_guard<std::mutex> guard(lock_);
    return std::exchange(first_, {});
  }

 private:
  std::mutex lock_;
  LastFailure first_;
};

// A tensor of LiteRT, mapped while a kernel runs.
class Mapped {
 public:
  Mapped() = default;
  ~Mapped() {
    if (locked_) api().UnlockTensorBuffer(buffer_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  // parameter: of the inputs, -1 = an output; for messages.
  void map(TensorBuffer* buffer, LockMode mode, const Plan& plan, int32_t parameter) {
    const auto fail = [&](opforge_status status, const char* what, const std::string& expected = "",
                          const std::string& got = "") {
      const std::string where = parameter < 0 ? plan.where : argument(plan, static_cast<size_t>(parameter));
      throw failure(status, where, what, expected, got);
    };
    buffer_ = buffer;
    TensorType type{};
    size_t bytes = 0;
    if (api().GetTensorBufferTensorType(buffer, &type) != kOk ||
        api().GetTensorBufferSize(buffer, &bytes) != kOk || type.layout.rank() > kMaxRank) {
      fail(OPFORGE_STATUS_INTERNAL, "LiteRT does not tell the type of a tensor");
    }
    rank_ = type.layout.rank();
    dtype_ = dtype_of(type.element_type);
    element_type_ = type.element_type;
    size_t needed = dtype_.bits / 8u;
    for (int32_t d = 0; d < rank_; ++d) {
      dims_[d] = type.layout.dims[d];
      const size_t size = dims_[d] < 0 ? 0 : static_cast<size_t>(dims_[d]);
      if (dims_[d] < 0 || (size != 0 && needed > SIZE_MAX / size)) {
        fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor without a size");
      }
      needed *= size;
    }
    if (needed > bytes) {
      fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor is larger than its memory",
           std::to_string(needed) + " bytes", std::to_string(bytes));
    }
    if (api().LockTensorBuffer(buffer, &data_, mode) != kOk) {
      fail(OPFORGE_STATUS_INTERNAL, "LiteRT does not map a tensor");
    }
    locked_ = true;
  }

  // The dimensions stay this object's.
  opforge_tensor view() {
    opforge_tensor tensor{};
    tensor.data = data_;
    tensor.device = {OPFORGE_DEVICE_CPU, 0};
    tensor.ndim = rank_;
    tensor.dtype = dtype_;
    tensor.shape = dims_;
    return tensor;
  }
  int32_t element_type() const { return element_type_; }

 private:
  TensorBuffer* buffer_ = nullptr;
  void* data_ = nullptr;
  int64_t dims_[kMaxRank] = {};
  int32_t rank_ = 0, element_type_ = 0;
  opforge_dtype dtype_{};
  bool locked_ = false;
};

class Kernel {
 public:
  Kernel(const Named& named, std::string code, int32_t threads, Failures* failures)
      : named_(named), plan_(*named.plan), code_(std::move(code)), threads_(threads), failures_(failures) {}

  const std::string& code() const { return code_; }
  static const CustomKernel& functions();

 private:
  void init(const void* bytes, size_t size);
  void layouts(size_t inputs, const Layout* given, size_t outputs, Layout* made) const;
  void run(size_t inputs, TensorBuffer* const* given, size_t outputs, TensorBuffer** made) const;
  void divide_inputs(size_t inputs, Small<int32_t, 8>* counts) const;
  const NodeOptions& options() const;

  template <class Body>
  int32_t guarded(Body body) const {
    try {
      body();
      return kOk;
    } catch (const Failure& problem) {
      failures_->add(problem);
    } catch (const std::exception& problem) {
      failures_->add(failure(OPFORGE_STATUS_INTERNAL, plan_.where, problem.what()));
    }
    return kRuntimeFailure;
  }

  const Named& named_;
  const Plan& plan_;
  std::string code_;
  int32_t threads_;
  Failures* failures_;
  std::string bytes_;
  std::unique_ptr<NodeOptions> options_;
};

// The kernels of one compiled model, which must be destroyed before them.
struct Kernels {
  Failures failures;
  std::vector<std::unique_ptr<Kernel>> all;
};

inline const NodeOptions& Kernel::options() const {
  if (options_ == nullptr) throw failure(OPFORGE_STATUS_INTERNAL, plan_.where, "the node has no options");
  return *options_;
}

// LiteRT keeps one state for all nodes of a name, so their options must be the same.
inline void Kernel::init(const void* bytes, size_t size) {
  const std::string given(static_cast<const char*>(bytes), bytes == nullptr ? 0 : size);
  if (options_ != nullptr && given != bytes_) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, plan_.where,
                  "LiteRT cannot tell nodes of one name apart, and these have different attributes",
                  "a name of its own for each, " + code_.substr(0, code_.find('#')) + "#1, #2, ...", code_,
                  "opforge.litert.prepare(model) gives them such names");
  }
  if (options_ != nullptr) return;
  options_ = read_options(named_, bytes, size);
  bytes_ = given;
}

inline void Kernel::divide_inputs(size_t inputs, Small<int32_t, 8>* counts) const {
  const std::vector<int64_t>& told = options().counts;
  const auto& parameters = plan_.signature.inputs;
  size_t used = 0;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const size_t left = inputs - used;
    size_t count = left > 0 ? (parameters[p].variadic ? left : 1) : 0;
    if (!told.empty()) count = static_cast<size_t>(told[p]);
    if (count > left || (count == 0 && !parameters[p].optional && !parameters[p].variadic)) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "wrong number of inputs",
                    plan_.signature.expected_inputs(), std::to_string(inputs));
    }
    counts->push_back(static_cast<int32_t>(count));
    used += count;
  }
  if (used != inputs) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "wrong number of inputs",
                  plan_.signature.expected_inputs(), std::to_string(inputs));
  }
}

inline Failure wrong_outputs(const Plan& plan, size_t expected, size_t got) {
  return failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "wrong number of outputs",
                 std::to_string(expected), std::to_string(got));
}

// LiteRT tells shapes alone here; dtypes are checked when the kernel runs.
inline void Kernel::layouts(size_t inputs, const Layout* given, size_t outputs, Layout* made) const {
  Small<int32_t, 8> counts;
  divide_inputs(inputs, &counts);
  std::vector<std::vector<int64_t>> dims(inputs);
  std::vector<detail::ShapeView<int64_t>> shapes;
  size_t flat = 0;
  for (size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] == 0 && !plan_.signature.inputs[p].variadic) shapes.push_back({nullptr, detail::kAbsent});
    for (int32_t k = 0; k < counts[p]; ++k, ++flat) {
      const int32_t rank = std::min(given[flat].rank(), kMaxRank);
      dims[flat].assign(given[flat].dims, given[flat].dims + rank);
      shapes.push_back({dims[flat].data(), rank});
    }
  }
  const std::vector<opforge_dtype> dtypes(shapes.size());
  detail::Binding<int64_t> binding;
  detail::Problem problem;
  if (!detail::bind(plan_.signature, plan_.where, shapes, dtypes, options().integers.data(), &binding,
                    &problem)) {
    throw failure_of(problem);
  }
  if (binding.shapes.size() != outputs) throw wrong_outputs(plan_, binding.shapes.size(), outputs);
  for (size_t k = 0; k < outputs; ++k) {
    const std::vector<int64_t>& sizes = binding.shapes[k].dims;
    if (sizes.size() > static_cast<size_t>(kMaxRank)) {
      throw failure(OPFORGE_STATUS_UNSUPPORTED, plan_.where, "LiteRT has no tensors of this rank",
                    "at most " + std::to_string(kMaxRank), std::to_string(sizes.size()));
    }
    made[k] = {};
    made[k].bits = static_cast<uint32_t>(sizes.size());
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] < 0 || sizes[d] > INT32_MAX) {
        throw failure(OPFORGE_STATUS_UNSUPPORTED, plan_.where, "LiteRT has no tensors of this size",
                      "dimensions below 2^31", std::to_string(sizes[d]));
      }
      made[k].dims[d] = static_cast<int32_t>(sizes[d]);
    }
  }
}

inline void Kernel::run(size_t inputs, TensorBuffer* const* given, size_t outputs,
                        TensorBuffer** made) const {
  const NodeOptions& node = options();
  Small<int32_t, 8> counts;
  divide_inputs(inputs, &counts);
  const std::unique_ptr<Mapped[]> mapped(new Mapped[inputs + outputs]);
  Small<opforge_tensor, 8> in, out;
  size_t flat = 0;
  for (size_t p = 0; p < counts.size(); ++p) {
    for (int32_t k = 0; k < counts[p]; ++k, ++flat) {
      mapped[flat].map(given[flat], kRead, plan_, static_cast<int32_t>(p));
      in.push_back(mapped[flat].view());
      if (in.back().dtype.bits == 0) {
        throw foreign_dtype(plan_, p, "LiteRT's type " + std::to_string(mapped[flat].element_type()));
      }
    }
  }
  Bound bound;
  bind(plan_, in.data(), counts.data(), node.attributes, &bound);
  if (static_cast<size_t>(bound.outputs()) != outputs)
    throw wrong_outputs(plan_, static_cast<size_t>(bound.outputs()), outputs);
  for (size_t k = 0; k < outputs; ++k) {
    Mapped& place = mapped[inputs + k];
    place.map(made[k], kWrite, plan_, -1);
    out.push_back(place.view());
    const auto index = static_cast<int32_t>(k);
    if (!detail::same(out[k].dtype, bound.dtype(index))) {
      throw failure(OPFORGE_STATUS_TYPE, plan_.where, "the model gives an output another dtype",
                    detail::dtype_name(bound.dtype(index)),
                    out[k].dtype.bits == 0 ? "LiteRT's type " + std::to_string(place.element_type())
                                           : detail::dtype_name(out[k].dtype));
    }
    bool fits = out[k].ndim == bound.rank(index);
    for (int32_t d = 0; fits && d < out[k].ndim; ++d) fits = out[k].shape[d] == bound.sizes(index)[d];
    if (!fits) {
      const auto text = [](const int64_t* sizes, int32_t rank) {
        std::vector<std::string> words;
        for (int32_t d = 0; d < rank; ++d) words.push_back(std::to_string(sizes[d]));
        return "[" + detail::join(words) + "]";
      };
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "the model gives an output another shape",
                    text(bound.sizes(index), bound.rank(index)), text(out[k].shape, out[k].ndim));
    }
  }
  const opforge_kernel& kernel = *plan_.kernel(bound.types.data(), OPFORGE_DEVICE_CPU);
  pool_threads() = threads_;
  CallContext context(&pool_chunks, kernel.data);
  const opforge_arguments from{in.data(), counts.data(), static_cast<int32_t>(in.size()),
                               static_cast<int32_t>(counts.size())};
  const opforge_arguments to{out.data(), bound.counts.data(), static_cast<int32_t>(out.size()),
                             static_cast<int32_t>(bound.counts.size())};
  const opforge_status status = run_in(context, kernel, from, to, node.attributes.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan_, status, context.text);
}

inline const CustomKernel& Kernel::functions() {
  static const CustomKernel all = {
      [](void* user, const void* bytes, size_t size) {
        auto* self = static_cast<Kernel*>(user);
        return self->guarded([&] { self->init(bytes, size); });
      },
      [](void* user, size_t inputs, const Layout* given, size_t outputs, Layout* made) {
        const auto* self = static_cast<const Kernel*>(user);
        return self->guarded([&] { self->layouts(inputs, given, outputs, made); });
      },
      [](void* user, size_t inputs, TensorBuffer* const* given, size_t outputs, TensorBuffer** made) {
        const auto* self = static_cast<const Kernel*>(user);
        return self->guarded([&] { self->run(inputs, given, outputs, made); });
      },
      [](void*) { return static_cast<int32_t>(kOk); },
  };
  return all;
}

}  // namespace opforge::litert_host
