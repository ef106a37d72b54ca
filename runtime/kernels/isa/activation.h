// activation.h: the activations that kernels apply in registers.
#pragma once

#include "kernels/isa/simd.h"
#include "kernels/isa/table.h"

namespace opforge {
namespace OPFORGE_ISA {

// NaN stays NaN: vmax(lo, x) and vmin(hi, x) give x when x is NaN.
template <ActivationKind A, int L>
static OPFORGE_INLINE Vec<L> activate(Vec<L> x, const Activation& a) {
  if constexpr (A == ActivationKind::kClip) {
    return vmin<L>(splat<L>(a.hi), vmax<L>(splat<L>(a.lo), x));
  } else if constexpr (A != ActivationKind::kNone) {
    Vec<L> g = vfma<L>(x, splat<L>(a.s), splat<L>(a.o));
    g = vmin<L>(splat<L>(1.0f), vmax<L>(Vec<L>{}, g));
    if constexpr (A == ActivationKind::kGate) return x * g;
    if constexpr (A == ActivationKind::kGateAffine) return vfma<L>(x, g, splat<L>(a.t));
    return g;
  } else {
    return x;
  }
}

// The runtime switch, for loops where it does not matter. It stands in so many places that the build for the
// oldest processors, which is there to run and not to be fast, calls it instead.
template <int L>
static
#if defined(__x86_64__) && !defined(__AVX__)
    __attribute__((noinline))
#else
    OPFORGE_INLINE
#endif
    Vec<L> activate_any(Vec<L> x, const Activation& a) {
  switch (a.kind) {
    case ActivationKind::kClip:
      return activate<ActivationKind::kClip, L>(x, a);
    case ActivationKind::kGate:
      return activate<ActivationKind::kGate, L>(x, a);
    case ActivationKind::kGateAffine:
      return activate<ActivationKind::kGateAffine, L>(x, a);
    case ActivationKind::kHardSigmoid:
      return activate<ActivationKind::kHardSigmoid, L>(x, a);
    default:
      return x;
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
