// vector_log.h: log, log2, log10, log1p, softplus, asinh, acosh, atanh on raw vectors of floats.
#pragma once

#include "opforge/detail/vector_core.h"
#include "opforge/detail/vector_exp.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// log(1 + m) - m for m in [-0.25, 0.5]
template <class F>
OPFORGE_INLINE F log1p_tail(F m) {
  const F q = poly(m, -0x1.71a206p-5f, 0x1.acd728p-4f, -0x1.0d9942p-3f, 0x1.2883bep-3f, -0x1.54ee28p-3f,
                   0x1.99697ap-3f, -0x1.000046p-2f, 0x1.5555a4p-2f, -0.5f);
  return m * m * q;
}
// k ln 2 + p
template <class F>
OPFORGE_INLINE F add_ln2(F p, F k) {
  return mad(k, kLn2High, mad(k, kLn2Low, p));
}
// x = 2^k (1 + m), m in [-0.25, 0.5), for positive finite x
template <class F>
OPFORGE_INLINE F log_reduce(F x, F& k) {
  const IntOf<F> denormal = x < 0x1p-126f;
  const F y = select<F>(denormal, x * 0x1p23f, x);
  const IntOf<F> exponent = (bits(y) - 0x3f400000) & static_cast<int32_t>(0xff800000);
  k = __builtin_convertvector(exponent >> 23, F);
  k = select<F>(denormal, k - 23.0f, k);
  return from_bits<F>(bits(y) - exponent) - 1.0f;
}
// The values outside the domain: log(+inf) = inf, log(0) = -inf, log(negative) = NaN.
template <class F>
OPFORGE_INLINE F log_special(F x, F result) {
  result = select<F>(x < kInf, result, x);
  const F outside = select<F>(x == 0.0f, set<F>(-kInf), select<F>(x != x, x, set<F>(kNaN)));
  return select<F>(x > 0.0f, result, outside);
}

template <class F>
OPFORGE_INLINE F log(F x) {
  F k;
  const F m = log_reduce(x, k);
  return log_special(x, add_ln2(log1p_tail(m) + m, k));
}
// log2(e) = 1 + 0.4427: only the small part of the product is rounded.
template <class F>
OPFORGE_INLINE F log2(F x) {
  F k;
  const F m = log_reduce(x, k);
  const F tail = log1p_tail(m);
  const F p = m + tail;
  const F low = mad(p, 0x1.c551dap-2f, tail - (p - m));
  const F sum = k + p;  // |k| > |p| or k = 0: exact error
  return log_special(x, sum + ((p - (sum - k)) + low));
}
template <class F>
OPFORGE_INLINE F log10(F x) {
  F k;
  const F m = log_reduce(x, k);
  const F tail = log1p_tail(m);
  // log10(e) = 0.4375 - 0.0032: the small part and the tail take most of the rounding.
  const F low = mad(k, 0x1.3509f8p-18f, mad(tail, 0x1.bcb7b2p-2f, m * -0x1.a42756p-9f));
  return log_special(x, mad(k, 0x1.344000p-2f, mad(m, 0.4375f, low)));
}
template <class F>
OPFORGE_INLINE F log1p(F x) {
  const F u = x + 1.0f;
  const IntOf<F> exponent = (bits(u) - 0x3f400000) & static_cast<int32_t>(0xff800000);
  // m = x 2^-k + (2^-k - 1); both 2^-k and x 2^-k are exact
  const F quarter = from_bits<F>(0x40800000 - exponent) * 0.25f;
  const F m = from_bits<F>(bits(x) - exponent) + (quarter - 1.0f);
  const F k = __builtin_convertvector(exponent >> 23, F);
  F result = add_ln2(log1p_tail(m) + m, k);
  result = select<F>(x < kInf, result, x);
  result = select<F>(x == 0.0f, x, result);
  const F outside = select<F>(x == -1.0f, set<F>(-kInf), select<F>(x != x, x, set<F>(kNaN)));
  return select<F>(x > -1.0f, result, outside);
}

// max(x, 0) + log1p(exp(-|x|))
template <class F>
OPFORGE_INLINE F softplus(F x) {
  const F e = exp_neg_abs(x);
  // log1p(e) for e in [0, 1]: directly up to 0.5, above as ln 2 + log1p((e - 1) / 2)
  const IntOf<F> upper = e > 0.5f;
  const F m = select<F>(upper, e * 0.5f - 0.5f, e);
  const F k = select<F>(upper, set<F>(1.0f), F{});
  const F positive = greater(F{}, x);
  return positive + add_ln2(log1p_tail(m) + m, k);
}

template <class F>
OPFORGE_INLINE F asinh(F x) {
  const F a = abs(x);
  // log1p(a + a^2 / (1 + sqrt(1 + a^2))) for small a, log(a) + ln 2 where a^2 would overflow or 1 is lost
  const IntOf<F> large = a > 0x1p12f;
  const F b = select<F>(large, F{}, a);
  const F s = b * b;
  const F near = log1p(b + s / (1.0f + sqrt(s + 1.0f)));
  F k;
  const F m = log_reduce(select<F>(large, a, set<F>(1.0f)), k);
  const F far = add_ln2(log1p_tail(m) + m, k + 1.0f);
  const F result = select<F>(large, far, near);
  return select<F>(a < kInf, copysign(result, x), x);
}
template <class F>
OPFORGE_INLINE F acosh(F x) {
  const IntOf<F> large = x > 0x1p12f;
  const F t = select<F>(large, F{}, x - 1.0f);
  const F near = log1p(t + sqrt(t * (t + 2.0f)));
  F k;
  const F m = log_reduce(select<F>(large, x, set<F>(1.0f)), k);
  const F far = add_ln2(log1p_tail(m) + m, k + 1.0f);
  const F result = select<F>(large, far, near);
  return select<F>(x < kInf, select<F>(x >= 1.0f, result, select<F>(x != x, x, set<F>(kNaN))), x);
}
template <class F>
OPFORGE_INLINE F atanh(F x) {
  const F a = abs(x);
  const F near = 0.5f * log1p((a + a) / (1.0f - a));
  // Small arguments: the log1p argument's own rounding is what is left, x^3 / 3 is exact enough.
  const F s = x * x;
  const F small = mad(x * s, poly(s, 0x1.249250p-3f, 0x1.99999ap-3f, 0x1.555556p-2f), x);
  return select<F>(a < 0.125f, small, copysign(near, x));
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
