// vector_half.h: f16 and bf16 storage: widening is exact, narrowing rounds to nearest even. The integer forms
// and the hardware's instructions give the same values; bf16 has no hardware path because AVX512-BF16 flushes
// denormals.
#pragma once

#include "opforge/detail/vector_core.h"
#include "opforge/half.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw {

template <int N>
using Half = typename RawOf<uint16_t, N>::Type;
template <int N>
using Floats = typename RawOf<float, N>::Type;

template <int N>
OPFORGE_INLINE Floats<N> bf16_to_float(Half<N> h) {
  using F = Floats<N>;
  return from_bits<F>(__builtin_convertvector(h, IntOf<F>) << 16);
}
template <int N>
OPFORGE_INLINE Half<N> float_to_bf16(Floats<N> x) {
  using I = IntOf<Floats<N>>;
  const I b = bits(x);
  const I rounded = b + 0x7fff + ((b >> 16) & 1);
  const I r = (x != x) ? b | 0x400000 : rounded;
  return __builtin_convertvector((r >> 16) & 0xffff, Half<N>);
}
template <int N>
OPFORGE_INLINE Floats<N> f16_to_float(Half<N> h) {
  using F = Floats<N>;
  using I = IntOf<F>;
#if OPFORGE_GCC_X86 && defined(__F16C__)
  using Shorts = typename RawOf<short, N>::Type;
#ifdef __AVX512F__
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask((Shorts)h, F{}, -1, 4);
#endif
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256((Shorts)h);
#endif
  const I w = __builtin_convertvector(h, I);
  const I magnitude = (w & 0x7fff) << 13;
  // Multiplying by 2^112 moves the exponent's bias from 15 to 127 and makes denormals normal.
  const I finite = bits(from_bits<F>(magnitude) * 0x1p112f);
  const I r = ((w & 0x7c00) == 0x7c00) ? magnitude | 0x7f800000 : finite;
  return from_bits<F>(r | ((w & 0x8000) << 16));
}
template <int N>
OPFORGE_INLINE Half<N> float_to_f16(Floats<N> x) {
  using F = Floats<N>;
  using I = IntOf<F>;
#if OPFORGE_GCC_X86 && defined(__F16C__)
#ifdef __AVX512F__
  using Shorts = typename RawOf<short, N>::Type;
  if constexpr (N == 16) return (Half<N>)__builtin_ia32_vcvtps2ph512_mask(x, 0, Shorts{}, -1);
#endif
  if constexpr (N == 8) return (Half<N>)__builtin_ia32_vcvtps2ph256(x, 0);
#endif
  const I b = bits(x);
  const I magnitude = b & 0x7fffffff;
  const I normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 adding 0.5 leaves the value, rounded to a multiple of 2^-24, in the low bits.
  const I denormal = bits(from_bits<F>(magnitude) + 0.5f) - 0x3f000000;
  I r = (magnitude < 0x38800000) ? denormal : normal;
  r = (magnitude >= 0x47800000) ? I{} + 0x7c00 : r;
  r = (magnitude > 0x7f800000) ? (I{} + 0x7e00) | ((magnitude >> 13) & 0x1ff) : r;
  return __builtin_convertvector((r | ((b >> 16) & 0x8000)) & 0xffff, Half<N>);
}

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
