// order.cpp: ArgMax, ArgMin, Hardmax and TopK.
#include <algorithm>

#include "kernels/fold.h"
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

// The first index from i on, in steps of 64 bytes, behind which an element is hit; all before it are not.
template <class T, class F>
int64_t skip(const T* x, int64_t i, int64_t n, F&& hit) {
  constexpr int64_t kPart = 16 / sizeof(T);
  typedef T Part __attribute__((vector_size(16)));
  for (; i + 4 * kPart <= n; i += 4 * kPart) {
    Part parts[4];
    std::memcpy(parts, x + i, sizeof parts);
    const auto any = hit(parts[0]) | hit(parts[1]) | hit(parts[2]) | hit(parts[3]);
    uint64_t words[2];
    std::memcpy(words, &any, sizeof words);
    if ((words[0] | words[1]) != 0) break;
  }
  return i;
}

// Index of the greatest (least) of `size` elements; NaN counts as such, the first one.
template <bool MAX, class T>
int64_t best_of(const T* at, int64_t size, int64_t stride, bool last) {
  if (stride == 1) {  // the value by vectors, then where it stands
    const T best = Fold < MAX ? Reduction::kMax : Reduction::kMin, T, T > ::row(at, size);
    int64_t i = 0;
    if (best != best) {
      while (at[i] == at[i]) ++i;
    } else if (last) {
      for (i = size - 1; at[i] != best;) --i;
    } else {
      i = skip(at, i, size, [best](const auto& part) { return part == best; });
      while (at[i] != best) ++i;
    }
    return i;
  }
  int64_t best = 0;
  for (int64_t i = 1; i < size; ++i) {
    const T a = at[i * stride], b = at[best * stride];
    const bool better = MAX ? a > b : a < b;
    if (better || (last && a == b) || (a != a && b == b)) best = i;
  }
  return best;
}

constexpr int64_t kTogether = 32;

// The same for neighbouring columns.
template <bool MAX, class T>
void best_of_columns(const T* at, int64_t size, int64_t stride, bool last, int64_t* y) {
  T top[kTogether];
  int32_t index[kTogether] = {};
  std::memcpy(top, at, sizeof top);
  for (int64_t i = 1; i < size; ++i) {
    const T* row = at + i * stride;
    const auto place = static_cast<int32_t>(i);
    for (int64_t k = 0; k < kTogether; ++k) {
      const T a = row[k], b = top[k];
      const bool better = (MAX ? a > b : a < b) | (last & (a == b)) | ((a != a) & (b == b));
      top[k] = better ? a : b;
      index[k] = better ? place : index[k];
    }
  }
  for (int64_t k = 0; k < kTogether; ++k) y[k] = index[k];
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
    const int64_t grain = ceil_div(16384 / greater<int64_t>(split.size, 1) + 1, kTogether) * kTogether;
    c.parallel(split.outer * split.inner, grain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end;) {
        const T* at = x + e / split.inner * split.size * split.inner + e % split.inner;
        if (split.inner - e % split.inner >= kTogether && end - e >= kTogether && split.size <= INT32_MAX) {
          best_of_columns<MAX>(at, split.size, split.inner, last, y + e);
          e += kTogether;
        } else {
          y[e++] = best_of<MAX>(at, split.size, split.inner, last);
        }
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- TopK
constexpr int64_t kTopArrays = 3;  // of a row, in 64-bit words: two of the sort, and a column as a row

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
  c.scratch_bytes = 8 * kTopArrays * scratch_floats(x[axis]) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

// Numbers in whose order values of up to 32 bits stand; equal values (zeros of both signs) have equal ones,
// and NaN the greatest.
template <class T>
uint32_t rank_of(T x) {
  if constexpr (std::is_same_v<T, float>) {
    if (x != x) return UINT32_MAX;
    uint32_t bits;
    x = x == 0 ? 0 : x;
    std::memcpy(&bits, &x, 4);
    return bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
  }
  return static_cast<uint32_t>(static_cast<int64_t>(x) - (std::is_signed_v<T> ? INT32_MIN : 0));
}

// Sorts by the upper half of each number, from the lowest byte up; equal ones stay in order. Returns where
// the result lies.
uint64_t* sort_by_bytes(uint64_t* numbers, uint64_t* other, int64_t n) {
  int64_t counts[4][256] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int b = 0; b < 4; ++b) ++counts[b][numbers[i] >> (32 + 8 * b) & 255];
  for (int b = 0; b < 4; ++b) {
    int64_t* places = counts[b];
    if (n > 0 && places[numbers[0] >> (32 + 8 * b) & 255] == n) continue;
    for (int64_t value = 0, place = 0; value < 256; ++value) {
      const int64_t here = places[value];
      places[value] = place;
      place += here;
    }
    for (int64_t i = 0; i < n; ++i) other[places[numbers[i] >> (32 + 8 * b) & 255]++] = numbers[i];
    std::swap(numbers, other);
  }
  return numbers;
}

// Keeps at least the k least numbers, in order; those whose first twelve bits are too great go.
int64_t sift(uint64_t* numbers, int64_t n, int64_t k) {
  int32_t counts[4096] = {};
  for (int64_t i = 0; i < n; ++i) ++counts[numbers[i] >> 52];
  uint64_t limit = 0;
  for (int64_t seen = counts[0]; seen < k; seen += counts[limit]) ++limit;
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    numbers[kept] = numbers[i];
    kept += numbers[i] >> 52 <= limit;
  }
  return kept;
}

constexpr int64_t kHeap = 48;  // most elements that a heap is the faster way to

// The k first of a row of values of up to 32 bits: their numbers and indices.
template <class T>
const uint64_t* first_sorted(const T* at, int64_t size, int64_t k, bool largest, uint64_t* numbers,
                             uint64_t* other) {
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t rank = largest ? ~rank_of(at[i]) : rank_of(at[i]);
    numbers[i] = static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(i);
  }
  return sort_by_bytes(numbers, other, k < size ? sift(numbers, size, k) : size);
}

// The k first of a row by a heap of the best so far, the worst of them on top.
template <class T>
void first_by_heap(const T* at, int64_t size, int64_t k, bool largest, uint64_t* order) {
  const auto before = [&](uint64_t i, uint64_t j) {
    const T a = at[i], b = at[j];
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return largest ? a_nan : b_nan;
    if (a != b && !a_nan) return largest ? a > b : a < b;
    return i < j;
  };
  for (int64_t i = 0; i < k; ++i) order[i] = static_cast<uint64_t>(i);
  std::make_heap(order, order + k, before);
  for (int64_t i = k; k > 0 && i < size;) {  // most elements fail against the worst value alone
    const T limit = at[order[0]];
    i = largest ? skip(at, i, size, [limit](const auto& part) { return ~(part <= limit); })
                : skip(at, i, size, [limit](const auto& part) { return ~(part >= limit); });
    for (const int64_t end = lesser<int64_t>(size, i + 64 / static_cast<int64_t>(sizeof(T))); i < end; ++i) {
      const T worst = at[order[0]];
      if (largest ? at[i] <= worst : at[i] >= worst) continue;
      if (!before(static_cast<uint64_t>(i), order[0])) continue;
      std::pop_heap(order, order + k, before);
      order[k - 1] = static_cast<uint64_t>(i);
      std::push_heap(order, order + k, before);
    }
  }
  std::sort_heap(order, order + k, before);
}

// Equal values keep the order of their indices; NaN counts as the greatest value.
Status topk_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const int axis = axis_of(c.attributes->get_int("axis", -1), shape.rank);
  const AxisSplit split(shape, axis);
  const bool largest = c.attributes->get_int("largest", 1) != 0;
  const Tensor& any = c.outputs[0].present() ? c.outputs[0] : c.outputs[1];
  const int64_t k = any.shape[axis];
  uint64_t* scratch = static_cast<uint64_t*>(c.scratch);
  with_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* values = c.outputs[0].present() ? c.outputs[0].as<T>() : nullptr;
    int64_t* indices = c.n_outputs > 1 && c.outputs[1].present() ? c.outputs[1].as<int64_t>() : nullptr;
    for_units(c, split.outer * split.inner, [&](int64_t slot, int64_t e) {
      uint64_t* numbers = scratch + slot * kTopArrays * scratch_floats(split.size);
      uint64_t *other = numbers + scratch_floats(split.size), *column = other + scratch_floats(split.size);
      const int64_t outer = e / split.inner, inner = e % split.inner;
      const T* at = x + outer * split.size * split.inner + inner;
      if (split.inner > 1) {
        T* row = reinterpret_cast<T*>(column);
        for (int64_t i = 0; i < split.size; ++i) row[i] = at[i * split.inner];
        at = row;
      }
      const uint64_t* order = numbers;
      if (sizeof(T) > 4 || k <= kHeap || split.size > INT32_MAX) {
        first_by_heap(at, split.size, k, largest, numbers);
      } else if constexpr (sizeof(T) <= 4) {
        order = first_sorted(at, split.size, k, largest, numbers, other);
      }
      for (int64_t i = 0; i < k; ++i) {
        const int64_t to = (outer * k + i) * split.inner + inner;
        const auto from = static_cast<int64_t>(order[i] & (split.size > INT32_MAX ? UINT64_MAX : UINT32_MAX));
        if (values != nullptr) values[to] = at[from];
        if (indices != nullptr) indices[to] = from;
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
        if (split.inner == 1)
          std::memset(y + first, 0, static_cast<size_t>(split.size) * sizeof(T));
        else
          for (int64_t i = 0; i < split.size; ++i) y[first + i * split.inner] = T(0);
        y[first + best * split.inner] = T(1);
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
