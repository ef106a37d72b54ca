// order.cpp: ArgMax, ArgMin, Hardmax and TopK.
#include <algorithm>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- ArgMax, ArgMin
Status arg_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kI64)) return wrong;
  const Shape& x = c.inputs[0].shape;
  const int64_t given = c.attributes->get_int("axis", 0);
  const int axis = axis_of(given, x.rank);
  if (axis < 0) return bad_axis(c, given, x.rank);
  if (!has_type(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (x[axis] == 0 && x.elements() == 0) {
    for (int k = 0, others = 1; k < x.rank; ++k) {
      if (k != axis && x[k] == 0) others = 0;
      if (k == x.rank - 1 && others)
        return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "there is no greatest element of none");
    }
  }
  const bool keep = c.attributes->get_int("keepdims", 1) != 0;
  Shape& y = c.outputs[0].shape;
  y.rank = 0;
  for (int k = 0; k < x.rank; ++k)
    if (k != axis || keep) y.dims[y.rank++] = k == axis ? 1 : x[k];
  return OPFORGE_STATUS_OK;
}

// Index of the greatest (least) of `size` elements; NaN counts as such, the first one.
template <bool MAX, class T>
int64_t best_of(const T* at, int64_t size, int64_t stride, bool last) {
  int64_t best = 0;
  for (int64_t i = 1; i < size; ++i) {
    const T a = at[i * stride], b = at[best * stride];
    const bool better = MAX ? a > b : a < b;
    if (better || (last && a == b) || (a != a && b == b)) best = i;
  }
  return best;
}

template <bool MAX>
Status arg_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const AxisSplit split(shape, axis_of(c.attributes->get_int("axis", 0), shape.rank));
  const bool last = c.attributes->get_int("select_last_index", 0) != 0;
  int64_t* y = c.outputs[0].as<int64_t>();
  with_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    const int64_t grain = greater<int64_t>(1, 16384 / greater<int64_t>(split.size, 1));
    c.parallel(split.outer * split.inner, grain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const T* at = x + e / split.inner * split.size * split.inner + e % split.inner;
        y[e] = best_of<MAX>(at, split.size, split.inner, last);
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- TopK
Status topk_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype, DType::kI64)) return wrong;
  const Shape& x = c.inputs[0].shape;
  const int64_t given = c.attributes->get_int("axis", -1);
  const int axis = axis_of(given, x.rank);
  if (axis < 0) return bad_axis(c, given, x.rank);
  if (!has_type(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (c.inputs[1].data == nullptr) return c.need_data(1);
  int64_t k = 0, count = 0;
  if (!read_values(c.inputs[1], &k, 1, &count) || count != 1 || k < 0 || k > x[axis])
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "K is %lld, expected 0 to %lld",
                  static_cast<long long>(k), static_cast<long long>(x[axis]));
  for (int i = 0; i < c.n_outputs; ++i) {
    c.outputs[i].shape = x;
    c.outputs[i].shape.dims[axis] = k;
  }
  c.scratch_bytes = 8 * scratch_floats(x[axis]) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

// Equal values keep the order of their indices; NaN counts as the greatest value.
Status topk_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const int axis = axis_of(c.attributes->get_int("axis", -1), shape.rank);
  const AxisSplit split(shape, axis);
  const bool largest = c.attributes->get_int("largest", 1) != 0;
  const Tensor& any = c.outputs[0].present() ? c.outputs[0] : c.outputs[1];
  const int64_t k = any.shape[axis];
  int64_t* scratch = static_cast<int64_t*>(c.scratch);
  with_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* values = c.outputs[0].present() ? c.outputs[0].as<T>() : nullptr;
    int64_t* indices = c.n_outputs > 1 && c.outputs[1].present() ? c.outputs[1].as<int64_t>() : nullptr;
    for_units(c, split.outer * split.inner, [&](int64_t slot, int64_t e) {
      int64_t* order = scratch + slot * scratch_floats(split.size);
      const int64_t outer = e / split.inner, inner = e % split.inner;
      const T* at = x + outer * split.size * split.inner + inner;
      const auto before = [&](int64_t i, int64_t j) {
        const T a = at[i * split.inner], b = at[j * split.inner];
        const bool a_nan = a != a, b_nan = b != b;
        if (a_nan != b_nan) return largest ? a_nan : b_nan;
        if (a != b && !a_nan) return largest ? a > b : a < b;
        return i < j;
      };
      // A heap of the best k so far, the worst of them on top; most elements fail against its value alone.
      for (int64_t i = 0; i < k; ++i) order[i] = i;
      std::make_heap(order, order + k, before);
      for (int64_t i = k; k > 0 && i < split.size; ++i) {
        const T v = at[i * split.inner], worst = at[order[0] * split.inner];
        if (largest ? v <= worst : v >= worst) continue;
        if (!before(i, order[0])) continue;
        std::pop_heap(order, order + k, before);
        order[k - 1] = i;
        std::push_heap(order, order + k, before);
      }
      std::sort_heap(order, order + k, before);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t to = (outer * k + i) * split.inner + inner;
        if (values != nullptr) values[to] = at[order[i] * split.inner];
        if (indices != nullptr) indices[to] = order[i];
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- Hardmax: 1 at the first greatest element of the axis
Status hardmax_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Shape& x = c.inputs[0].shape;
  const int64_t given = c.attributes->get_int("axis", -1);
  if (axis_of(given, x.rank) < 0) return bad_axis(c, given, x.rank);
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  c.outputs[0].shape = x;
  return OPFORGE_STATUS_OK;
}

Status hardmax_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  if (shape.elements() == 0) return OPFORGE_STATUS_OK;
  const AxisSplit split(shape, axis_of(c.attributes->get_int("axis", -1), shape.rank));
  with_real(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* y = c.outputs[0].as<T>();
    c.parallel(split.outer * split.inner, grain_of(split.size), [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const int64_t first = e / split.inner * split.size * split.inner + e % split.inner;
        const int64_t best = best_of<true>(x + first, split.size, split.inner, false);
        for (int64_t i = 0; i < split.size; ++i) y[first + i * split.inner] = i == best ? T(1) : T(0);
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "ArgMax", 1, kNewest, nullptr, arg_infer, arg_run<true>},
    {"", "ArgMin", 1, kNewest, nullptr, arg_infer, arg_run<false>},
    {"", "Hardmax", 13, kNewest, nullptr, hardmax_infer, hardmax_run},
    {"", "TopK", 10, kNewest, nullptr, topk_infer, topk_run, kAnyOutput, 2, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(order, opforge::kRows);
