// vector64_trig.h: sin, cos, tan on raw vectors of doubles, for every finite argument. Coefficients:
// tools/minimax.py.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

using namespace raw;

// x = n pi/2 + high + low
struct Turned {
  double high, low;
  int64_t n;
};
// For large |x| by exact integers (Payne and Hanek): of the product of x with 2/pi, which is kept to 1216
// bits, only the bits that matter are formed.
inline OPFORGE_NOINLINE Turned trig_slow(double x) {
  static const uint32_t kTwoOverPi[41] = {
      0,          0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
      0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c,
      0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639,
      0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f,
      0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7,
      0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20};
  constexpr int kWords = 7;
  uint64_t word;
  memcpy(&word, &x, 8);
  const int exponent = static_cast<int>((word >> 52) & 0x7ff) - 1075;  // |x| = m 2^exponent
  const uint64_t mantissa = (word & 0xfffffffffffffull) | 0x10000000000000ull;
  const uint32_t m[2] = {static_cast<uint32_t>(mantissa), static_cast<uint32_t>(mantissa >> 32)};
  const int first = exponent + 62;  // bits before this one are multiples of 4 in the product
  const uint32_t* w = kTwoOverPi + first / 32;
  const int shift = first % 32;
  // x 2/pi mod 4, the lowest word first: two bits before the point and 222 behind it
  uint32_t product[kWords] = {};
  for (int part = 0; part < 2; ++part) {
    uint64_t carry = 0;
    for (int i = 0; i + part < kWords; ++i) {
      const int at = kWords - 1 - i;
      const uint64_t two = static_cast<uint64_t>(w[at]) << 32 | w[at + 1];
      carry +=
          static_cast<uint64_t>(m[part]) * static_cast<uint32_t>(two >> (32 - shift)) + product[i + part];
      product[i + part] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  // The fraction, in [-1/2, 1/2), from its upper five words.
  const bool negative = product[kWords - 1] >> 29 & 1;
  int64_t n = static_cast<int64_t>(product[kWords - 1] >> 30) + negative;
  double high = 0, low = 0, unit = 0x1p-32;
  for (int i = kWords - 1; i > 1; --i, unit *= 0x1p-32) {
    const uint32_t digit = product[i] << 2 | product[i - 1] >> 30;
    const double term = static_cast<double>(negative ? ~digit : digit) * unit;
    const double sum = high + term;
    low += (high - sum) + term;
    high = sum;
  }
  // times pi/2: the product of the upper halves is exact
  uint64_t upper;
  memcpy(&upper, &high, 8);
  upper &= ~0x7ffffffull;
  double top;
  memcpy(&top, &upper, 8);
  const double exact = top * 0x1.921fb5p+0;
  const double rest =
      (high - top) * 0x1.921fb54442d18p+0 + (top * 0x1.110b4611a6263p-26 + low * 0x1.921fb54442d18p+0);
  high = exact + rest;
  low = (exact - high) + rest;
  if ((word >> 63) != negative) {
    high = -high;
    low = -low;
  }
  return {high, low, word >> 63 ? -n : n};
}

// Up to here |x| goes the fast way.
constexpr double kTrigLimit = 0x1p20;

// a - b and its error
template <class F>
OPFORGE_INLINE F exact_difference(F a, F b, F& error) {
  const F d = a - b, t = d - a;
  error = (a - (d - t)) - (b + t);
  return d;
}
// r + low = x - n pi/2. pi/2 is three numbers of 33 bits, whose products with n < 2^20 are exact, and a
// fourth.
template <class F>
OPFORGE_INLINE F trig_reduce(F x, F& low, IntOf<F>& quadrant) {
  const F shifted = mad(x, 0x1.45f306dc9c883p-1, kMagicDouble);
  const F n = shifted - kMagicDouble;
  quadrant = bits(shifted);
  F error, further;
  F r = mad(n, -0x1.921fb544p+0, x);  // exact
  r = exact_difference(r, n * 0x1.0b4611a6p-34, error);
  r = exact_difference(r, n * 0x1.3198a2e0p-69, further);
  const F rest = mad(n, -0x1.b839a252049c1p-104, error + further);
  F sum = r + rest;
  low = (r - sum) + rest;
  const IntOf<F> slow = ~(abs(x) < kTrigLimit);
  if (__builtin_expect(any(slow), 0)) {
    for (int i = 0; i < kCount<F>; ++i) {
      if (!slow[i]) continue;
      const Turned t = __builtin_fabs(x[i]) < kInf ? trig_slow(x[i]) : Turned{kNaN, 0, 0};
      sum[i] = t.high;
      low[i] = t.low;
      quadrant[i] = t.n;
    }
  }
  return sum;
}
// sin(r + low), cos(r + low) for s = r^2
template <class F>
OPFORGE_INLINE F sin_near(F r, F low, F s) {
  const F q = poly(s, 0x1.5d939492eefcep-33, -0x1.ae5e686d7e372p-26, 0x1.71de357ae504dp-19,
                   -0x1.a01a019c15e74p-13, 0x1.111111110f8a5p-7, -0x1.5555555555549p-3);
  return r + mad(r * s, q, mad(s, -0.5, set<F>(1.0)) * low);
}
template <class F>
OPFORGE_INLINE F cos_near(F r, F low, F s) {
  const F q = poly(s, -0x1.8fb11e4c13226p-37, 0x1.1ee9f132abcfep-29, -0x1.27e4f8128edebp-22,
                   0x1.a01a019cbf389p-16, -0x1.6c16c16c1521ep-10, 0x1.555555555554cp-5);
  const F half = 0.5 * s, first = 1.0 - half;
  return first + (((1.0 - first) - half) + (s * s * q - r * low));
}

template <class F>
OPFORGE_INLINE F sin(F x) {
  IntOf<F> q;
  F low;
  const F r = trig_reduce(x, low, q), s = r * r;
  const F v = select<F>((q & 1) != 0, cos_near(r, low, s), sin_near(r, low, s));
  return select<F>(x == 0.0, x, from_bits<F>(bits(v) ^ ((q & 2) << 62)));
}
template <class F>
OPFORGE_INLINE F cos(F x) {
  IntOf<F> q;
  F low;
  const F r = trig_reduce(x, low, q), s = r * r;
  const F v = select<F>((q & 1) != 0, sin_near(r, low, s), cos_near(r, low, s));
  return from_bits<F>(bits(v) ^ (((q + 1) & 2) << 62));
}
template <class F>
OPFORGE_INLINE F tan(F x) {
  IntOf<F> q;
  F low;
  const F r = trig_reduce(x, low, q), s = r * r;
  const F a = sin_near(r, low, s), b = cos_near(r, low, s);
  const IntOf<F> odd = (q & 1) != 0;
  const F v = select<F>(odd, neg(b), a) / select<F>(odd, a, b);
  return select<F>(x == 0.0, x, v);
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
