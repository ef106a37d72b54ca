// vector_core.h: vector types, the numeric profile, and the few operations that have an instruction of their
// own.
#pragma once

#include <stdint.h>
#include <string.h>

#include <type_traits>

// Vectors wider than the target's registers are passed in memory; everything here is inlined, so the ABI
// notes about that do not matter.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif

#define OPFORGE_INLINE inline __attribute__((always_inline))
#define OPFORGE_NOINLINE __attribute__((noinline))

// The profile and the natural width name the inline namespace, so that objects built for different
// instruction sets never share a function.
#if !defined(OPFORGE_PROFILE_STRICT) && (defined(__FMA__) || defined(__aarch64__))
#define OPFORGE_PROFILE_FAST 1
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define OPFORGE_VECTOR_NAMESPACE fast16
#define OPFORGE_VECTOR_LANES 16
#elif defined(__AVX2__)
#define OPFORGE_VECTOR_NAMESPACE fast8
#define OPFORGE_VECTOR_LANES 8
#else
#define OPFORGE_VECTOR_NAMESPACE fast4
#define OPFORGE_VECTOR_LANES 4
#endif
#else
#define OPFORGE_PROFILE_FAST 0
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define OPFORGE_VECTOR_NAMESPACE strict16
#define OPFORGE_VECTOR_LANES 16
#elif defined(__AVX2__)
#define OPFORGE_VECTOR_NAMESPACE strict8
#define OPFORGE_VECTOR_LANES 8
#else
#define OPFORGE_VECTOR_NAMESPACE strict4
#define OPFORGE_VECTOR_LANES 4
#endif
#endif
// GCC's names of x86 instructions (Clang finds the instructions from the generic forms by itself).
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define OPFORGE_GCC_X86 1
#else
#define OPFORGE_GCC_X86 0
#endif

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {

constexpr bool kFast = OPFORGE_PROFILE_FAST;
constexpr int kLanes = OPFORGE_VECTOR_LANES;  // floats in a register

template <class E, int N>
struct RawOf {
  typedef E Type __attribute__((vector_size(sizeof(E) * N)));
};
template <int N>
struct RawOf<bool, N> {  // a truth value is an int32 lane, 0 or -1
  typedef int32_t Type __attribute__((vector_size(4 * N)));
};

// N elements of type E. In memory a bool is one byte, in a vector an int32 lane.
template <class E, int N>
struct Vec {
  using Element = E;
  using Raw = typename RawOf<E, N>::Type;
  static constexpr int kSize = N;
  Raw v;
};
// Two vectors treated as one (vector_pair.h).
template <class V>
struct Pair {
  using Element = typename V::Element;
  static constexpr int kSize = 2 * V::kSize;
  V lo, hi;
};
template <class V>
constexpr bool kIsPair = false;
template <class V>
constexpr bool kIsPair<Pair<V>> = true;
template <class V, class E>
struct RebindOf {
  using Type = Vec<E, V::kSize>;
};
template <class V, class E>
struct RebindOf<Pair<V>, E> {
  using Type = Pair<typename RebindOf<V, E>::Type>;
};
// The vector of as many elements of type E.
template <class V, class E>
using Rebind = typename RebindOf<V, E>::Type;

// The raw layer: functions on GCC vectors, which the math is written with. F is a vector of floats (or
// doubles).
namespace raw {

template <class F>
using Lane = std::remove_cv_t<std::remove_reference_t<decltype(F{}[0])>>;
template <class F>
constexpr int kCount = sizeof(F) / sizeof(Lane<F>);
template <class F>
using IntOf = decltype(F{} < F{});  // the vector of signed integers of equal width
template <class E, class F>
using Like = typename RawOf<E, kCount<F>>::Type;

// __builtin_convertvector; but GCC takes lane by lane what differs fourfold in size, so bytes go by the sizes
// between.
template <class To, class From>
OPFORGE_INLINE To convert(From x) {
  constexpr size_t to = sizeof(Lane<To>), from = sizeof(Lane<From>);
  if constexpr (from == 1 && to > 2) {
    return __builtin_convertvector(
        __builtin_convertvector(__builtin_convertvector(x, Like<int16_t, From>), Like<int32_t, From>), To);
  } else if constexpr (to == 1 && from > 2 && std::is_integral_v<Lane<From>>) {
    const auto words = __builtin_convertvector(x, Like<int32_t, From>);
    return __builtin_convertvector(__builtin_convertvector(words, Like<int16_t, From>), To);
  } else {
    return __builtin_convertvector(x, To);
  }
}

template <class F>
OPFORGE_INLINE F set(Lane<F> x) {
  return x - F{};  // not x + F{}: -0 + 0 is +0
}
template <class F>
OPFORGE_INLINE IntOf<F> bits(F x) {
  return (IntOf<F>)x;
}
template <class F>
OPFORGE_INLINE F from_bits(IntOf<F> x) {
  return (F)x;
}
template <class F>
constexpr Lane<IntOf<F>> kSignBit = Lane<IntOf<F>>(1) << (sizeof(Lane<F>) * 8 - 2) << 1;
template <class F>
constexpr Lane<IntOf<F>> kMagnitude = ~kSignBit<F>;

template <class F>
OPFORGE_INLINE F select(IntOf<F> condition, F a, F b) {
  return condition ? a : b;
}
template <class F>
OPFORGE_INLINE F abs(F x) {
  return from_bits<F>(bits(x) & kMagnitude<F>);
}
template <class F>
OPFORGE_INLINE F neg(F x) {
  return -x;  // flips the sign bit, of zeros and NaN too
}
template <class F>
OPFORGE_INLINE F neg_abs(F x) {
  return from_bits<F>(bits(x) | kSignBit<F>);
}
template <class F>
OPFORGE_INLINE F copysign(F magnitude, F sign) {
  return from_bits<F>((bits(magnitude) & kMagnitude<F>) | (bits(sign) & kSignBit<F>));
}

// One instruction each, which GCC does not find from the generic form: a < b ? a : b and a > b ? a : b. Of
// two operands that do not compare (NaN) or are equal (zeros), the second is the result.
template <class F>
OPFORGE_INLINE F lesser(F a, F b) {
#if OPFORGE_GCC_X86
  if constexpr (std::is_same_v<Lane<F>, float>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_minps(a, b);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_minps256(a, b);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_minps512_mask(a, b, a, -1, 4);
#endif
  }
  if constexpr (std::is_same_v<Lane<F>, double>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_minpd(a, b);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_minpd256(a, b);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_minpd512_mask(a, b, a, -1, 4);
#endif
  }
#endif
  return a < b ? a : b;
}
template <class F>
OPFORGE_INLINE F greater(F a, F b) {
#if OPFORGE_GCC_X86
  if constexpr (std::is_same_v<Lane<F>, float>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_maxps(a, b);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_maxps256(a, b);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_maxps512_mask(a, b, a, -1, 4);
#endif
  }
  if constexpr (std::is_same_v<Lane<F>, double>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_maxpd(a, b);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_maxpd256(a, b);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_maxpd512_mask(a, b, a, -1, 4);
#endif
  }
#endif
  return a > b ? a : b;
}
// Clamps; a NaN x stays NaN.
template <class F>
OPFORGE_INLINE F clip(F x, F lo, F hi) {
  return lesser(hi, greater(lo, x));
}
template <class F>
OPFORGE_INLINE F clip(F x, Lane<F> lo, Lane<F> hi) {
  return clip(x, set<F>(lo), set<F>(hi));
}

// a * b + c with one rounding. Only the fast profile may call it.
template <class F>
OPFORGE_INLINE F fused(F a, F b, F c) {
#if OPFORGE_GCC_X86 && defined(__FMA__)
  if constexpr (std::is_same_v<Lane<F>, float>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_vfmaddps(a, b, c);
    if constexpr (sizeof(F) == 32) return __builtin_ia32_vfmaddps256(a, b, c);
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#endif
  } else {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_vfmaddpd(a, b, c);
    if constexpr (sizeof(F) == 32) return __builtin_ia32_vfmaddpd256(a, b, c);
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
#endif
  }
#endif
  F r = c;
  for (int i = 0; i < kCount<F>; ++i) {
    if constexpr (std::is_same_v<Lane<F>, float>) {
      r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    } else {
      r[i] = __builtin_fma(a[i], b[i], c[i]);
    }
  }
  return r;
}
// a * b + c as the profile has it.
template <class F>
OPFORGE_INLINE F mad(F a, F b, F c) {
  if constexpr (kFast) {
    return fused(a, b, c);
  } else {
    return a * b + c;
  }
}
template <class F>
OPFORGE_INLINE F mad(F a, F b, Lane<F> c) {
  return mad(a, b, set<F>(c));
}
template <class F>
OPFORGE_INLINE F mad(F a, Lane<F> b, F c) {
  return mad(a, set<F>(b), c);
}
template <class F>
OPFORGE_INLINE F mad(F a, Lane<F> b, Lane<F> c) {
  return mad(a, set<F>(b), set<F>(c));
}

template <class F>
OPFORGE_INLINE F sqrt(F x) {
#if OPFORGE_GCC_X86
  if constexpr (std::is_same_v<Lane<F>, float>) {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_sqrtps(x);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_sqrtps256(x);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#endif
  } else {
    if constexpr (sizeof(F) == 16) return __builtin_ia32_sqrtpd(x);
#ifdef __AVX__
    if constexpr (sizeof(F) == 32) return __builtin_ia32_sqrtpd256(x);
#endif
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4);
#endif
  }
#endif
  F r;
  for (int i = 0; i < kCount<F>; ++i) {
    if constexpr (std::is_same_v<Lane<F>, float>) {
      r[i] = __builtin_sqrtf(x[i]);
    } else {
      r[i] = __builtin_sqrt(x[i]);
    }
  }
  return r;
}

// c[0] * x^n + ... + c[n], highest power first.
template <class F>
OPFORGE_INLINE F horner(F, F sum) {
  return sum;
}
template <class F, class... C>
OPFORGE_INLINE F horner(F x, F sum, Lane<F> next, C... rest) {
  return horner(x, mad(sum, x, next), rest...);
}
template <class F, class... C>
OPFORGE_INLINE F poly(F x, Lane<F> first, C... rest) {
  return horner(x, set<F>(first), Lane<F>(rest)...);
}

template <class I>
OPFORGE_INLINE bool any(I mask) {
  uint64_t words[sizeof(I) / 8];
  memcpy(words, &mask, sizeof(I));
  uint64_t all = 0;
  for (size_t i = 0; i < sizeof(I) / 8; ++i) all |= words[i];
  return all != 0;
}

// Adding 1.5 * 2^23 rounds to an integer, to nearest even, for |x| < 2^22; the integer is then in the low
// bits.
constexpr float kMagic = 0x1.8p23f;
constexpr double kMagicDouble = 0x1.8p52;
constexpr float kInf = __builtin_inff();
constexpr float kNaN = __builtin_nanf("");

}  // namespace raw
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
