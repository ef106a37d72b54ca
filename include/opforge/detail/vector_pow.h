// vector_pow.h: pow, cbrt, fmod, mod on raw vectors of floats. The inner steps are in double: they are exact
// enough to round once at the end.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// log2 of positive finite doubles that hold floats (denormal floats are normal doubles). Relative error
// 2^-44.
template <class D>
OPFORGE_INLINE D log2_double(D x) {
  using I = IntOf<D>;
  const I exponent = (bits(x) - 0x3fe6a09e667f3bcdll) & static_cast<int64_t>(0xfff0000000000000ull);
  const D m = from_bits<D>(bits(x) - exponent);  // [sqrt(1/2), sqrt(2))
  // The exponent as a double: 2^52 + biased integer, without an integer conversion.
  const D k = from_bits<D>((exponent >> 52) + 0x4338000000000000ll) - kMagicDouble;
  const D s = (m - 1.0) / (m + 1.0);
  const D series = poly(s * s, 0x1.21b0d9673cb86p-2, 0x1.479558079e4c2p-2, 0x1.a61a2ebad126dp-2,
                        0x1.2776c2935a62dp-1, 0x1.ec709dc53c3cfp-1, 0x1.71547652b8251p+1);
  return mad(s, series, k);
}
// 2^x for |x| < 1000. Relative error 2^-34.
template <class D>
OPFORGE_INLINE D exp2_double(D x) {
  const D shifted = x + kMagicDouble;
  const D r = x - (shifted - kMagicDouble);
  const D p =
      poly(r, 0x1.fde5c8d02b111p-17, 0x1.445ca6d1c0575p-13, 0x1.5d8a86866f2fap-10, 0x1.3b29f3753cfbap-7,
           0x1.c6b08abf9545ap-5, 0x1.ebfbe077ae5dcp-3, 0x1.62e42ff0e2158p-1, 1.0);
  return from_bits<D>(bits(p) + (bits(shifted) << 52));
}
template <class D>
OPFORGE_INLINE D clip_double(D x, double lo, double hi) {  // NaN stays
  x = x < set<D>(lo) ? set<D>(lo) : x;
  return x > set<D>(hi) ? set<D>(hi) : x;
}

template <class F>
OPFORGE_INLINE F pow(F x, F y) {
  using D = Like<double, F>;
  const F ax = abs(x), ay = abs(y);
  const D exponent = __builtin_convertvector(y, D) * log2_double(__builtin_convertvector(ax, D));
  F result = __builtin_convertvector(exp2_double(clip_double(exponent, -300.0, 300.0)), F);
  // |x| = 0 or infinity, y = infinity: the logarithm above was not meant for them.
  const F small_or_large = select<F>((ax > 1.0f) == (y > 0.0f), set<F>(kInf), F{});
  result = select<F>(ay == kInf, select<F>(ax == 1.0f, set<F>(1.0f), small_or_large), result);
  const F zero_or_inf = select<F>((ax == 0.0f) == (y < 0.0f), set<F>(kInf), F{});
  result = select<F>((ax == 0.0f) | (ax == kInf), zero_or_inf, result);
  // Integers: from 2^24 on all floats are even.
  const F bounded = lesser(set<F>(0x1p24f), ay);
  const IntOf<F> integer = __builtin_convertvector(select<F>(y != y, F{}, bounded), IntOf<F>);
  const IntOf<F> is_integer = (ay >= 0x1p23f) | (__builtin_convertvector(integer, F) == bounded);
  const IntOf<F> is_odd = is_integer & ((integer & 1) != 0);
  result = select<F>((bits(x) < 0) & is_odd, neg(result), result);
  result = select<F>((x < 0.0f) & (ax < kInf) & (ay < kInf) & ~is_integer, set<F>(kNaN), result);
  result = select<F>((x != x) | (y != y), x + y, result);
  return select<F>((x == 1.0f) | (y == 0.0f), set<F>(1.0f), result);
}

template <class F>
OPFORGE_INLINE F cbrt(F x) {
  using D = Like<double, F>;
  const F a = abs(x);
  const D d = __builtin_convertvector(select<F>(a > 0.0f, a, set<F>(1.0f)), D);
  // A first guess from a third of the logarithm, then two Halley steps (5, 15, 45 bits).
  D r = exp2_double(clip_double(log2_double(d) * 0x1.5555555555555p-2, -60.0, 60.0));
  const D cube = r * r * r;
  r = r * ((cube + (d + d)) / (cube + cube + d));
  const F result = copysign(__builtin_convertvector(r, F), x);
  return select<F>((a > 0.0f) & (a < kInf), result, x);
}

// Remainder of |x| by |y| in integers, for quotients beyond the double path. Both are positive and finite.
inline OPFORGE_NOINLINE float fmod_slow(float x, float y) {
  int ex, ey;
  int64_t mx = static_cast<int64_t>(__builtin_ldexpf(__builtin_frexpf(x, &ex), 24));
  const int64_t my = static_cast<int64_t>(__builtin_ldexpf(__builtin_frexpf(y, &ey), 24));
  mx %= my;
  for (int shift = ex - ey; shift > 0;) {
    const int step = shift < 32 ? shift : 32;
    mx = (mx << step) % my;
    shift -= step;
  }
  return __builtin_ldexpf(static_cast<float>(mx), ey - 24);
}
template <class F>
OPFORGE_INLINE F fmod(F x, F y) {
  using D = Like<double, F>;
  const F ax = abs(x), ay = abs(y);
  const D dx = __builtin_convertvector(ax, D), dy = __builtin_convertvector(ay, D);
  // |q| < 2^28: q * dy has at most 53 bits, so remainder and correction are exact.
  D q = dx / dy;
  q = (q + kMagicDouble) - kMagicDouble;
  D r = dx - q * dy;
  r = r < 0.0 ? r + dy : r;
  F result = __builtin_convertvector(r, F);
  const IntOf<F> finite = (ax < kInf) & (ay < kInf) & (ay > 0.0f);
  const F limit = select<F>(ay < 0x1p100f, ay * 0x1p28f, set<F>(kInf));
  const IntOf<F> slow = finite & (ax >= limit);
  if (__builtin_expect(any(slow), 0)) {
    for (int i = 0; i < kCount<F>; ++i) {
      if (slow[i]) result[i] = fmod_slow(ax[i], ay[i]);
    }
  }
  result = select<F>((ay == kInf) & (ax < kInf), ax, result);
  result = select<F>((ax == kInf) | (y == 0.0f), set<F>(kNaN), copysign(result, x));
  return select<F>((x != x) | (y != y), x + y, result);
}
template <class F>
OPFORGE_INLINE F mod(F x, F y) {
  const F r = fmod(x, y);
  const IntOf<F> differ = (bits(r) ^ bits(y)) < 0;
  return select<F>(r == 0.0f, copysign(r, y), select<F>(differ, r + y, r));
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
