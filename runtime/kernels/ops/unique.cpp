// unique.cpp: Unique, over elements or over slices along an axis. Elements become 64-bit keys in the order of
// the numbers (all NaN equal and greatest, zeros of both signs equal), which one sort serves.
#include <algorithm>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

struct Slices {
  int64_t count = 0, outer = 1, inner = 1;  // slice k holds elements [o][k][i]
  int axis = -1;                            // -1: over elements
  int64_t width() const { return outer * inner; }
};

bool slices_of(const Attributes& attributes, const Shape& x, Slices* s) {
  s->count = x.elements();
  if (!attributes.has("axis")) return true;
  s->axis = axis_of(attributes.get_int("axis", 0), x.rank);
  if (s->axis < 0) return false;
  const AxisSplit split(x, s->axis);
  s->count = split.size, s->outer = split.outer, s->inner = split.inner;
  return true;
}

Status unique_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype, DType::kI64)) return wrong;
  const Tensor& x = c.inputs[0];
  Slices s;
  if (!slices_of(*c.attributes, x.shape, &s))
    return bad_axis(c, c.attributes->get_int("axis", 0), x.shape.rank);
  if ((!has_type(x.dtype) && x.dtype != DType::kBool) || !is_plain(x)) return no_type(c);
  for (int k = 0; k < c.n_outputs; ++k) {
    c.outputs[k].shape.rank = 1;
    c.outputs[k].shape.dims[0] = s.count;
  }
  if (s.axis >= 0) c.outputs[0].shape = x.shape;
  c.scratch_bytes = 8 * (s.count * s.width() + 4 * s.count) + 64;
  return OPFORGE_STATUS_OK;
}

template <class T>
int64_t key_of(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return INT64_MAX;
    const double wide = x == 0 ? 0.0 : static_cast<double>(x);
    int64_t bits;
    std::memcpy(&bits, &wide, 8);
    return bits < 0 ? INT64_MIN - bits : bits;  // negative numbers fall as their bits rise
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return static_cast<int64_t>(x ^ (uint64_t{1} << 63));
  } else {
    return static_cast<int64_t>(x);
  }
}

void make_keys(const Tensor& x, const Slices& s, int64_t* keys) {
  with_type(x.dtype == DType::kBool ? DType::kU8 : x.dtype, [&](auto* type) {
    const auto* from = x.as<std::remove_pointer_t<decltype(type)>>();
    for (int64_t k = 0; k < s.count; ++k)
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t i = 0; i < s.inner; ++i) *keys++ = key_of(from[(o * s.count + k) * s.inner + i]);
  });
}

Status unique_run(RunContext& c) {
  const Tensor& x = c.inputs[0];
  Slices s;
  slices_of(*c.attributes, x.shape, &s);
  const int64_t n = s.count, width = s.width(), element = element_bytes(x.dtype);
  auto* keys = static_cast<int64_t*>(c.scratch);
  int64_t *order = keys + n * width, *group = order + n, *first = group + n, *count = first + n;
  make_keys(x, s, keys);
  const auto compare = [&](int64_t a, int64_t b) {
    const int64_t *p = keys + a * width, *q = keys + b * width;
    for (int64_t i = 0; i < width; ++i)
      if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
    return 0;
  };
  for (int64_t k = 0; k < n; ++k) order[k] = k;
  std::sort(order, order + n, [&](int64_t a, int64_t b) {
    const int r = compare(a, b);
    return r != 0 ? r < 0 : a < b;
  });
  // Groups of equal slices in ascending order; the first member of each is its first occurrence.
  int64_t groups = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (k == 0 || compare(order[k - 1], order[k]) != 0) {
      first[groups] = order[k];
      count[groups++] = 0;
    }
    group[order[k]] = groups - 1;
    ++count[groups - 1];
  }
  // `order` becomes the groups in the order of the output, then their places there.
  for (int64_t g = 0; g < groups; ++g) order[g] = g;
  if (c.attributes->get_int("sorted", 1) == 0)
    std::sort(order, order + groups, [&](int64_t a, int64_t b) { return first[a] < first[b]; });
  for (int k = 0; k < c.n_outputs; ++k) c.outputs[k].shape.dims[k == 0 && s.axis >= 0 ? s.axis : 0] = groups;
  if (wanted(c, 2)) c.outputs[2].shape.dims[0] = n;
  const auto* from = x.as<uint8_t>();
  const int64_t run = s.inner * element;
  for (int64_t at = 0; at < groups; ++at) {
    const int64_t g = order[at];
    for (int64_t o = 0; wanted(c, 0) && o < s.outer && run != 0; ++o)
      std::memcpy(c.outputs[0].as<uint8_t>() + (o * groups + at) * run, from + (o * n + first[g]) * run,
                  static_cast<size_t>(run));
    if (wanted(c, 1)) c.outputs[1].as<int64_t>()[at] = first[g];
    if (wanted(c, 3)) c.outputs[3].as<int64_t>()[at] = count[g];
  }
  if (!wanted(c, 2)) return OPFORGE_STATUS_OK;
  for (int64_t at = 0; at < groups; ++at) first[order[at]] = at;
  for (int64_t k = 0; k < n; ++k) c.outputs[2].as<int64_t>()[k] = first[group[k]];
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Unique", 11, kNewest, nullptr, unique_infer, unique_run, kBounded | kAnyOutput, 1, 0, 4},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(unique, opforge::kRows);
