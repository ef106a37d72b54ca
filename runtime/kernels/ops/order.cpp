// order.cpp: ArgMax, ArgMin, TopK and CumSum.
#include <algorithm>

#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

// Calls f(T*) with a null pointer of the element type of `dtype`; false when there is no kernel for it.
template <class F>
bool with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      f(static_cast<float*>(nullptr));
      return true;
    case DType::kF64:
      f(static_cast<double*>(nullptr));
      return true;
    case DType::kI64:
      f(static_cast<int64_t*>(nullptr));
      return true;
    case DType::kU64:
      f(static_cast<uint64_t*>(nullptr));
      return true;
    case DType::kI32:
      f(static_cast<int32_t*>(nullptr));
      return true;
    case DType::kU32:
      f(static_cast<uint32_t*>(nullptr));
      return true;
    case DType::kI16:
      f(static_cast<int16_t*>(nullptr));
      return true;
    case DType::kU16:
      f(static_cast<uint16_t*>(nullptr));
      return true;
    case DType::kI8:
      f(static_cast<int8_t*>(nullptr));
      return true;
    case DType::kU8:
      f(static_cast<uint8_t*>(nullptr));
      return true;
    default:
      return false;
  }
}
bool has_type(DType dtype) {
  return with_type(dtype, [](auto*) {});
}
Status no_type(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "there is no kernel for this dtype");
}
Status bad_axis(InferContext& c, int64_t axis, int rank) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis %lld is out of range for rank %d",
                static_cast<long long>(axis), rank);
}

// ---- ArgMax, ArgMin
// -----------------------------------------------------------------------------------------
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
        int64_t best = 0;
        for (int64_t i = 1; i < split.size; ++i) {
          const T a = at[i * split.inner], b = at[best * split.inner];
          const bool better = MAX ? a > b : a < b;
          if (better || (last && a == b) || (a != a && b == b)) best = i;
        }
        y[e] = best;
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- TopK
// ---------------------------------------------------------------------------------------------------
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
      for (int64_t i = 0; i < split.size; ++i) order[i] = i;
      std::partial_sort(order, order + k, order + split.size, [&](int64_t i, int64_t j) {
        const T a = at[i * split.inner], b = at[j * split.inner];
        const bool a_nan = a != a, b_nan = b != b;
        if (a_nan != b_nan) return largest ? a_nan : b_nan;
        if (a != b && !a_nan) return largest ? a > b : a < b;
        return i < j;
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t to = (outer * k + i) * split.inner + inner;
        if (values != nullptr) values[to] = at[order[i] * split.inner];
        if (indices != nullptr) indices[to] = order[i];
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- CumSum
// -------------------------------------------------------------------------------------------------
Status cumsum_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Shape& x = c.inputs[0].shape;
  if (!has_type(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (c.inputs[1].data == nullptr) return c.need_data(1);
  int64_t axis = 0, count = 0;
  if (!read_values(c.inputs[1], &axis, 1, &count) || count != 1 || axis_of(axis, x.rank) < 0)
    return bad_axis(c, axis, x.rank);
  c.outputs[0].shape = x;
  return OPFORGE_STATUS_OK;
}

Status cumsum_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const AxisSplit split(shape, axis_of(index_at(c.inputs[1], 0), shape.rank));
  const bool exclusive = c.attributes->get_int("exclusive", 0) != 0,
             reverse = c.attributes->get_int("reverse", 0) != 0;
  with_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* y = c.outputs[0].as<T>();
    const int64_t grain = greater<int64_t>(1, 16384 / greater<int64_t>(split.size, 1));
    c.parallel(split.outer * split.inner, grain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const int64_t first = e / split.inner * split.size * split.inner + e % split.inner;
        T sum = 0;
        for (int64_t i = 0; i < split.size; ++i) {
          const int64_t at = first + (reverse ? split.size - 1 - i : i) * split.inner;
          const T next = static_cast<T>(sum + x[at]);
          y[at] = exclusive ? sum : next;
          sum = next;
        }
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "ArgMax", 1, kNewest, nullptr, arg_infer, arg_run<true>},
    {"", "ArgMin", 1, kNewest, nullptr, arg_infer, arg_run<false>},
    {"", "TopK", 10, kNewest, nullptr, topk_infer, topk_run, kAnyOutput, 2},
    {"", "CumSum", 11, kNewest, nullptr, cumsum_infer, cumsum_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(order, opforge::kRows);
