// vector64_inverse.h: asin, acos, atan, atan2 on raw vectors of doubles. Coefficients: tools/minimax.py.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

using namespace raw;

// pi/2 and pi/4 as the sums of two doubles. The first part ends in three zeros: three times it is exact.
constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kQuarterPi = 0x1.921fb54442d18p-1, kQuarterPiLow = 0x1.1a62633145c07p-55;

// (asin(x) - x) / x for s = x^2 <= 1/4
template <class F>
OPFORGE_INLINE F asin_tail(F s) {
  return s * poly(s, 0x1.0be447608db78p-5, -0x1.59f61821b6981p-6, 0x1.6501aee202721p-6, 0x1.e15c6acfa0d38p-9,
                  0x1.618aa4eecc649p-7, 0x1.75779171005bbp-7, 0x1.ca2143b372199p-7, 0x1.1c49de08bebadp-6,
                  0x1.6e8bdfe622f29p-6, 0x1.f1c71a8ba15dap-6, 0x1.6db6db722b570p-5, 0x1.333333332df17p-4,
                  0x1.5555555555578p-3);
}
template <class F>
OPFORGE_INLINE F asin(F x) {
  const F a = abs(x);
  const IntOf<F> upper = a > 0.5;
  // asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))
  const F half = 0.5 - a * 0.5;
  const F root = sqrt(select<F>(upper, half, set<F>(0.25)));
  const F s = select<F>(upper, half, x * x), r = select<F>(upper, root, a);
  const F tail = r * asin_tail(s);
  // pi/4 twice: the inner difference is exact where its rounding would count
  const F result =
      select<F>(upper, kQuarterPi - ((tail + tail - kHalfPiLow) - (kQuarterPi - (r + r))), r + tail);
  return select<F>(a <= 1.0, copysign(result, x), set<F>(kNaN));
}
template <class F>
OPFORGE_INLINE F acos(F x) {
  const F a = abs(x);
  const IntOf<F> upper = a > 0.5;
  const F half = 0.5 - a * 0.5;
  const F root = sqrt(select<F>(upper, half, set<F>(0.25)));
  const F s = select<F>(upper, half, x * x), r = select<F>(upper, root, x);
  const F tail = r * asin_tail(s), v = r + tail;
  const F twice = v + v;
  const F outer = select<F>(x < 0.0, 2.0 * kHalfPi - (twice - 2.0 * kHalfPiLow), twice);
  const F inner = kHalfPi - (x - (kHalfPiLow - tail));
  return select<F>(a <= 1.0, select<F>(upper, outer, inner), set<F>(kNaN));
}

// (atan(t) - t) / t for s = t^2 <= 1/4
template <class F>
OPFORGE_INLINE F atan_tail(F s) {
  return s * poly(s, -0x1.1287ee0d61407p-7, 0x1.83e5ae4fa9cf7p-6, -0x1.3032e71b76f13p-5, 0x1.7805203775edcp-5,
                  -0x1.ac75115066f45p-5, 0x1.e18343b474e94p-5, -0x1.110c77a970425p-4, 0x1.3b1361385a6aep-4,
                  -0x1.745d13968423fp-4, 0x1.c71c71ab2bb4ap-4, -0x1.2492492453ebap-3, 0x1.99999999990e5p-3,
                  -0x1.5555555555552p-2);
}
// m pi/4 + atan(t), `back`: m pi/4 - atan(t)
template <class F>
OPFORGE_INLINE F angle(F t, F m, IntOf<F> back) {
  const F u = select<F>(back, neg(t), t);
  return m * kQuarterPi + (u + mad(u, atan_tail(t * t), m * kQuarterPiLow));
}
// t = a up to 1/2, (a - 1) / (a + 1) up to 2, -1 / a beyond
template <class F>
OPFORGE_INLINE F atan(F x) {
  const F a = abs(x);
  const IntOf<F> middle = a > 0.5, high = a > 2.0;
  const F top = select<F>(high, set<F>(-1.0), select<F>(middle, a - 1.0, a));
  const F bottom = select<F>(high, a, select<F>(middle, a + 1.0, set<F>(1.0)));
  const F m = select<F>(high, set<F>(2.0), select<F>(middle, set<F>(1.0), F{}));
  return copysign(angle(top / bottom, m, IntOf<F>{}), x);
}
template <class F>
OPFORGE_INLINE F atan2(F y, F x) {
  const F ax = abs(x), ay = abs(y);
  const IntOf<F> upper = ay > ax, left = bits(x) < 0;
  F low = select<F>(upper, ax, ay), high = select<F>(upper, ay, ax);
  const F factor = select<F>(high > 0x1p1000, set<F>(0x1p-60), set<F>(1.0));  // low + high is finite
  low = low * factor;
  high = high * factor;
  const IntOf<F> both = low == kInf, middle = (low + low > high) | both;
  F t = select<F>(middle, low - high, low) / select<F>(middle, low + high, high);
  t = select<F>((high == 0.0) | both, F{}, t);  // 0/0 and inf/inf: what C prescribes
  // low/high is m pi/4 + atan(t) with m = 0 or 1; the octant makes it one of 0 to 4, forth or back.
  F m = select<F>(middle, set<F>(1.0), F{});
  m = select<F>(upper, 2.0 - m, m);
  m = select<F>(left, 4.0 - m, m);
  return select<F>((x != x) | (y != y), x + y, copysign(angle(t, m, upper ^ left), y));
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
