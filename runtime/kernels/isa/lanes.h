// lanes.h: sixteen floats as one value at every vector width, and sums over rows in sixteen lanes: the order
// of docs/design/bytecode.md (blocks of 4096 elements, lane = index % 16, a balanced tree over the lanes).
#pragma once

#include "kernels/isa/simd.h"
#include "opforge/vector_math.h"

namespace opforge {
namespace OPFORGE_ISA {

constexpr int kParts = 16 / kWidth;
constexpr int64_t kSumBlock = 4096;

struct Lanes {
  Vec<kWidth> v[kParts];
};

template <class F>
static OPFORGE_INLINE Lanes map(const Lanes& a, F&& f) {
  Lanes r;
  OPFORGE_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = f(a.v[i]);
  return r;
}
template <class F>
static OPFORGE_INLINE Lanes map(const Lanes& a, const Lanes& b, F&& f) {
  Lanes r;
  OPFORGE_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r;
}
static OPFORGE_INLINE Lanes lanes_of(float x) {
  Lanes r;
  OPFORGE_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = splat<kWidth>(x);
  return r;
}
static OPFORGE_INLINE Lanes load16(const float* p) {
  Lanes r;
  OPFORGE_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = load<kWidth>(p + i * kWidth);
  return r;
}
static OPFORGE_INLINE void store16(float* p, const Lanes& a) {
  OPFORGE_UNROLL
  for (int i = 0; i < kParts; ++i) store<kWidth>(p + i * kWidth, a.v[i]);
}
// n < 16 floats; the other lanes are `fill`.
static OPFORGE_INLINE Lanes load_some(const float* p, int64_t n, float fill) {
  float t[16];
  for (int64_t i = 0; i < 16; ++i) t[i] = i < n ? p[i] : fill;
  return load16(t);
}
static OPFORGE_INLINE void store_some(float* p, int64_t n, const Lanes& a) {
  float t[16];
  store16(t, a);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}

// Lanes to one number by f: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
template <class F>
static OPFORGE_INLINE float tree(const Lanes& a, F&& f) {
  float t[16];
  store16(t, a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) t[i] = f(t[i], t[i + width]);
  return t[0];
}

// Folds n elements: lane by lane with `join`, elements first mapped by `each`; lanes beyond the end hold
// `neutral`.
template <class Each, class Join, class Join1>
static OPFORGE_INLINE float fold(const float* x, int64_t n, float neutral, Each&& each, Join&& join,
                                 Join1&& join1) {
  float total = neutral;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = least(n, begin + kSumBlock);
    Lanes sum = lanes_of(neutral);
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) sum = map(sum, map(load16(x + i), each), join);
    if (i < end) {  // only the lanes that exist
      float t[16], u[16];
      store16(t, sum);
      store16(u, map(load_some(x + i, end - i, neutral), each));
      for (int64_t k = 0; k < end - i; ++k) t[k] = join1(t[k], u[k]);
      sum = load16(t);
    }
    const float part = tree(sum, join1);
    total = begin == 0 ? part : join1(total, part);
  }
  return total;
}

template <class Each>
static OPFORGE_INLINE float sum_of(const float* x, int64_t n, Each&& each) {
  return fold(
      x, n, 0.0f, each, [](Vec<kWidth> a, Vec<kWidth> b) { return a + b; },
      [](float a, float b) { return a + b; });
}
static OPFORGE_INLINE float greatest(const float* x, int64_t n) {
  return fold(
      x, n, -__builtin_inff(), [](Vec<kWidth> a) { return a; },
      [](Vec<kWidth> a, Vec<kWidth> b) { return vmax<kWidth>(a, b); },
      [](float a, float b) { return a > b ? a : b; });
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
