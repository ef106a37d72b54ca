// softmax.h: one row of softmax, log-softmax, and rows scaled per column.
#pragma once

#include "kernels/isa/lanes.h"

namespace opforge {
namespace OPFORGE_ISA {

// y = exp(x - greatest) / sum over n elements, whose sum is returned; y may be x. Elements up to `padded`
// (below n rounded up to 16) become 0.
static inline float softmax_row(const float* x, float* y, int64_t n, int64_t padded, float greatest_of_x) {
  using V = Vec<kWidth>;
  const V top = splat<kWidth>(greatest_of_x);
  float total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = least(n, begin + kSumBlock);
    Lanes sum{};
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      const Lanes e = map(load16(x + i), [top](V a) { return vm::raw::exp(V(a - top)); });
      store16(y + i, e);
      sum = map(sum, e, [](V a, V b) { return V(a + b); });
    }
    if (i < end) {
      const Lanes e =
          map(load_some(x + i, end - i, -__builtin_inff()), [top](V a) { return vm::raw::exp(V(a - top)); });
      store_some(y + i, end - i, e);
      sum = map(sum, e, [](V a, V b) { return V(a + b); });
    }
    total += tree(sum, [](float a, float b) { return a + b; });
  }
  const float inverse = 1.0f / total;
  const V s = splat<kWidth>(inverse);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store16(y + i, map(load16(y + i), [s](V a) { return V(a * s); }));
  for (; i < n; ++i) y[i] *= inverse;
  for (; i < padded; ++i) y[i] = 0;
  return total;
}

static inline void softmax_row(const float* x, float* y, int64_t n, int64_t padded) {
  softmax_row(x, y, n, padded, greatest(x, n));
}

static inline void log_softmax_row(const float* x, float* y, int64_t n) {
  using V = Vec<kWidth>;
  const float top = greatest(x, n);
  const V t = splat<kWidth>(top);
  const float total = fold(
      x, n, 0.0f, [t](V a) { return vm::raw::exp(V(a - t)); }, [](V a, V b) { return V(a + b); },
      [](float a, float b) { return a + b; });
  const float shift = top + vm::raw::log(splat<4>(total))[0];
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - shift;
}

// y = each(x) * scale + bias; scale and bias may be null.
template <class Each>
static OPFORGE_INLINE void scaled(const float* x, float* y, int64_t n, Each&& each, const float* scale,
                                  const float* bias) {
  using V = Vec<kWidth>;
  const auto last = [](V a, V s, V b, bool has_scale, bool has_bias) {
    return has_scale && has_bias ? vfma<kWidth>(a, s, b) : has_scale ? V(a * s) : has_bias ? V(a + b) : a;
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const V s = scale != nullptr ? load<kWidth>(scale + i) : V{},
            b = bias != nullptr ? load<kWidth>(bias + i) : V{};
    store<kWidth>(y + i, last(each(load<kWidth>(x + i)), s, b, scale != nullptr, bias != nullptr));
  }
  if (i < n) {
    float t[3][kWidth] = {};
    for (int64_t k = 0; k < n - i; ++k) {
      t[0][k] = x[i + k];
      t[1][k] = scale != nullptr ? scale[i + k] : 0;
      t[2][k] = bias != nullptr ? bias[i + k] : 0;
    }
    const V v = last(each(load<kWidth>(t[0])), load<kWidth>(t[1]), load<kWidth>(t[2]), scale != nullptr,
                     bias != nullptr);
    store<kWidth>(t[0], v);
    for (int64_t k = 0; k < n - i; ++k) y[i + k] = t[0][k];
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
