// vector_erf.h: erf and erfc on raw vectors of floats.
#pragma once

#include "opforge/detail/vector_core.h"
#include "opforge/detail/vector_exp.h"
#include "opforge/detail/vector_pow.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

// (erf(x) - x) / x for s = x^2, |x| < 0.9375
template <class F>
OPFORGE_INLINE F erf_tail(F s) {
  return poly(s, -0x1.36bffep-11f, 0x1.466fb6p-8f, -0x1.b66a50p-6f, 0x1.ce185ep-4f, -0x1.8126dcp-2f,
              0x1.06eba6p-3f);
}
template <class F>
OPFORGE_INLINE F erf(F x) {
  const F small = mad(x, erf_tail(x * x), x);
  // 1 - exp(-t - t q(t)) from 0.9375 to 4, where the result is 1
  const F t = lesser(set<F>(4.0f), abs(x));
  const F q = poly(t, 0x1.78d116p-17f, -0x1.52795cp-12f, 0x1.dd6ba8p-9f, -0x1.855122p-6f, 0x1.b32568p-4f,
                   0x1.45328ep-1f, 0x1.0778dcp-3f);
  const F large = 1.0f - exp_middle(neg(mad(t, q, t)));
  return select<F>(abs(x) < 0.9375f, small, copysign(large, x));
}
// 1 - erf(x) below 0.4, elsewhere exp(-x^2) times a polynomial in 1 / (1 + |x| / 2), in double.
template <class F>
OPFORGE_INLINE F erfc(F x) {
  using D = Like<double, F>;
  const F small = 1.0f - mad(x, erf_tail(x * x), x);
  const D a = __builtin_convertvector(lesser(set<F>(10.5f), abs(x)), D);
  const D u = 1.0 / (1.0 + 0.5 * a);
  const D p = poly(u, 0x1.e6d9bcd3abbe5p-5, -0x1.40b043b2eec41p-2, 0x1.50ae217a2972bp-1,
                   -0x1.4c42badbcbc7bp-1, 0x1.19f7160d2c3ddp-2, -0x1.056058fa6b8cap-3, 0x1.d5f964702bac5p-4,
                   0x1.5e65dda1bdc6ap-3, 0x1.faa98a439120fp-3, 0x1.20d460adfa633p-2, 0x1.20ddb367b1ec2p-2);
  const D tail = u * p * exp2_double(a * a * -0x1.71547652b82fep+0);
  const F large = __builtin_convertvector(tail, F);
  const D mirrored = 2.0 - tail;
  const F result = select<F>(x < 0.0f, __builtin_convertvector(mirrored, F), large);
  return select<F>(abs(x) < 0.40625f, small, result);
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
