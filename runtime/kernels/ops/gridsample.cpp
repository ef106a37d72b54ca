// gridsample.cpp: GridSample over one to three spatial dimensions. The taps of a few neighbouring outputs are
// found once and serve all channels.
#include <cmath>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr int64_t kPoints = 32;  // outputs whose taps are kept together

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

struct GridRule {
  Mode mode = Mode::kLinear;
  Padding padding = Padding::kZeros;
  bool align = false;
};

// Names of opset 16 and of opset 20.
bool read_rule(const Attributes& attributes, GridRule* r) {
  const StringView mode = attributes.get_string("mode", "linear");
  const StringView padding = attributes.get_string("padding_mode", "zeros");
  r->align = attributes.get_int("align_corners", 0) != 0;
  if (equals(mode, "nearest"))
    r->mode = Mode::kNearest;
  else if (equals(mode, "cubic") || equals(mode, "bicubic"))
    r->mode = Mode::kCubic;
  else if (!equals(mode, "linear") && !equals(mode, "bilinear"))
    return false;
  if (equals(padding, "border"))
    r->padding = Padding::kBorder;
  else if (equals(padding, "reflection"))
    r->padding = Padding::kReflection;
  else if (!equals(padding, "zeros"))
    return false;
  return true;
}

Status grid_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Tensor &x = c.inputs[0], &grid = c.inputs[1];
  GridRule rule;
  if (!read_rule(*c.attributes, &rule))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "unknown mode or padding_mode of GridSample");
  if (!is_real(x.dtype) || !is_real(grid.dtype) || !is_plain(x) || !is_plain(grid)) return no_type(c);
  const int spatial = x.shape.rank - 2;
  if (spatial < 1 || spatial > 3)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "GridSample takes 1 to 3 spatial dimensions, not %d",
                  spatial);
  if (grid.shape.rank != x.shape.rank || grid.shape[0] != x.shape[0] || grid.shape[-1] != spatial)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the grid does not have the shape [N, ..., %d]",
                  spatial);
  Shape& y = c.outputs[0].shape;
  y = x.shape;
  bool empty = false, some = true;
  for (int k = 0; k < spatial; ++k) {
    y.dims[2 + k] = grid.shape[1 + k];
    empty = empty || x.shape[2 + k] == 0;
    some = some && y.dims[2 + k] != 0;
  }
  if (empty && some && rule.padding != Padding::kZeros)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "an empty image has no border");
  return OPFORGE_STATUS_OK;
}

template <class T>
T reflect(T v, T lo, T hi) {
  const T range = hi - lo;
  if (v >= lo && v <= hi) return v;
  if (!(range > 0)) return lo;
  const T beyond = v < lo ? lo - v : v - hi;
  const T turns = std::floor(beyond / range), rest = std::fmod(beyond, range);
  const bool from_low = (std::fmod(turns, T(2)) == 0) == (v < lo);
  return from_low ? lo + rest : hi - rest;
}

// Where a tap of index i lies in an axis of `size` elements; -1 = nowhere.
template <class T>
int64_t place(const GridRule& r, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (r.padding == Padding::kZeros) return -1;
  if (r.padding == Padding::kReflection) {
    const T edge = r.align ? T(0) : T(0.5);
    i = static_cast<int64_t>(reflect(static_cast<T>(i), -edge, static_cast<T>(size - 1) + edge));
  }
  return i < 0 ? 0 : i >= size ? size - 1 : i;
}

// Taps of one coordinate: indices and weights; returns how many.
template <class T>
int taps_of(const GridRule& r, T normalised, int64_t size, int64_t* index, T* weight) {
  const T n = static_cast<T>(size);
  T v = r.align ? (normalised + 1) / 2 * (n - 1) : ((normalised + 1) * n - 1) / 2;
  if (r.mode == Mode::kNearest) v = std::nearbyint(v);
  const T edge = r.align ? T(0) : T(0.5);
  if (r.padding == Padding::kBorder && (v < -edge || v > n - 1 + edge)) v = v < 0 ? T(0) : n - 1;
  if (r.padding == Padding::kReflection) v = reflect(v, -edge, n - 1 + edge);
  // Far outside all taps are padding; NaN counts as far below.
  if (!(v >= -4)) v = -4;
  if (v > n + 4) v = n + 4;
  const T low = std::floor(v), t = v - low;
  const auto first = static_cast<int64_t>(low);
  if (r.mode == Mode::kNearest) {
    index[0] = place<T>(r, first, size);
    weight[0] = 1;
    return 1;
  }
  if (r.mode == Mode::kLinear) {
    index[0] = place<T>(r, first, size), index[1] = place<T>(r, first + 1, size);
    weight[0] = 1 - t, weight[1] = t;
    return 2;
  }
  const T a = T(-0.75);
  const auto inner = [a](T d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto outer = [a](T d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  weight[0] = outer(t + 1), weight[1] = inner(t), weight[2] = inner(1 - t), weight[3] = outer(2 - t);
  for (int k = 0; k < 4; ++k) index[k] = place<T>(r, first - 1 + k, size);
  return 4;
}

// The taps of up to kPoints outputs: offset (or -1) and weight of each.
template <class T>
struct Taps {
  int64_t count = 1;
  int64_t offset[64][kPoints];
  T weight[64][kPoints];

  void set(const GridRule& rule, const int64_t* sizes, const T* at, int64_t point) {
    int64_t index[3][4];
    T weights[3][4];
    int n = 1;
    for (int d = 0; d < 3; ++d) {
      index[d][0] = 0, weights[d][0] = 1;
      if (sizes[d] >= 0) n = taps_of(rule, at[d], sizes[d], index[d], weights[d]);
    }
    const auto taps = [&](int d) { return sizes[d] >= 0 ? n : 1; };
    const int64_t height = sizes[1] >= 0 ? sizes[1] : 1;
    count = 0;
    for (int z = 0; z < taps(0); ++z)
      for (int y = 0; y < taps(1); ++y)
        for (int x = 0; x < taps(2); ++x, ++count) {
          const bool inside = index[0][z] >= 0 && index[1][y] >= 0 && index[2][x] >= 0;
          offset[count][point] = inside ? (index[0][z] * height + index[1][y]) * sizes[2] + index[2][x] : -1;
          weight[count][point] = weights[0][z] * weights[1][y] * weights[2][x];
        }
  }
};

template <class T, class G>
void sample(RunContext& c, const GridRule& rule) {
  const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
  const int spatial = x.rank - 2;
  int64_t sizes[3] = {-1, -1, -1}, in_size = 1, out_size = 1;  // -1: no such dimension
  for (int k = 0; k < spatial; ++k) {
    sizes[3 - spatial + k] = x.dims[2 + k];
    in_size *= x.dims[2 + k];
    out_size *= y.dims[2 + k];
  }
  const int64_t channels = x[1], pieces = ceil_div(out_size, kPoints);
  const T* image = c.inputs[0].as<T>();
  T* out = c.outputs[0].as<T>();
  const G* grid = c.inputs[1].as<G>();
  c.parallel(x[0] * pieces, grain_of(kPoints * (channels + 8)), [&](int64_t begin, int64_t end) {
    Taps<T> taps;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t batch = unit / pieces, first = unit % pieces * kPoints;
      const int64_t points = lesser(kPoints, out_size - first);
      for (int64_t p = 0; p < points; ++p) {
        const G* from = grid + (batch * out_size + first + p) * spatial;
        T at[3] = {};  // the grid's last number belongs to the first dimension
        for (int k = 0; k < spatial; ++k) at[2 - k] = static_cast<T>(from[k]);
        taps.set(rule, sizes, at, p);
      }
      bool inside[64];  // whether a tap lies in the image for all points
      for (int64_t t = 0; t < taps.count; ++t) {
        inside[t] = true;
        for (int64_t p = 0; p < points; ++p) inside[t] = inside[t] && taps.offset[t][p] >= 0;
      }
      for (int64_t k = 0; k < channels; ++k) {
        const T* plane = image + (batch * channels + k) * in_size;
        T* to = out + (batch * channels + k) * out_size + first;
        for (int64_t p = 0; p < points; ++p) to[p] = 0;
        for (int64_t t = 0; t < taps.count; ++t) {
          const int64_t* offset = taps.offset[t];
          const T* weight = taps.weight[t];
          if (inside[t])
            for (int64_t p = 0; p < points; ++p) to[p] += weight[p] * plane[offset[p]];
          else
            for (int64_t p = 0; p < points; ++p)
              if (offset[p] >= 0) to[p] += weight[p] * plane[offset[p]];
        }
      }
    }
  });
}

Status grid_run(RunContext& c) {
  GridRule rule;
  read_rule(*c.attributes, &rule);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const bool wide = c.inputs[1].dtype == DType::kF64;
  with_real(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (wide)
      sample<T, double>(c, rule);
    else
      sample<T, float>(c, rule);
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "GridSample", 16, kNewest, nullptr, grid_infer, grid_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(gridsample, opforge::kRows);
