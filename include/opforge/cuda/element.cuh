// element.cuh: elements of tensors in CUDA kernels: in which type they are computed, how they get there and back,
// singly or in packs that are loaded and stored as one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

#define OPFORGE_INLINE __device__ __forceinline__

namespace opforge {
namespace cuda {

// float for halves and float, double for double.
template <class S>
struct ComputeOf {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
template <class S>
using compute_t = typename ComputeOf<S>::Type;

OPFORGE_INLINE float widen(__half x) { return __half2float(x); }
OPFORGE_INLINE float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class E>
OPFORGE_INLINE E widen(E x) {
  return x;
}
// Rounded once, to nearest even.
template <class S>
struct Narrow {
  template <class V>
  OPFORGE_INLINE static S of(V x) {
    return static_cast<S>(x);
  }
};
template <>
struct Narrow<__half> {
  OPFORGE_INLINE static __half of(float x) { return __float2half_rn(x); }
};
template <>
struct Narrow<__nv_bfloat16> {
  OPFORGE_INLINE static __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
};
template <class S, class V>
OPFORGE_INLINE S narrow(V x) {
  return Narrow<S>::of(x);
}

// Two neighbours at once: narrowing to halves has one instruction for it.
template <class E, class V>
OPFORGE_INLINE void widen_pair(const E* from, V* first, V* second) {
  *first = static_cast<V>(widen(from[0]));
  *second = static_cast<V>(widen(from[1]));
}
template <class E, class V>
OPFORGE_INLINE void narrow_pair(E* to, V first, V second) {
  to[0] = narrow<E>(first);
  to[1] = narrow<E>(second);
}
#define OPFORGE_PAIRS(type, word)                                        \
  OPFORGE_INLINE void narrow_pair(type* to, float first, float second) { \
    const type##2 pair = __floats2##word##2_rn(first, second);           \
    to[0] = pair.x;                                                      \
    to[1] = pair.y;                                                      \
  }
OPFORGE_PAIRS(__half, half)
OPFORGE_PAIRS(__nv_bfloat16, bfloat16)
#undef OPFORGE_PAIRS

// a * b + c, rounded once.
OPFORGE_INLINE float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
OPFORGE_INLINE double fused(double a, double b, double c) { return ::fma(a, b, c); }

// W elements that are loaded and stored as one; their address is a multiple of their size.
template <class E, int W>
struct alignas(sizeof(E) * W) Pack {
  E element[W];
};
// Elements that 16 bytes hold, which is the most that one load takes.
template <class E>
constexpr int kPack = 16 / static_cast<int>(sizeof(E));

template <class E, int W>
OPFORGE_INLINE Pack<E, W> load_pack(const E* from) {
  return *reinterpret_cast<const Pack<E, W>*>(from);
}
template <class E, int W>
OPFORGE_INLINE void store_pack(E* to, const Pack<E, W>& pack) {
  *reinterpret_cast<Pack<E, W>*>(to) = pack;
}

}  // namespace cuda
}  // namespace opforge
