// vector64_log.h: log, log2, log10, log1p, softplus, asinh, acosh, atanh on raw vectors of doubles.
//
// log(1 + f) through s = f / (2 + f), as in Tang's and Sun's work: f - (f^2 / 2 - s (f^2 / 2 + z p(z))),
// z = s^2. Coefficients: tools/minimax.py.
#pragma once

#include "opforge/detail/vector64_exp.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

// x without the lower 27 bits of its mantissa: products of two such numbers are exact.
template <class F>
OPFORGE_INLINE F head(F x) {
  return from_bits<F>(bits(x) & -0x8000000ll);
}

// log(1 + f) = f - (square - tail) for f in [-0.25, 0.5]; square = f^2 / 2
template <class F>
struct Logarithm {
  F square, tail;
};
template <class F>
OPFORGE_INLINE Logarithm<F> logarithm(F f) {
  const F square = 0.5 * f * f, s = f / (f + 2.0), z = s * s;
  const F p = poly(z, 0x1.1b85c30a81d35p-3, 0x1.0dcaf92eb183ap-3, 0x1.3b35c9f3be1bep-3, 0x1.745c4a95d03b4p-3,
                   0x1.c71c7490dacbbp-3, 0x1.24924921e32ebp-2, 0x1.999999999c187p-2, 0x1.555555555554fp-1);
  return {square, s * mad(z, p, square)};
}
// k ln 2 + log(1 + f + low)
template <class F>
OPFORGE_INLINE F add_ln2(F f, F k, F low) {
  const Logarithm<F> l = logarithm(f);
  return mad(k, kLn2High, f - (l.square - (l.tail + mad(k, kLn2Low, low))));
}
// The exponent k of positive normal x = 2^k m as a double, and as bits (k << 52); kFrom = the bits of the
// lowest m.
template <int64_t kFrom, class F>
OPFORGE_INLINE IntOf<F> exponent_of(F x, F& k) {
  using U = Like<uint64_t, F>;
  const U biased = (U)bits(x) + static_cast<uint64_t>(0x3ff0000000000000ll - kFrom);
  k = from_bits<F>((IntOf<F>)((biased >> 52) | 0x4330000000000000ull)) - (0x1p52 + 1023.0);
  return (IntOf<F>)(biased & 0xfff0000000000000ull) - 0x3ff0000000000000ll;
}
// x = 2^k (1 + f) for positive finite x
template <int64_t kFrom, class F>
OPFORGE_INLINE F log_reduce(F x, F& k) {
  const IntOf<F> denormal = x < 0x1p-1022;
  const F y = select<F>(denormal, x * 0x1p54, x);
  const IntOf<F> exponent = exponent_of<kFrom>(y, k);
  k = select<F>(denormal, k - 54.0, k);
  return from_bits<F>(bits(y) - exponent) - 1.0;
}
constexpr int64_t kThreeQuarters = 0x3fe8000000000000ll, kRootHalf = 0x3fe6a09e667f3bcdll;

// The values outside the domain: log(+inf) = inf, log(0) = -inf, log(negative) = NaN.
template <class F>
OPFORGE_INLINE F log_special(F x, F result) {
  result = select<F>(x < kInf, result, x);
  const F outside = select<F>(x == 0.0, set<F>(-kInf), select<F>(x != x, x, set<F>(kNaN)));
  return select<F>(x > 0.0, result, outside);
}

template <class F>
OPFORGE_INLINE F log(F x) {
  F k;
  const F f = log_reduce<kThreeQuarters>(x, k);
  return log_special(x, add_ln2(f, k, F{}));
}
// scaled + (high + low) log(1 + f): the factor, of a base, in 27 bits and the rest. `scaled` is exact and 0
// or larger than the product; `rest` is added to the small terms.
template <class F>
OPFORGE_INLINE F based_log(F f, F scaled, F rest, double high, double low) {
  const Logarithm<F> l = logarithm(f);
  const F h = head(f - l.square);
  const F tail = ((f - h) - l.square) + l.tail;
  const F product = h * high;  // exact
  const F sum = scaled + product;
  const F small = mad(tail, high, mad(tail + h, low, rest));
  return sum + (((scaled - sum) + product) + small);
}
template <class F>
OPFORGE_INLINE F log2(F x) {
  F k;
  const F f = log_reduce<kThreeQuarters>(x, k);
  return log_special(x, based_log(f, k, F{}, 0x1.7154764000000p+0, 0x1.2b82fe1777d10p-28));
}
template <class F>
OPFORGE_INLINE F log10(F x) {
  F k;
  const F f = log_reduce<kThreeQuarters>(x, k);
  const F scaled = k * 0x1.34413509f7800p-2;  // log10(2) in 42 bits: exact
  const F rest = k * 0x1.fef311f12b358p-46;
  return log_special(x, based_log(f, scaled, rest, 0x1.bcb7b14000000p-2, 0x1.26e50e32a6ab7p-30));
}

// log1p(x + low)
template <class F>
OPFORGE_INLINE F log1p(F x, F low) {
  F k;
  const IntOf<F> exponent = exponent_of<kThreeQuarters>(x + 1.0, k);
  // f = x 2^-k + (2^-k - 1); both terms are exact, the sum's error is kept
  const F power = from_bits<F>(0x4010000000000000ll - exponent) * 0.25;
  const F a = power - 1.0, b = from_bits<F>(bits(x) - exponent);
  const F f = a + b, of_b = f - a;
  const F error = mad(low, power, (a - (f - of_b)) + (b - of_b));
  F result = add_ln2(f, k, error * mad(f, f - 1.0, 1.0));
  result = select<F>(x < kInf, result, x);
  result = select<F>(x == 0.0, x, result);
  const F outside = select<F>(x == -1.0, set<F>(-kInf), select<F>(x != x, x, set<F>(kNaN)));
  return select<F>(x > -1.0, result, outside);
}
template <class F>
OPFORGE_INLINE F log1p(F x) {
  return log1p(x, F{});
}

// max(x, 0) + log1p(exp(-|x|))
template <class F>
OPFORGE_INLINE F softplus(F x) {
  const F e = exp(neg_abs(x));
  // log1p(e) for e in [0, 1]: directly up to 0.5, above as ln 2 + log1p((e - 1) / 2)
  const IntOf<F> upper = e > 0.5;
  const F f = select<F>(upper, e * 0.5 - 0.5, e);
  const F k = select<F>(upper, set<F>(1.0), F{});
  return greater(F{}, x) + add_ln2(f, k, F{});
}

// log1p(a + a^2 / (1 + sqrt(1 + a^2))); log(a) + ln 2 where a^2 would overflow or 1 is lost
template <class F>
OPFORGE_INLINE F log_twice(F x, IntOf<F> large, F near) {
  F k;
  const F f = log_reduce<kThreeQuarters>(select<F>(large, x, set<F>(1.0)), k);
  return select<F>(large, add_ln2(f, k + 1.0, F{}), near);
}
template <class F>
OPFORGE_INLINE F asinh(F x) {
  const F a = abs(x);
  const IntOf<F> large = a > 0x1p28;
  const F b = select<F>(large, F{}, a), s = b * b;
  const F result = log_twice(a, large, log1p(b + s / (1.0 + sqrt(s + 1.0))));
  return select<F>(a < kInf, copysign(result, x), x);
}
template <class F>
OPFORGE_INLINE F acosh(F x) {
  const IntOf<F> large = x > 0x1p28;
  const F t = select<F>(large, F{}, x - 1.0);
  const F root = sqrt(t * (t + 2.0)), sum = root + t;  // root >= t
  const F result = log_twice(x, large, log1p(sum, (root - sum) + t));
  return select<F>(x < kInf, select<F>(x >= 1.0, result, select<F>(x != x, x, set<F>(kNaN))), x);
}
// log1p(2 a / (1 - a)) / 2; for small a the argument as 2 a + 2 a^2 / (1 - a), whose error is the smaller
// term's
template <class F>
OPFORGE_INLINE F atanh(F x) {
  const F a = abs(x), twice = a + a;
  const IntOf<F> small = a < 0.5;
  const F quotient = select<F>(small, twice * a, twice) / (1.0 - a);
  return copysign(0.5 * log1p(select<F>(small, twice + quotient, quotient)), x);
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
