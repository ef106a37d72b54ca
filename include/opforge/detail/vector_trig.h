// vector_trig.h: sin, cos, tan on raw vectors of floats, for every finite argument.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// x = n pi/2 + r by exact integers (Payne and Hanek), for large |x|: 2/pi is kept to 224 bits, and of the
// product only the bits that matter are formed.
inline OPFORGE_NOINLINE float trig_slow(float x, int32_t* quadrant) {
  static const uint32_t kTwoOverPi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                         0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  uint32_t word;
  memcpy(&word, &x, 4);
  const int exponent = static_cast<int>((word >> 23) & 0xff) - 150;  // |x| = m 2^exponent
  const uint64_t m = (word & 0x7fffff) | 0x800000;
  const int first = exponent + 30;  // bits before this one are multiples of 4 in the product
  const uint32_t* w = kTwoOverPi + first / 32;
  const int shift = first % 32;
  uint64_t part[3];
  for (int i = 0; i < 3; ++i) {
    part[i] = shift ? ((static_cast<uint64_t>(w[i]) << 32 | w[i + 1]) >> (32 - shift)) & 0xffffffffu : w[i];
  }
  const uint64_t low = m * part[2];
  const uint64_t middle = m * part[1] + (low >> 32);
  const uint64_t high = m * part[0] + (middle >> 32);
  const uint64_t fraction = high << 32 | (middle & 0xffffffffu);  // x 2/pi mod 4, 62 bits after the point
  const int64_t signed_fraction = static_cast<int64_t>(fraction << 2);
  int32_t q = static_cast<int32_t>(fraction >> 62) + (signed_fraction < 0);
  double r = static_cast<double>(signed_fraction) * 0x1.921fb54442d18p-64;
  if (word >> 31) {
    r = -r;
    q = -q;
  }
  *quadrant = q;
  return static_cast<float>(r);
}

// Up to here |x| goes the fast way.
constexpr float kTrigLimit = kFast ? 65536.0f : 1048576.0f;

template <class F>
OPFORGE_INLINE F trig_reduce(F x, IntOf<F>& quadrant) {
  F r;
  if constexpr (kFast) {
    const F shifted = mad(x, 0x1.45f306p-1f, kMagic);
    const F n = shifted - kMagic;
    quadrant = bits(shifted);
    r = mad(n, 0x1.ee59dap-50f, mad(n, 0x1.777a5cp-25f, mad(n, -0x1.921fb6p+0f, x)));
  } else {  // pi/2 = 33 bits + the rest: n * high is exact in double
    using D = Like<double, F>;
    const D dx = __builtin_convertvector(x, D);
    const D shifted = dx * 0x1.45f306dc9c883p-1 + kMagicDouble;
    const D n = shifted - kMagicDouble;
    quadrant = __builtin_convertvector(bits(shifted), IntOf<F>);
    r = __builtin_convertvector((dx - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, F);
  }
  const IntOf<F> slow = ~(abs(x) < kTrigLimit);
  if (__builtin_expect(any(slow), 0)) {
    for (int i = 0; i < kCount<F>; ++i) {
      if (!slow[i]) continue;
      int32_t q = 0;
      r[i] = __builtin_fabsf(x[i]) < kInf ? trig_slow(x[i], &q) : kNaN;
      quadrant[i] = q;
    }
  }
  return r;
}
template <class F>
OPFORGE_INLINE F sin_poly(F r, F s) {
  const F q = poly(s, 0x1.7c367ap-19f, -0x1.a05968p-13f, 0x1.111174p-7f, -0x1.555556p-3f);
  return mad(r * s, q, r);
}
template <class F>
OPFORGE_INLINE F cos_poly(F s) {
  const F q = poly(s, -0x1.36147cp-22f, 0x1.a071b6p-16f, -0x1.6c175ep-10f, 0x1.555556p-5f);
  return mad(s * s, q, mad(s, -0.5f, set<F>(1.0f)));
}

template <class F>
OPFORGE_INLINE F sin(F x) {
  IntOf<F> q;
  const F r = trig_reduce(x, q), s = r * r;
  const F v = select<F>((q & 1) != 0, cos_poly(s), sin_poly(r, s));
  return select<F>(x == 0.0f, x, from_bits<F>(bits(v) ^ ((q & 2) << 30)));
}
template <class F>
OPFORGE_INLINE F cos(F x) {
  IntOf<F> q;
  const F r = trig_reduce(x, q), s = r * r;
  const F v = select<F>((q & 1) != 0, sin_poly(r, s), cos_poly(s));
  return from_bits<F>(bits(v) ^ (((q + 1) & 2) << 30));
}
template <class F>
OPFORGE_INLINE F tan(F x) {
  IntOf<F> q;
  const F r = trig_reduce(x, q), s = r * r;
  const F a = sin_poly(r, s), b = cos_poly(s);
  const IntOf<F> odd = (q & 1) != 0;
  const F v = select<F>(odd, neg(b), a) / select<F>(odd, a, b);
  return select<F>(x == 0.0f, x, v);
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
