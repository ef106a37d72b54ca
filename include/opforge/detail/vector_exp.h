// vector_exp.h: exp, exp2, expm1, sigmoid, softplus, sinh, cosh, tanh on raw vectors of floats.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts; the first has 15 bits, so that n * kLn2High is exact for |n| < 512.
constexpr float kLn2High = 0x1.62e400p-1f;
constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// exp(r) - 1 for |r| <= ln 2 / 2
template <class F>
OPFORGE_INLINE F exp_tail(F r) {
  const F q = poly(r, 0x1.6a4b36p-10f, 0x1.12398ep-7f, 0x1.5558b2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f);
  return mad(r * r, q, r);
}
// x = n ln 2 + r; n is also left in the low bits of `shifted`. |x| < 2^21.
template <class F>
OPFORGE_INLINE F exp_reduce(F x, F& shifted) {
  shifted = mad(x, kLog2E, kMagic);
  const F n = shifted - kMagic;
  return mad(n, -kLn2Low, mad(n, -kLn2High, x));
}
template <class F>
OPFORGE_INLINE F two_to(IntOf<F> n) {  // -126 <= n <= 127
  return from_bits<F>((n + 127) << 23);
}
template <class F>
OPFORGE_INLINE IntOf<F> low_bits(F shifted) {
  return bits(shifted) - 0x4b400000;
}
// x * 2^n, rounded once, for results down to the denormals and up to infinity. n is an integer, |n| < 300.
template <class F>
OPFORGE_INLINE F scale(F x, F n, IntOf<F> integer) {
#if OPFORGE_GCC_X86 && defined(__AVX512VL__)
  if constexpr (sizeof(F) == 64) return __builtin_ia32_scalefps512_mask(x, n, x, -1, 4);
  if constexpr (sizeof(F) == 32) return __builtin_ia32_scalefps256_mask(x, n, x, -1);
  if constexpr (sizeof(F) == 16) return __builtin_ia32_scalefps128_mask(x, n, x, -1);
#endif
  (void)n;
  const IntOf<F> half = integer >> 1;  // the first product is exact
  return (x * two_to<F>(half)) * two_to<F>(integer - half);
}

// exp for |x| < 87, which the caller guarantees; NaN passes.
template <class F>
OPFORGE_INLINE F exp_middle(F x) {
  F shifted;
  const F r = exp_reduce(x, shifted);
  return (exp_tail(r) + 1.0f) * from_bits<F>((bits(shifted) << 23) + 0x3f800000);
}
template <class F>
OPFORGE_INLINE F exp(F x) {
  x = clip(x, -104.0f, 89.0f);
  F shifted;
  const F r = exp_reduce(x, shifted);
  return scale(exp_tail(r) + 1.0f, shifted - kMagic, low_bits(shifted));
}
// exp(-|x|)
template <class F>
OPFORGE_INLINE F exp_neg_abs(F x) {
  x = greater(set<F>(-104.0f), neg_abs(x));
  F shifted;
  const F r = exp_reduce(x, shifted);
  return scale(exp_tail(r) + 1.0f, shifted - kMagic, low_bits(shifted));
}
template <class F>
OPFORGE_INLINE F exp2(F x) {
  x = clip(x, -151.0f, 129.0f);
  const F shifted = x + kMagic;
  const F n = shifted - kMagic;
  const F r = (x - n) * 0x1.62e430p-1f;
  return scale(exp_tail(r) + 1.0f, n, low_bits(shifted));
}
template <class F>
OPFORGE_INLINE F expm1(F x) {
  const F clipped = clip(x, -30.0f, 89.0f);
  F shifted;
  const F r = exp_reduce(clipped, shifted);
  const F q = poly(r, 0x1.9e77aap-13f, 0x1.6d3a4ap-10f, 0x1.1112d6p-7f, 0x1.5554f8p-5f, 0x1.555554p-3f, 0.5f);
  const F p = mad(r * r, q, r);
  // p 2^n + (2^n - 1); 2^128 would overflow, so the largest n go through half of it.
  const IntOf<F> n = low_bits(shifted);
  const F half = two_to<F>(n - 1);
  const IntOf<F> low = n >> 1;
  const F power = two_to<F>(low) * two_to<F>(n - low);
  const F result = select<F>(n > 126, mad(p, half, half) * 2.0f, mad(p, power, power - 1.0f));
  return select<F>(x == 0.0f, x, result);
}

// 1 / (1 + exp(-x)), exp(-x) = 2^n (1 + t). Adding t 2^n to 1 first costs 1 ulp where exp(-x) is small, 2^n
// to 1 first would where it is large. Beyond 2^60 the divisor has 2^60 for 2^n and the quotient gets the
// rest: only a result can be a denormal, which processors are slow with.
template <class F>
OPFORGE_INLINE F sigmoid(F x) {
  F shifted;
  const F r = exp_reduce(clip(neg(x), -40.0f, 104.0f), shifted);
  const F bounded = lesser(set<F>(kMagic + 60.0f), shifted);
  const F power = from_bits<F>((bits(bounded) << 23) + 0x3f800000);
  const F s = mad(exp_tail(r), power, set<F>(1.0f)) + power;
  return (1.0f / s) * from_bits<F>(((bits(bounded) - bits(shifted)) << 23) + 0x3f800000);
}

template <class F>
OPFORGE_INLINE F tanh(F x) {
  const F s = x * x;
  const F q = poly(s, -0x1.734efep-8f, 0x1.51971ap-6f, -0x1.b826fep-5f, 0x1.110688p-3f, -0x1.555530p-2f);
  const F small = mad(x * s, q, x);
  const F a = lesser(set<F>(20.0f), abs(x));  // NaN stays: it is the second operand
  const F large = 1.0f - 2.0f / (exp_middle(a + a) + 1.0f);
  return copysign(select<F>(abs(x) < 0.625f, small, large), x);  // the small branch loses the sign of -0
}

// exp(a) / 2 for 0 <= a <= 90, without overflow before the result does
template <class F>
OPFORGE_INLINE F half_exp(F a) {
  F shifted;
  const F r = exp_reduce(a, shifted);
  return scale(exp_tail(r) + 1.0f, shifted - kMagic - 1.0f, low_bits(shifted) - 1);
}
template <class F>
OPFORGE_INLINE F sinh(F x) {
  const F a = lesser(set<F>(90.0f), abs(x));
  const F half = half_exp(a);
  const F large = half - 0.25f / half;
  const F s = x * x;
  const F q = poly(s, 0x1.756c1ep-19f, 0x1.a022bcp-13f, 0x1.1110e0p-7f, 0x1.555556p-3f);
  const F small = mad(x * s, q, x);
  return select<F>(abs(x) < 1.0f, small, copysign(large, x));
}
template <class F>
OPFORGE_INLINE F cosh(F x) {
  const F half = half_exp(lesser(set<F>(90.0f), abs(x)));
  return half + 0.25f / half;
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
