// vector64_exp.h: exp, exp2, expm1, sigmoid, sinh, cosh, tanh on raw vectors of doubles.
//
// x = n ln 2 + r with ln 2 in two parts (Cody and Waite), then e^r = 1 + r + r^2 q(r). Coefficients:
// tools/minimax.py.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

using namespace raw;

constexpr double kLog2E = 0x1.71547652b82fep+0;
// The first part has 42 bits, so that n times it is exact for |n| < 2048.
constexpr double kLn2High = 0x1.62e42fefa3800p-1;
constexpr double kLn2Low = 0x1.ef35793c76730p-45;

// e^x = 2^n (1 + r + tail); n is also left in the low bits of `shifted`.
template <class F>
struct Exponential {
  F shifted, n, r, tail;
};
// The tail of a reduced argument, r + low; |low| is less than a unit in the last place of r.
template <class F>
OPFORGE_INLINE F exp_tail(F r, F low) {
  const F q = poly(r, 0x1.1f946d0da538cp-29, 0x1.af5d5b38164a8p-26, 0x1.27e4c658939bdp-22,
                   0x1.71ddf92e28f11p-19, 0x1.a01a01b051263p-16, 0x1.a01a01af870ecp-13, 0x1.6c16c16c145e8p-10,
                   0x1.111111110f7b5p-7, 0x1.555555555555ap-5, 0x1.5555555555559p-3, 0.5);
  return mad(r * r, q, low);
}
// Of x - low; |low| < 2^-10.
template <class F>
OPFORGE_INLINE Exponential<F> exponential(F x, F low) {
  const F shifted = mad(x, kLog2E, kMagicDouble);
  const F n = shifted - kMagicDouble;
  const F high = mad(n, -kLn2High, x);  // exact
  const F rest = mad(n, kLn2Low, low);
  const F r = high - rest;
  return {shifted, n, r, exp_tail(r, (high - r) - rest)};
}
template <class F>
OPFORGE_INLINE Exponential<F> exponential(F x) {
  const F shifted = mad(x, kLog2E, kMagicDouble);
  const F n = shifted - kMagicDouble;
  const F high = mad(n, -kLn2High, x);
  const F rest = n * kLn2Low;
  const F r = high - rest;
  return {shifted, n, r, exp_tail(r, (high - r) - rest)};
}
// 2^n for the n in the low bits of `shifted`, -1022 <= n <= 1023
template <class F>
OPFORGE_INLINE F power_of_two(F shifted) {
  return from_bits<F>((bits(shifted) << 52) + 0x3ff0000000000000ll);
}
// x * 2^n, rounded once, for results down to the denormals and up to infinity. n is an integer, |n| < 2000.
template <class F>
OPFORGE_INLINE F scale(F x, F n) {
#if OPFORGE_GCC_X86 && defined(__AVX512VL__)
  if constexpr (sizeof(F) == 64) return __builtin_ia32_scalefpd512_mask(x, n, x, -1, 4);
  if constexpr (sizeof(F) == 32) return __builtin_ia32_scalefpd256_mask(x, n, x, -1);
  if constexpr (sizeof(F) == 16) return __builtin_ia32_scalefpd128_mask(x, n, x, -1);
#endif
  const F half = n * 0.5 + kMagicDouble;  // the first product is exact
  const F rest = (n - (half - kMagicDouble)) + kMagicDouble;
  return (x * power_of_two(half)) * power_of_two(rest);
}
template <class F>
OPFORGE_INLINE F one_plus(const Exponential<F>& e) {
  return 1.0 + (e.r + e.tail);
}
// base + power (1 + r + tail), whose value is high + low. base + power is to be exact, and at least as large
// as power r, or 0.
template <class F>
struct Sum {
  F high, low;
};
template <class F>
OPFORGE_INLINE Sum<F> based(double base, F power, const Exponential<F>& e) {
  const F a = power + base, b = power * e.r;
  const F sum = a + b, rest = mad(power, e.tail, (a - sum) + b);
  const F high = sum + rest;
  return {high, rest - (high - sum)};
}

template <class F>
OPFORGE_INLINE F exp(F x) {
  const Exponential<F> e = exponential(clip(x, -746.0, 710.0));
  return scale(one_plus(e), e.n);
}
template <class F>
OPFORGE_INLINE F exp2(F x) {
  x = clip(x, -1077.0, 1025.0);
  const F n = (x + kMagicDouble) - kMagicDouble;
  const F r = (x - n) * 0x1.62e42fefa39efp-1;
  return scale(1.0 + (r + exp_tail(r, F{})), n);
}
template <class F>
OPFORGE_INLINE F expm1(F x) {
  const Exponential<F> e = exponential(clip(x, -60.0, 710.0));
  // Half of it: 2^1024 would overflow.
  const F half = based(-0.5, power_of_two(e.shifted - 1.0), e).high;
  return select<F>(abs(x) < 0x1p-54, x, half + half);
}

// 1 / (1 + exp(-x)). Beyond 2^60 the divisor has 2^60 for 2^n and the quotient gets the rest: only a result
// can be a denormal.
template <class F>
OPFORGE_INLINE F sigmoid(F x) {
  const Exponential<F> e = exponential(clip(neg(x), -60.0, 746.0));
  const F bounded = lesser(set<F>(kMagicDouble + 60.0), e.shifted);
  const F power = power_of_two(bounded), a = power + 1.0;
  const F lost = 1.0 - (a - power);  // of a, from 2^53 on and at 2^-53
  const F b = power * e.r, sum = a + b;
  const F s = sum + mad(power, e.tail, ((a - sum) + b) + lost);
  return (1.0 / s) * power_of_two((bounded - e.shifted) + kMagicDouble);
}

// h / (h + 1) for h = (exp(2|x|) - 1) / 2; from 1/2 on as 1 - 1 / (h + 1). What the roundings of h and h + 1
// took is put back.
template <class F>
OPFORGE_INLINE F tanh(F x) {
  const F a = lesser(set<F>(22.0), abs(x));  // NaN stays: it is the second operand
  const Exponential<F> e = exponential(a + a);
  const Sum<F> half = based(-0.5, power_of_two(e.shifted - 1.0), e);
  const F h = half.high, below = h + 1.0;
  const IntOf<F> large = h > 1.0;
  const F quotient = select<F>(large, set<F>(-1.0), h) / below;
  const F lost = mad(quotient, (below - 1.0) - h, half.low);
  const F small = quotient + (1.0 - quotient) * lost;
  const F result = select<F>(large, 1.0 + quotient, small);
  return copysign(select<F>(a < 0x1p-30, a, result), x);
}

// (m + m / (m + 1)) / 2 for m = exp(|x|) - 1
template <class F>
OPFORGE_INLINE F sinh(F x) {
  const F a = lesser(set<F>(710.5), abs(x));
  const Exponential<F> e = exponential(a);
  const Sum<F> quarter = based(-0.25, power_of_two(e.shifted - 2.0), e);
  const F other = quarter.high / mad(quarter.high, 4.0, set<F>(1.0));
  const F slope = mad(other, -4.0, set<F>(1.0));  // 1 / (m + 1)
  const F half = quarter.high + mad(mad(slope, slope, 1.0), quarter.low, other);
  return copysign(select<F>(a < 0x1p-28, a, half + half), x);
}
template <class F>
OPFORGE_INLINE F cosh(F x) {
  const Exponential<F> e = exponential(lesser(set<F>(710.5), abs(x)));
  const F quarter = one_plus(e) * power_of_two(e.shifted - 2.0);
  const F half = quarter + 0.0625 / quarter;
  return half + half;
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
