// vector_pair.h: two vectors treated as one. Formula bodies run on pairs of pairs, so that four independent
// chains of instructions stand side by side and hide each other's latency. Bits do not change.
#pragma once

#include "opforge/detail/vector_functions.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {

#define OPFORGE_PAIR_1(name)                                   \
  template <class V>                                           \
  OPFORGE_INLINE auto name(Pair<V> x) {                        \
    return Pair<decltype(name(x.lo))>{name(x.lo), name(x.hi)}; \
  }
#define OPFORGE_PAIR_2(name)                                                     \
  template <class V>                                                             \
  OPFORGE_INLINE auto name(Pair<V> x, Pair<V> y) {                               \
    return Pair<decltype(name(x.lo, y.lo))>{name(x.lo, y.lo), name(x.hi, y.hi)}; \
  }
#define OPFORGE_PAIR_3(name)                                     \
  template <class V>                                             \
  OPFORGE_INLINE Pair<V> name(Pair<V> x, Pair<V> y, Pair<V> z) { \
    return {name(x.lo, y.lo, z.lo), name(x.hi, y.hi, z.hi)};     \
  }
OPFORGE_PAIR_2(add)
OPFORGE_PAIR_2(sub)
OPFORGE_PAIR_2(mul)
OPFORGE_PAIR_2(div)
OPFORGE_PAIR_2(min)
OPFORGE_PAIR_2(max)
OPFORGE_PAIR_2(pow)
OPFORGE_PAIR_2(mod)
OPFORGE_PAIR_2(fmod)
OPFORGE_PAIR_2(atan2)
OPFORGE_PAIR_3(fma)
OPFORGE_PAIR_3(fnma)
OPFORGE_PAIR_3(clip)
OPFORGE_PAIR_1(neg)
OPFORGE_PAIR_1(abs)
OPFORGE_PAIR_1(sign)
OPFORGE_PAIR_1(sqrt)
OPFORGE_PAIR_1(rsqrt)
OPFORGE_PAIR_1(cbrt)
OPFORGE_PAIR_1(reciprocal)
OPFORGE_PAIR_1(square)
OPFORGE_PAIR_1(relu)
OPFORGE_PAIR_1(exp)
OPFORGE_PAIR_1(exp2)
OPFORGE_PAIR_1(expm1)
OPFORGE_PAIR_1(log)
OPFORGE_PAIR_1(log2)
OPFORGE_PAIR_1(log10)
OPFORGE_PAIR_1(log1p)
OPFORGE_PAIR_1(sin)
OPFORGE_PAIR_1(cos)
OPFORGE_PAIR_1(tan)
OPFORGE_PAIR_1(asin)
OPFORGE_PAIR_1(acos)
OPFORGE_PAIR_1(atan)
OPFORGE_PAIR_1(sinh)
OPFORGE_PAIR_1(cosh)
OPFORGE_PAIR_1(tanh)
OPFORGE_PAIR_1(asinh)
OPFORGE_PAIR_1(acosh)
OPFORGE_PAIR_1(atanh)
OPFORGE_PAIR_1(erf)
OPFORGE_PAIR_1(erfc)
OPFORGE_PAIR_1(sigmoid)
OPFORGE_PAIR_1(softplus)
OPFORGE_PAIR_1(floor)
OPFORGE_PAIR_1(ceil)
OPFORGE_PAIR_1(round)
OPFORGE_PAIR_1(trunc)
OPFORGE_PAIR_2(lt)
OPFORGE_PAIR_2(le)
OPFORGE_PAIR_2(eq)
OPFORGE_PAIR_2(ne)
OPFORGE_PAIR_2(gt)
OPFORGE_PAIR_2(ge)
OPFORGE_PAIR_1(isnan)
OPFORGE_PAIR_1(isinf)
OPFORGE_PAIR_2(logical_and)
OPFORGE_PAIR_2(logical_or)
OPFORGE_PAIR_2(logical_xor)
OPFORGE_PAIR_1(logical_not)
#undef OPFORGE_PAIR_1
#undef OPFORGE_PAIR_2
#undef OPFORGE_PAIR_3

}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
