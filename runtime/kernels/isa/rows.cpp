// rows.cpp: softmax, normalisations and reductions over rows and columns.
#include "kernels/isa/functions.h"
#include "kernels/isa/lanes.h"
#include "kernels/isa/softmax.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

using V = Vec<kWidth>;
OPFORGE_INLINE V identity(V x) { return x; }
OPFORGE_INLINE V magnitude(V x) { return vm::raw::abs(x); }
OPFORGE_INLINE V square(V x) { return x * x; }

float log_of(float x) { return vm::raw::log(splat<4>(x))[0]; }

float finished(Reduction kind, float total, int64_t n) {
  switch (kind) {
    case Reduction::kMean:
      return total / float(n);
    case Reduction::kL2:
      return __builtin_sqrtf(total);
    case Reduction::kLogSum:
      return log_of(total);
    default:
      return total;
  }
}

float reduce_row(Reduction kind, const float* x, int64_t n) {
  switch (kind) {
    case Reduction::kMax:
      return greatest(x, n);
    case Reduction::kMin:
      return fold(
          x, n, __builtin_inff(), identity, [](V a, V b) { return vmin<kWidth>(a, b); },
          [](float a, float b) { return a < b ? a : b; });
    case Reduction::kProd:
      return fold(
          x, n, 1.0f, identity, [](V a, V b) { return a * b; }, [](float a, float b) { return a * b; });
    case Reduction::kSumSquare:
    case Reduction::kL2:
      return sum_of(x, n, square);
    case Reduction::kL1:
      return sum_of(x, n, magnitude);
    case Reduction::kLogSumExp: {
      const float top = greatest(x, n);
      const float shift = top == top && top - top == 0.0f ? top : 0.0f;
      const V s = splat<kWidth>(shift);
      return log_of(fold(
                 x, n, 0.0f, [s](V a) { return vm::raw::exp(V(a - s)); }, [](V a, V b) { return a + b; },
                 [](float a, float b) { return a + b; })) +
             shift;
    }
    default:
      return sum_of(x, n, identity);
  }
}

// One step of a column reduction.
template <int L>
OPFORGE_INLINE Vec<L> step(Reduction kind, Vec<L> sum, Vec<L> x) {
  switch (kind) {
    case Reduction::kMax:
      return vmax<L>(sum, x);
    case Reduction::kMin:
      return vmin<L>(sum, x);
    case Reduction::kProd:
      return sum * x;
    case Reduction::kSumSquare:
    case Reduction::kL2:
      return sum + x * x;
    case Reduction::kL1:
      return sum + vm::raw::abs(x);
    default:
      return sum + x;
  }
}

float neutral_of(Reduction kind) {
  return kind == Reduction::kMax    ? -__builtin_inff()
         : kind == Reduction::kMin  ? __builtin_inff()
         : kind == Reduction::kProd ? 1.0f
                                    : 0.0f;
}

// 16 columns, of which the first n exist: rows in blocks of 64, the blocks' sums in order.
template <class Load>
void columns16(Reduction kind, float* y, int64_t width, int64_t n, Load&& row) {
  const bool log_sum_exp = kind == Reduction::kLogSumExp;
  const float neutral = neutral_of(log_sum_exp ? Reduction::kMax : kind);
  Lanes total = lanes_of(neutral), shift{};
  if (log_sum_exp) {
    for (int64_t w = 0; w < width; ++w)
      total = map(total, row(w), [](V a, V b) { return vmax<kWidth>(a, b); });
    shift = map(total, [](V a) { return vm::raw::select(V(a - a) == V{}, a, V{}); });
    total = Lanes{};
  }
  for (int64_t begin = 0; begin < width; begin += 64) {
    Lanes sum = lanes_of(log_sum_exp ? 0.0f : neutral);
    for (int64_t w = begin; w < least(width, begin + 64); ++w) {
      const Lanes x = row(w);
      OPFORGE_UNROLL
      for (int i = 0; i < kParts; ++i)
        sum.v[i] = log_sum_exp ? sum.v[i] + vm::raw::exp(V(x.v[i] - shift.v[i]))
                               : step<kWidth>(kind, sum.v[i], x.v[i]);
    }
    OPFORGE_UNROLL
    for (int i = 0; i < kParts; ++i) {
      if (begin == 0)
        total.v[i] = sum.v[i];
      else if (kind == Reduction::kMax || kind == Reduction::kMin || kind == Reduction::kProd)
        total.v[i] = step<kWidth>(kind, total.v[i], sum.v[i]);
      else
        total.v[i] = total.v[i] + sum.v[i];
    }
  }
  if (log_sum_exp) total = map(total, shift, [](V a, V s) { return V(vm::raw::log(a) + s); });
  float t[16];
  store16(t, total);
  for (int64_t i = 0; i < n; ++i) y[i] = finished(kind, t[i], width);
}

}  // namespace

void softmax(const float* x, float* y, int64_t rows, int64_t width, int32_t log) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    if (log)
      log_softmax_row(x, y, width);
    else
      softmax_row(x, y, width, width);
  }
}

void layer_norm(const float* x, const float* scale, const float* bias, float* y, float* mean, float* inv_std,
                int64_t rows, int64_t width, float epsilon) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float m = sum_of(x, width, identity) / float(width);
    const V mv = splat<kWidth>(m);
    const float variance = sum_of(x, width, [mv](V a) { return V((a - mv) * (a - mv)); }) / float(width);
    const float inverse = 1.0f / __builtin_sqrtf(variance + epsilon);
    const V iv = splat<kWidth>(inverse);
    if (mean != nullptr) mean[r] = m;
    if (inv_std != nullptr) inv_std[r] = inverse;
    const auto normal = [mv, iv](V a) { return V((a - mv) * iv); };
    scaled(x, y, width, normal, scale, bias);
  }
}

void rms_norm(const float* x, const float* scale, float* y, int64_t rows, int64_t width, float epsilon) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float mean = sum_of(x, width, square) / float(width);
    const V iv = splat<kWidth>(1.0f / __builtin_sqrtf(mean + epsilon));
    scaled(x, y, width, [iv](V a) { return V(a * iv); }, scale, nullptr);
  }
}

void reduce_rows(Reduction kind, const float* x, float* y, int64_t rows, int64_t width) {
  // Rows of few elements go side by side: by itself each would be a load of some, and a sum across the lanes.
  constexpr int64_t kFew = 8;
  for (int64_t r = 0; width > 0 && width <= kFew && r < rows; r += 16) {
    const int64_t n = least(16, rows - r);
    const float* at = x + r * width;
    columns16(kind, y + r, width, n, [at, width, n](int64_t w) {
      float t[16] = {};
      for (int64_t i = 0; i < n; ++i) t[i] = at[i * width + w];
      return load16(t);
    });
  }
  if (width > 0 && width <= kFew) return;
  for (int64_t r = 0; r < rows; ++r) y[r] = finished(kind, reduce_row(kind, x + r * width, width), width);
}

void reduce_middle(Reduction kind, const float* x, float* y, int64_t width, int64_t inner, int64_t begin,
                   int64_t end) {
  for (int64_t e = begin; e < end;) {
    const int64_t outer = e / inner, column = e % inner, n = least(16, least(end - e, inner - column));
    const float* at = x + outer * width * inner + column;
    if (n == 16)
      columns16(kind, y + e, width, n, [at, inner](int64_t w) { return load16(at + w * inner); });
    else
      columns16(kind, y + e, width, n,
                [at, inner, n](int64_t w) { return load_some(at + w * inner, n, 0.0f); });
    e += n;
  }
}

void scale_shift(const float* x, float* y, int64_t n, float scale, float shift) {
  const V s = splat<kWidth>(scale), t = splat<kWidth>(shift);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store<kWidth>(y + i, vfma<kWidth>(load<kWidth>(x + i), s, t));
  for (; i < n; ++i) y[i] = sfma(x[i], scale, shift);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
