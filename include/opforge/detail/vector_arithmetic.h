// vector_arithmetic.h: exactly rounded operations on raw vectors: extrema, signs, rounding to integers.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// NaN in either operand gives NaN; of equal operands (zeros of both signs) the second is the result.
template <class F>
OPFORGE_INLINE F min(F a, F b) {
  return select<F>(a != a, a, lesser(a, b));
}
template <class F>
OPFORGE_INLINE F max(F a, F b) {
  return select<F>(a != a, a, greater(a, b));
}
// NaN and -0 stay.
template <class F>
OPFORGE_INLINE F relu(F x) {
  return greater(F{}, x);
}
template <class F>
OPFORGE_INLINE F sign(F x) {
  return select<F>(x > 0, set<F>(1), select<F>(x < 0, set<F>(-1), x));
}

// Beyond 2^23 (2^52) every value is an integer; below, adding and taking away that number rounds to nearest
// even.
template <class F>
constexpr Lane<F> kIntegersFrom = std::is_same_v<Lane<F>, float> ? Lane<F>(0x1p23) : Lane<F>(0x1p52);
template <class F>
OPFORGE_INLINE F round(F x) {
  const F a = abs(x);
  const F r = (a + kIntegersFrom<F>)-kIntegersFrom<F>;
  return select<F>(a < kIntegersFrom<F>, copysign(r, x), x);
}
template <class F>
OPFORGE_INLINE F floor(F x) {
  const F r = round(x);
  return select<F>(r > x, r - 1, r);
}
template <class F>
OPFORGE_INLINE F ceil(F x) {
  const F r = round(x);
  return select<F>(r < x, copysign(r + 1, x), r);
}
template <class F>
OPFORGE_INLINE F trunc(F x) {
  const F a = abs(x), r = round(a);
  return copysign(select<F>(r > a, r - 1, r), x);
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
