// simd.h: vectors of L floats, and the few operations where the compiler needs to be told the instruction.
//
// Built into namespace opforge::OPFORGE_ISA once per instruction set. max/min: GCC turns `a > b ? a : b` into
// compare and blend, so the instruction is named where there is one; both return b when either is NaN or both
// are zeros. fma: fused where the profile is fast, two roundings in strict.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef OPFORGE_ISA
#define OPFORGE_ISA baseline
#endif

#define OPFORGE_INLINE inline __attribute__((always_inline))
#define OPFORGE_UNROLL _Pragma("GCC unroll 64")

namespace opforge {
namespace OPFORGE_ISA {

#if !defined(OPFORGE_PROFILE_STRICT) && (defined(__FMA__) || defined(__aarch64__))
constexpr bool kFused = true;
#else
constexpr bool kFused = false;
#endif
#if defined(__AVX512F__)
constexpr int kWidth = 16, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kWidth = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kWidth = 4, kRegisters = 32;
#elif defined(__SSE__)
constexpr int kWidth = 4, kRegisters = 16;
#else
// Four floats at once all the same, in 32 scalar registers. (32-bit ARM: NEON flushes denormals to zero, so
// GCC does not use it for floats, and rightly so.)
constexpr int kWidth = 4, kRegisters = 8;
#endif
constexpr int kHalfWidth = kWidth < 8 ? kWidth : 8;  // lanes of a vector that serves half blocks

template <int L>
struct VectorOf {
  typedef float Register __attribute__((vector_size(L * 4)));
  typedef float Memory __attribute__((vector_size(L * 4), aligned(4), may_alias));
};
template <int L>
using Vec = typename VectorOf<L>::Register;

template <int L>
static OPFORGE_INLINE Vec<L> load(const float* p) {
  return *reinterpret_cast<const typename VectorOf<L>::Memory*>(p);
}
template <int L>
static OPFORGE_INLINE void store(float* p, Vec<L> v) {
  *reinterpret_cast<typename VectorOf<L>::Memory*>(p) = v;
}
// x - 0 keeps the sign of zero and folds to one broadcast; 0 + x would cost an addition.
template <int L>
static OPFORGE_INLINE Vec<L> splat(float x) {
  return x - Vec<L>{};
}

template <int L>
static OPFORGE_INLINE Vec<L> vmax(Vec<L> a, Vec<L> b) {
#if defined(__AVX512F__)
  // The masked form: the plain one trips -Wmaybe-uninitialized in GCC 12.
  if constexpr (L == 16) return (Vec<L>)_mm512_maskz_max_ps((__mmask16)-1, (__m512)a, (__m512)b);
#endif
#if defined(__AVX__)
  if constexpr (L == 8) return (Vec<L>)_mm256_max_ps((__m256)a, (__m256)b);
#endif
#if defined(__SSE__)
  if constexpr (L == 4) return (Vec<L>)_mm_max_ps((__m128)a, (__m128)b);
#endif
  return a > b ? a : b;
}

template <int L>
static OPFORGE_INLINE Vec<L> vmin(Vec<L> a, Vec<L> b) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return (Vec<L>)_mm512_maskz_min_ps((__mmask16)-1, (__m512)a, (__m512)b);
#endif
#if defined(__AVX__)
  if constexpr (L == 8) return (Vec<L>)_mm256_min_ps((__m256)a, (__m256)b);
#endif
#if defined(__SSE__)
  if constexpr (L == 4) return (Vec<L>)_mm_min_ps((__m128)a, (__m128)b);
#endif
  return a < b ? a : b;
}

// a*b + c
template <int L>
static OPFORGE_INLINE Vec<L> vfma(Vec<L> a, Vec<L> b, Vec<L> c) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return (Vec<L>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#endif
#if defined(__FMA__)
  if constexpr (L == 8) return (Vec<L>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  if constexpr (L == 4) return (Vec<L>)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#endif
  if constexpr (kFused) {
    Vec<L> r;
    for (int i = 0; i < L; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
  } else {
    return a * b + c;
  }
}
static OPFORGE_INLINE float sfma(float a, float b, float c) {
  if constexpr (kFused) return __builtin_fmaf(a, b, c);
  return a * b + c;
}

static OPFORGE_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static OPFORGE_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Blocks of a channel count: whole blocks of 16, then perhaps a half block of 8.
static OPFORGE_INLINE int64_t whole_blocks(int64_t channels) { return (channels + 7) / 16; }
static OPFORGE_INLINE bool half_block(int64_t channels) { return channels % 16 >= 1 && channels % 16 <= 8; }
static OPFORGE_INLINE int64_t all_blocks(int64_t channels) { return (channels + 15) / 16; }
static OPFORGE_INLINE int64_t padded_channels(int64_t channels) { return (channels + 7) / 8 * 8; }

}  // namespace OPFORGE_ISA
}  // namespace opforge
