// bind.h: from the tensors of one call to dtypes, output shapes and counts.
#pragma once

#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/plan.h"
#include "common/small.h"

namespace opforge::adapter {

// What one call's inputs say. Output tensors are flat; a dimension of -1 depends on data.
class Bound {
 public:
  Small<opforge_dtype, 4> types;  // per type variable
  Small<int32_t, 8> counts;       // output tensors per output parameter

  int32_t outputs() const { return static_cast<int32_t>(ranks_.size()); }
  const int64_t* sizes(int32_t output) const { return dims_.data() + starts_[static_cast<size_t>(output)]; }
  int32_t rank(int32_t output) const { return ranks_[static_cast<size_t>(output)]; }
  opforge_dtype dtype(int32_t output) const { return dtypes_[static_cast<size_t>(output)]; }
  // Whether every dimension is known before the kernel runs.
  bool known(int32_t output) const {
    for (int32_t d = 0; d < rank(output); ++d) {
      if (sizes(output)[d] < 0) return false;
    }
    return true;
  }

  void add_output(opforge_dtype dtype) {
    starts_.push_back(static_cast<int32_t>(dims_.size()));
    ranks_.push_back(0);
    dtypes_.push_back(dtype);
  }
  void add_dim(int64_t dim) {
    dims_.push_back(dim);
    ++ranks_.back();
  }
  // The dimensions of the output that is being added.
  int64_t& dim(int32_t index) { return dims_[static_cast<size_t>(starts_.back() + index)]; }
  void clear() {
    types.clear();
    counts.clear();
    dims_.clear();
    starts_.clear();
    ranks_.clear();
    dtypes_.clear();
  }

 private:
  Small<int64_t, 16> dims_;
  Small<int32_t, 4> starts_, ranks_;
  Small<opforge_dtype, 4> dtypes_;
};

namespace detail_bind {

inline bool same_shape(const opforge_tensor& a, const opforge_tensor& b) {
  if (a.ndim != b.ndim) return false;
  for (int32_t d = 0; d < a.ndim; ++d) {
    if (a.shape[d] != b.shape[d]) return false;
  }
  return true;
}

inline bool fast_types(const Plan& plan, const opforge_tensor* tensors, Bound* bound) {
  const auto& inputs = plan.signature.inputs;
  bound->types.resize(plan.signature.types.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].variable < 0) {
      if (!detail::same(tensors[i].dtype, inputs[i].dtype)) return false;
      continue;
    }
    opforge_dtype& type = bound->types[static_cast<size_t>(inputs[i].variable)];
    if (!detail::is_known(type)) {
      bool allowed = false;
      for (const opforge_dtype& one : plan.signature.types[static_cast<size_t>(inputs[i].variable)].dtypes) {
        allowed = allowed || detail::same(one, tensors[i].dtype);
      }
      if (!allowed) return false;
      type = tensors[i].dtype;
    } else if (!detail::same(type, tensors[i].dtype)) {
      return false;
    }
  }
  return true;
}

inline bool fast_shapes(const Plan& plan, const opforge_tensor* tensors, Bound* bound) {
  for (size_t i = 0; i < plan.fast.first_with_run.size(); ++i) {
    const auto first = static_cast<size_t>(plan.fast.first_with_run[i]);
    if (first != i && !same_shape(tensors[first], tensors[i])) return false;
  }
  for (size_t o = 0; o < plan.fast.broadcasts.size(); ++o) {
    const detail::Parameter& output = plan.signature.outputs[o];
    bound->add_output(output.variable < 0 ? output.dtype
                                          : bound->types[static_cast<size_t>(output.variable)]);
    bound->counts.push_back(1);
    int32_t rank = 0;
    for (const int32_t i : plan.fast.broadcasts[o]) rank = tensors[i].ndim > rank ? tensors[i].ndim : rank;
    for (int32_t d = 0; d < rank; ++d) bound->add_dim(1);
    for (const int32_t i : plan.fast.broadcasts[o]) {
      const opforge_tensor& tensor = tensors[i];
      for (int32_t d = 0; d < tensor.ndim; ++d) {
        int64_t& into = bound->dim(rank - tensor.ndim + d);
        if (into == 1) {
          into = tensor.shape[d];
        } else if (tensor.shape[d] != 1 && tensor.shape[d] != into) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace detail_bind

// Checks the inputs and infers the outputs; raises Failure with the words of the schema.
inline void bind(const Plan& plan, const opforge_tensor* tensors, const int32_t* counts,
                 const Attributes& attributes, Bound* bound) {
  if (plan.fast.usable) {
    if (detail_bind::fast_types(plan, tensors, bound) && detail_bind::fast_shapes(plan, tensors, bound))
      return;
    bound->clear();
  }
  std::vector<detail::ShapeView<int64_t>> shapes;
  std::vector<opforge_dtype> dtypes;
  size_t flat = 0;
  for (size_t i = 0; i < plan.signature.inputs.size(); ++i) {
    if (counts[i] == 0 && !plan.signature.inputs[i].variadic) {
      shapes.push_back({nullptr, detail::kAbsent});
      dtypes.push_back(opforge_dtype{});
    }
    for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
      shapes.push_back({tensors[flat].shape, tensors[flat].ndim});
      dtypes.push_back(tensors[flat].dtype);
    }
  }
  Small<int64_t, 8> integers;
  for (size_t a = 0; a < attributes.size(); ++a) {
    integers.push_back(attributes[a].kind == OPFORGE_ATTRIBUTE_INT ? attributes[a].value.i : 0);
  }
  detail::Binding<int64_t> binding;
  detail::Problem problem;
  if (!detail::bind(plan.signature, plan.where, shapes, dtypes, integers.data(), &binding, &problem)) {
    throw failure_of(problem);
  }
  for (const opforge_dtype& type : binding.types) bound->types.push_back(type);
  for (const int32_t count : binding.output_counts) bound->counts.push_back(count);
  for (size_t o = 0; o < binding.shapes.size(); ++o) {
    bound->add_output(binding.dtypes[o]);
    for (const int64_t dim : binding.shapes[o].dims) bound->add_dim(dim);
  }
}

}  // namespace opforge::adapter
