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

// Taps [lo, hi) of one dimension that lie in the image; `counted`: taps that an average over padding counts.
struct Span {
  int64_t at, lo, hi, counted;
  Span(const Window& w, int d, int64_t out, bool padding) : at(out * w.stride[d] - w.before[d]) {
    // Taps whose index is below `limit`; kernels of files may be as large as 2^31.
    const auto below = [&](int64_t limit) {
      return limit <= at ? int64_t{0} : lesser(w.kernel[d], ceil_div(limit - at, w.dilation[d]));
    };
    lo = below(0);
    hi = greater(lo, below(w.in[d]));
    counted = padding ? greater<int64_t>(1, below(w.in[d] + w.after[d])) : hi - lo;
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

template <Mode MODE, class T>
void pool(RunContext& c, const Window& w) {
  const Tensor& x = c.inputs[0];
  const bool padding = c.attributes->get_int("count_include_pad", 0) != 0;
  const double p = static_cast<double>(c.attributes->get_int("p", 2));
  const Counting counting{c.attributes->get_int("storage_order", 0) != 0};
  int64_t* indices = MODE == Mode::kMax && wanted(c, 1) ? c.outputs[1].as<int64_t>() : nullptr;
  const T* in = x.as<T>();
  T* out = c.outputs[0].as<T>();
  for_units(c, x.shape[0] * x.shape[1], [&](int64_t, int64_t plane) {
    const T* from = in + plane * w.in_size();
    int64_t o = plane * w.out_size();
    for (int64_t oz = 0; oz < w.out[0]; ++oz) {
      const Span sz(w, 0, oz, padding);
      for (int64_t oy = 0; oy < w.out[1]; ++oy) {
        const Span sy(w, 1, oy, padding);
        for (int64_t ox = 0; ox < w.out[2]; ++ox, ++o) {
          const Span sx(w, 2, ox, padding);
          T v = MODE == Mode::kMax ? least<T>() : T(0);
          int64_t best = -1;
          each_tap(w, sz, sy, sx, [&](int64_t at) {
            const T t = from[at];
            if constexpr (MODE == Mode::kAverage) v += t;
            if constexpr (MODE == Mode::kLp)
              v += p == 2 ? t * t : p == 1 ? std::fabs(t) : static_cast<T>(std::pow(std::fabs(t), p));
            if constexpr (MODE == Mode::kMax) {  // selections: a branch would be foretold wrongly
              const bool better = (t > v) | (best < 0) | (t != t);
              v = better ? t : v;
              best = better ? at : best;
            }
          });
          if constexpr (MODE == Mode::kAverage)
            v = v / static_cast<T>(static_cast<double>(sz.counted) * static_cast<double>(sy.counted) *
                                   static_cast<double>(sx.counted));
          if constexpr (MODE == Mode::kLp)
            v = p == 2 ? std::sqrt(v) : p == 1 ? v : static_cast<T>(std::pow(v, 1 / p));
          out[o] = v;
          if (indices != nullptr) indices[o] = best < 0 ? best : counting(w, plane, best);
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
  with_real(dtype, [&](auto* type) { pool<MODE, std::remove_pointer_t<decltype(type)>>(c, w); });
  if constexpr (MODE == Mode::kMax) {
    if (dtype == DType::kU8) pool<MODE, uint8_t>(c, w);
    if (dtype == DType::kI8) pool<MODE, int8_t>(c, w);
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
    {"", "MaxPool", 1, kNewest, nullptr, pool_infer<Mode::kMax>, pool_run<Mode::kMax>},
    {"", "AveragePool", 1, kNewest, nullptr, pool_infer<Mode::kAverage>, pool_run<Mode::kAverage>},
    {"", "LpPool", 2, kNewest, nullptr, pool_infer<Mode::kLp>, pool_run<Mode::kLp>},
    {"", "GlobalAveragePool", 1, kNewest, nullptr, global_infer, global_run<Reduction::kMean>},
    {"", "GlobalMaxPool", 1, kNewest, nullptr, global_infer, global_run<Reduction::kMax>},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(pool, opforge::kRows);
