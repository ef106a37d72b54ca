// vector_inverse.h: asin, acos, atan, atan2 on raw vectors of floats.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// pi/2 as the sum of two floats
constexpr float kHalfPi = 0x1.921fb6p+0f;
constexpr float kHalfPiLow = -0x1.777a5cp-25f;

// (asin(x) - x) / x for s = x^2 <= 1/4
template <class F>
OPFORGE_INLINE F asin_tail(F s) {
  return s * poly(s, 0x1.34cfc6p-5f, 0x1.d511d4p-7f, 0x1.04d36ap-5f, 0x1.6ca750p-5f, 0x1.3338acp-4f,
                  0x1.55554cp-3f);
}
template <class F>
OPFORGE_INLINE F asin(F x) {
  const F a = abs(x);
  const IntOf<F> upper = a > 0.5f;
  // asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))
  const F half = mad(a, -0.5f, set<F>(0.5f));
  const F root = sqrt(select<F>(upper, half, set<F>(0.25f)));
  const F s = select<F>(upper, half, x * x), r = select<F>(upper, root, a);
  const F v = mad(r, asin_tail(s), r);
  const F result = select<F>(upper, kHalfPi - (v + v - kHalfPiLow), v);
  return select<F>(a <= 1.0f, copysign(result, x), set<F>(kNaN));
}
template <class F>
OPFORGE_INLINE F acos(F x) {
  const F a = abs(x);
  const IntOf<F> upper = a > 0.5f;
  const F half = mad(a, -0.5f, set<F>(0.5f));
  const F root = sqrt(select<F>(upper, half, set<F>(0.25f)));
  const F s = select<F>(upper, half, x * x), r = select<F>(upper, root, x);
  const F v = mad(r, asin_tail(s), r);
  const F twice = v + v;
  const F outer = select<F>(x < 0.0f, 2.0f * kHalfPi - (twice - 2.0f * kHalfPiLow), twice);
  return select<F>(a <= 1.0f, select<F>(upper, outer, kHalfPi - (v - kHalfPiLow)), set<F>(kNaN));
}

// (atan(t) - t) / t for s = t^2 <= 1
template <class F>
OPFORGE_INLINE F atan_tail(F s) {
  return s * poly(s, 0x1.29687ep-10f, -0x1.e6a0ecp-8f, 0x1.753040p-6f, -0x1.7080bap-5f, 0x1.150a00p-4f,
                  -0x1.6953bcp-4f, 0x1.c51170p-4f, -0x1.247620p-3f, 0x1.99981cp-3f, -0x1.555552p-2f);
}
template <class F>
OPFORGE_INLINE F atan(F x) {
  const F a = abs(x);
  const IntOf<F> upper = a > 1.0f;
  const F t = select<F>(upper, 1.0f / a, a);
  const F v = mad(t, atan_tail(t * t), t);
  return copysign(select<F>(upper, kHalfPi - (v - kHalfPiLow), v), x);
}
template <class F>
OPFORGE_INLINE F atan2(F y, F x) {
  const F ax = abs(x), ay = abs(y);
  const IntOf<F> upper = ay > ax;
  const F top = select<F>(upper, ax, ay), bottom = select<F>(upper, ay, ax);
  // 0/0 and inf/inf: 0 and 1 give what C prescribes.
  F t = top / bottom;
  t = select<F>(bottom == 0.0f, F{}, select<F>(top == kInf, set<F>(1.0f), t));
  const F v = mad(t, atan_tail(t * t), t);
  F r = select<F>(upper, kHalfPi - (v - kHalfPiLow), v);
  r = select<F>(bits(x) < 0, 2.0f * kHalfPi - (r - 2.0f * kHalfPiLow), r);
  return select<F>((x != x) | (y != y), x + y, copysign(r, y));
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
