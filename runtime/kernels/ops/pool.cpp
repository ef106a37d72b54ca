// pool.cpp: MaxPool, AveragePool and LpPool on plain f32 and f64 tensors of one to three dimensions (MaxPool
// of bytes too), and the global pools on f32.
#include <cmath>
#include <limits>

#include "kernels/move.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

enum class Mode { kMax, kAverage, kLp };

Status bad_pool(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "a pool takes plain X [N, C, ...] of its dtypes and a window that fits it");
}

template <Mode MODE>
Status pool_infer(InferContext& c) {
  const Tensor& x = c.inputs[0];
  if (Status wrong = check_outputs(c, x.dtype, DType::kI64)) return wrong;
  Window w;
  const bool bytes = MODE == Mode::kMax && (x.dtype == DType::kU8 || x.dtype == DType::kI8);
  if ((!is_real(x.dtype) && !bytes) || !is_plain(x) || x.shape.rank < 3 ||
      !read_window(*c.attributes, x.shape, nullptr, &w))
    return bad_pool(c);
  for (int k = 0; k < c.n_outputs; ++k) {
    c.outputs[k].shape = x.shape;
    for (int i = 0; i < w.rank; ++i) c.outputs[k].shape.dims[2 + i] = w.out[3 - w.rank + i];
  }
  if (MODE == Mode::kAverage) c.scratch_bytes = 8 * w.out[2];
  return OPFORGE_STATUS_OK;
}

// Index of an element as MaxPool's second output counts it.
struct Counting {
  bool by_column;  // storage_order = 1
  int64_t operator()(const Window& w, int64_t plane, int64_t at) const {
    const int64_t x = at % w.in[2], y = at / w.in[2] % w.in[1], z = at / w.in[2] / w.in[1];
    return plane * w.in_size() + (by_column ? (x * w.in[1] + y) * w.in[0] + z : at);
  }
};

// The value of a window without elements.
template <class T>
constexpr T least() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::lowest();
}

// Calls f(offset) for the elements of a window that lie in the plane.
template <class F>
void each_tap(const Window& w, const Span& sz, const Span& sy, const Span& sx, F&& f) {
  for (int64_t kz = sz.lo; kz < sz.hi; ++kz)
    for (int64_t ky = sy.lo; ky < sy.hi; ++ky) {
      const int64_t row =
          ((sz.at + kz * w.dilation[0]) * w.in[1] + sy.at + ky * w.dilation[1]) * w.in[2] + sx.at;
      for (int64_t kx = sx.lo; kx < sx.hi; ++kx) f(row + kx * w.dilation[2]);
    }
}

// f(output, input) over one row; the usual steps are constants, so that the loop becomes vectors.
template <class T, class F>
void along(T* to, const T* from, int64_t n, int64_t step, F&& f) {
  if (step == 1) {
    for (int64_t k = 0; k < n; ++k) to[k] = f(to[k], from[k]);
  } else if (step == 2) {
    for (int64_t k = 0; k < n; ++k) to[k] = f(to[k], from[2 * k]);
  } else {
    for (int64_t k = 0; k < n; ++k) to[k] = f(to[k], from[step * k]);
  }
}

// A row of outputs, one tap after the other: each output meets its elements in their order.
template <class T, class F>
void pool_row(const Window& w, const T* plane, T* to, const Span& sz, const Span& sy, F&& f) {
  for (int64_t kz = sz.lo; kz < sz.hi; ++kz)
    for (int64_t ky = sy.lo; ky < sy.hi; ++ky) {
      const T* row = plane + ((sz.at + kz * w.dilation[0]) * w.in[1] + sy.at + ky * w.dilation[1]) * w.in[2];
      const RowTaps taps(w);
      for (int64_t kx = taps.begin; kx < taps.end; ++kx) {
        const RowTap tap(w, kx);
        along(to + tap.begin, row + tap.from, tap.end - tap.begin, w.stride[2], f);
      }
    }
}

// Outputs [begin, end) of a row whose windows lie within the image across.
struct Inner {
  int64_t begin, end;
  explicit Inner(const Window& w) : begin(lesser(w.out[2], ceil_div(w.before[2], w.stride[2]))), end(begin) {
    const int64_t room = w.in[2] + w.before[2] - (w.kernel[2] - 1) * w.dilation[2] - 1;
    if (room >= 0) end = greater(begin, lesser(w.out[2], room / w.stride[2] + 1));
  }
};

// A row of f32 outputs, the inner ones by vectors.
template <Mode MODE>
void pool_floats(const Window& w, const float* plane, float* to, const Span& sz, const Span& sy,
                 const Inner& inner, bool padding) {
  const double counted = static_cast<double>(sz.counted) * static_cast<double>(sy.counted);
  PoolRowArgs r{};
  const int64_t first[3] = {sz.at + sz.lo * w.dilation[0], sy.at + sy.lo * w.dilation[1],
                            inner.begin * w.stride[2] - w.before[2]};
  r.x = plane + (first[0] * w.in[1] + first[1]) * w.in[2] + first[2];
  r.y = to + inner.begin, r.n = inner.end - inner.begin, r.stride = w.stride[2];
  r.taps[0] = sz.hi - sz.lo, r.taps[1] = sy.hi - sy.lo, r.taps[2] = w.kernel[2];
  r.steps[0] = w.dilation[0] * w.in[1] * w.in[2], r.steps[1] = w.dilation[1] * w.in[2];
  r.steps[2] = w.dilation[2];
  r.counted = static_cast<float>(counted * static_cast<double>(w.kernel[2]));
  r.maximum = MODE == Mode::kMax;
  isa_table().pool_row(r);
  const auto border = [&](int64_t ox) {
    const Span sx(w, 2, ox, padding);
    float v = MODE == Mode::kMax ? least<float>() : 0.0f;
    each_tap(w, sz, sy, sx, [&](int64_t at) {
      const float t = plane[at];
      v = MODE != Mode::kMax ? v + t : ((t > v) | (t != t)) ? t : v;
    });
    to[ox] = MODE == Mode::kMax ? v : v / static_cast<float>(counted * static_cast<double>(sx.counted));
  };
  for (int64_t ox = 0; ox < inner.begin; ++ox) border(ox);
  for (int64_t ox = inner.end; ox < w.out[2]; ++ox) border(ox);
}

template <Mode MODE, class T>
void pool_plane(const Window& w, const T* from, T* out, bool padding, double p, const double* across) {
  const Inner inner(w);
  for (int64_t oz = 0; oz < w.out[0]; ++oz) {
    const Span sz(w, 0, oz, padding);
    for (int64_t oy = 0; oy < w.out[1]; ++oy, out += w.out[2]) {
      const Span sy(w, 1, oy, padding);
      if constexpr (std::is_same_v<T, float> && MODE != Mode::kLp) {
        if (inner.end - inner.begin >= 4 && sz.lo < sz.hi && sy.lo < sy.hi) {
          pool_floats<MODE>(w, from, out, sz, sy, inner, padding);
          continue;
        }
      }
      const int64_t n = w.out[2];
      for (int64_t k = 0; k < n; ++k) out[k] = MODE == Mode::kMax ? least<T>() : T(0);
      if constexpr (MODE == Mode::kMax)
        pool_row(w, from, out, sz, sy, [](T v, T t) { return ((t > v) | (t != t)) ? t : v; });
      if constexpr (MODE == Mode::kAverage) {
        pool_row(w, from, out, sz, sy, [](T v, T t) { return v + t; });
        const double counted = static_cast<double>(sz.counted) * static_cast<double>(sy.counted);
        for (int64_t k = 0; k < n; ++k) out[k] = out[k] / static_cast<T>(counted * across[k]);
      }
      if constexpr (MODE == Mode::kLp) {
        if (p == 2)
          pool_row(w, from, out, sz, sy, [](T v, T t) { return v + t * t; });
        else if (p == 1)
          pool_row(w, from, out, sz, sy, [](T v, T t) { return v + std::fabs(t); });
        else
          pool_row(w, from, out, sz, sy,
                   [p](T v, T t) { return v + static_cast<T>(std::pow(std::fabs(t), p)); });
        for (int64_t k = 0; k < n && p != 1; ++k)
          out[k] = p == 2 ? std::sqrt(out[k]) : static_cast<T>(std::pow(out[k], 1 / p));
      }
    }
  }
}

template <Mode MODE, class T>
void pool(RunContext& c, const Window& w) {
  const bool padding = c.attributes->get_int("count_include_pad", 0) != 0;
  const double p = static_cast<double>(c.attributes->get_int("p", 2));
  const T* in = c.inputs[0].as<T>();
  T* out = c.outputs[0].as<T>();
  double* across = static_cast<double*>(c.scratch);
  for (int64_t ox = 0; MODE == Mode::kAverage && ox < w.out[2]; ++ox)
    across[ox] = static_cast<double>(Span(w, 2, ox, padding).counted);
  for_units(c, c.inputs[0].shape[0] * c.inputs[0].shape[1], [&](int64_t, int64_t plane) {
    pool_plane<MODE>(w, in + plane * w.in_size(), out + plane * w.out_size(), padding, p, across);
  });
}

// MaxPool whose second output tells where each maximum lies.
template <class T>
void max_with_indices(RunContext& c, const Window& w) {
  const Counting counting{c.attributes->get_int("storage_order", 0) != 0};
  int64_t* indices = c.outputs[1].as<int64_t>();
  const T* in = c.inputs[0].as<T>();
  T* out = wanted(c, 0) ? c.outputs[0].as<T>() : nullptr;
  for_units(c, c.inputs[0].shape[0] * c.inputs[0].shape[1], [&](int64_t, int64_t plane) {
    const T* from = in + plane * w.in_size();
    int64_t o = plane * w.out_size();
    for (int64_t oz = 0; oz < w.out[0]; ++oz) {
      const Span sz(w, 0, oz, false);
      for (int64_t oy = 0; oy < w.out[1]; ++oy) {
        const Span sy(w, 1, oy, false);
        for (int64_t ox = 0; ox < w.out[2]; ++ox, ++o) {
          const Span sx(w, 2, ox, false);
          T v = least<T>();
          int64_t best = -1;
          each_tap(w, sz, sy, sx, [&](int64_t at) {  // selections: a branch would be foretold wrongly
            const T t = from[at];
            const bool better = (t > v) | (best < 0) | (t != t);
            v = better ? t : v;
            best = better ? at : best;
          });
          if (out != nullptr) out[o] = v;
          indices[o] = best < 0 ? best : counting(w, plane, best);
        }
      }
    }
  });
}

template <Mode MODE>
Status pool_run(RunContext& c) {
  Window w;
  const DType dtype = c.inputs[0].dtype;
  read_window(*c.attributes, c.inputs[0].shape, nullptr, &w);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const auto go = [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (MODE == Mode::kMax) {
      if (wanted(c, 1)) return max_with_indices<T>(c, w);
    }
    pool<MODE, T>(c, w);
  };
  with_real(dtype, go);
  if constexpr (MODE == Mode::kMax) {
    if (dtype == DType::kU8) go(static_cast<uint8_t*>(nullptr));
    if (dtype == DType::kI8) go(static_cast<int8_t*>(nullptr));
  }
  return OPFORGE_STATUS_OK;
}

Status global_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const Tensor& x = c.inputs[0];
  if (!is_f32(x) || !is_plain(x) || x.shape.rank < 2) return bad_pool(c);
  c.outputs[0].shape = x.shape;
  for (int i = 2; i < x.shape.rank; ++i) c.outputs[0].shape.dims[i] = 1;
  return OPFORGE_STATUS_OK;
}

template <Reduction KIND>
Status global_run(RunContext& c) {
  const Shape& x = c.inputs[0].shape;
  int64_t width = 1;
  for (int i = 2; i < x.rank; ++i) width *= x[i];
  const float* in = c.inputs[0].as<float>();
  float* out = c.outputs[0].as<float>();
  c.parallel(x[0] * x[1], greater<int64_t>(1, 16384 / greater<int64_t>(width, 1)),
             [&](int64_t begin, int64_t end) {
               isa_table().reduce_rows(KIND, in + begin * width, out + begin, end - begin, width);
             });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "MaxPool", 1, kNewest, nullptr, pool_infer<Mode::kMax>, pool_run<Mode::kMax>, 0, 1, 0, 2},
    {"", "AveragePool", 1, kNewest, nullptr, pool_infer<Mode::kAverage>, pool_run<Mode::kAverage>},
    {"", "LpPool", 2, kNewest, nullptr, pool_infer<Mode::kLp>, pool_run<Mode::kLp>},
    {"", "GlobalAveragePool", 1, kNewest, nullptr, global_infer, global_run<Reduction::kMean>},
    {"", "GlobalMaxPool", 1, kNewest, nullptr, global_infer, global_run<Reduction::kMax>},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(pool, opforge::kRows);
