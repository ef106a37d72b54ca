// vector64_erf.h: erf and erfc on raw vectors of doubles. Coefficients: tools/minimax.py.
#pragma once

#include "opforge/detail/vector64_log.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

// (erf(x) - x) / x for s = x^2 <= 1
template <class F>
OPFORGE_INLINE F erf_tail(F s) {
  return poly(s, 0x1.6844d5061ca66p-33, -0x1.e4a36e6b57190p-30, 0x1.1816b38ebe972p-26, -0x1.6471f7f02004bp-23,
              0x1.ba822ae30df9ep-20, -0x1.f4dec427a9b29p-17, 0x1.f9a3cf963d81cp-14, -0x1.c02db9e1db757p-11,
              0x1.565bcd2faa5bbp-8, -0x1.b82ce31366585p-6, 0x1.ce2f21a045b8fp-4, -0x1.812746b037a27p-2,
              0x1.06eba8214db69p-3);
}
template <class F>
OPFORGE_INLINE F erf(F x) {
  const F small = mad(x, erf_tail(x * x), x);
  // 1 - exp(-t - t q(t)) from 1 to 6, where the result is 1
  const F t = lesser(set<F>(6.0), abs(x));
  const F q =
      poly(t, 0x1.c59bcb2a306e3p-43, -0x1.5ea96f305010ep-37, 0x1.feeccd19cce1bp-33, -0x1.d253e6dd4cd3cp-29,
           0x1.2ac81f60dd81cp-25, -0x1.1d1cd052a39fep-22, 0x1.a295601e4ba82p-20, -0x1.df9b6c13dd781p-18,
           0x1.aaf28b3a596bbp-16, -0x1.1c4d916378dd2p-14, 0x1.eb1f5dd7af267p-14, -0x1.11c31eb4c07ebp-15,
           -0x1.1a0e076e522e8p-11, 0x1.b304293cc9b45p-10, -0x1.8cba2d83c213dp-13, -0x1.39889c0498ca8p-6,
           0x1.a4f74f649324ap-4, 0x1.45f2f9112f1d8p-1, 0x1.06ebacbcc7d3fp-3);
  const Exponential<F> e = exponential(neg(mad(t, q, t)));
  const F large = 1.0 - one_plus(e) * power_of_two(e.shifted);
  return select<F>(abs(x) < 1.0, small, copysign(large, x));
}
// 1 - erf(x) up to 0.46875, where it is about one half; beyond exp(-x^2) p(v) / (1 + 2 x), v = (x - 4) / (x +
// 4), after Shepherd and Laframboise. x^2 is exact in two parts, and so is p(0); what the rounding of 1 + 2 x
// took is put back.
template <class F>
OPFORGE_INLINE F erfc(F x) {
  const F near = 1.0 - mad(x, erf_tail(x * x), x);
  const F a = lesser(set<F>(28.0), abs(x));
  const F d = mad(a, 2.0, set<F>(1.0));
  const F both = 1.0 / ((a + 4.0) * d);
  const F v = (a - 4.0) * (both * d);
  const F lost = (((a + a) - d) + 1.0) * (both * (a + 4.0));  // of 1 + 2 x
  constexpr double kMiddle = 0x1.3ba5916e9fd7fp+0;
  const F p =
      poly(v, 0x1.a62234c2037bcp-30, -0x1.4f5d6f18854bdp-27, -0x1.252320742289bp-26, 0x1.bcc348938d445p-24,
           0x1.3c2ddb465fb55p-24, -0x1.b8285dce3fe3ep-21, 0x1.3c31247fa736cp-22, 0x1.7ef8bd8ee82bep-18,
           -0x1.788ecb2140032p-17, -0x1.99553edc4482cp-16, 0x1.3be06eda0c348p-13, -0x1.a1df41be2c047p-13,
           -0x1.8d4a9c512b170p-11, 0x1.49c672a64038cp-8, -0x1.09623882c0a20p-6, 0x1.3079edf629862p-5,
           -0x1.0fb06dfe5398bp-4, 0x1.7fee004e147d8p-4, -0x1.9ddb23c3e8afep-4, 0x1.16ecefcfa52cep-4,
           0x1.f7f5df66fd717p-7, -0x1.1df1ad154a28ep-3, -0x1.a4b041dfcbfbap-55);
  const F h = head(a);
  const Exponential<F> e = exponential(neg(h * h), (a - h) * (a + h));
  const F q = kMiddle + mad(p + kMiddle, (e.r + e.tail) - lost, p);
  const F tail = scale(q / d, e.n);
  const F result = select<F>(abs(x) < 0.46875, near, select<F>(x < 0.0, 2.0 - tail, tail));
  return select<F>(x == x, result, x);
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
