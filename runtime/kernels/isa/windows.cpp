// windows.cpp: pools over rows of plain f32 tensors: outputs whose windows lie within the image.
#include <utility>

#include "kernels/isa/functions.h"
#include "kernels/isa/simd.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

template <int L>
struct IndexOf {
  typedef int32_t Register __attribute__((vector_size(L * 4)));
};

// Every second of 2 * L - 1 elements, of which b begins L - 1 behind a.
template <int L, int... I>
OPFORGE_INLINE Vec<L> every_second(Vec<L> a, Vec<L> b, std::integer_sequence<int, I...>) {
#if defined(__clang__)  // which has no __builtin_shuffle, as GCC before 12 has no __builtin_shufflevector
  return __builtin_shufflevector(a, b, (I < L / 2 ? 2 * I : 2 * I + 1)...);
#else
  const typename IndexOf<L>::Register pick = {(I < L / 2 ? 2 * I : 2 * I + 1)...};
  return __builtin_shuffle(a, b, pick);
#endif
}

// The elements of L outputs that lie `step` apart. No element behind the last one is read.
template <int L, int STEP>
OPFORGE_INLINE Vec<L> spread(const float* p, int64_t step) {
  if constexpr (STEP == 1) {
    return load<L>(p);
  } else if constexpr (STEP == 2) {
    return every_second<L>(load<L>(p), load<L>(p + L - 1), std::make_integer_sequence<int, L>());
  } else {
    Vec<L> v;
    for (int i = 0; i < L; ++i) v[i] = p[i * step];
    return v;
  }
}

// A greater element, or NaN, takes the place of the one so far.
template <int L>
OPFORGE_INLINE Vec<L> greater_of(Vec<L> so_far, Vec<L> t) {
  const Vec<L> most = vmax<L>(t, so_far);  // NaN gives `so_far`
  return t == t ? most : t;
}

// Outputs [at, at + L) and, with COUNT = 2, as many again: two chains of additions run side by side.
template <int L, int COUNT, int STEP, bool MAX>
OPFORGE_INLINE void window(const PoolRowArgs& r, const int64_t (&at)[COUNT]) {
  Vec<L> v[COUNT];
  for (int i = 0; i < COUNT; ++i) v[i] = splat<L>(MAX ? -__builtin_inff() : 0.0f);
  for (int64_t z = 0; z < r.taps[0]; ++z)
    for (int64_t y = 0; y < r.taps[1]; ++y) {
      const float* p = r.x + z * r.steps[0] + y * r.steps[1];
      for (int64_t k = 0; k < r.taps[2]; ++k, p += r.steps[2]) OPFORGE_UNROLL
      for (int i = 0; i < COUNT; ++i) {
        const Vec<L> t = spread<L, STEP>(p + at[i] * r.stride, r.stride);
        v[i] = MAX ? greater_of<L>(v[i], t) : Vec<L>(v[i] + t);
      }
    }
  for (int i = 0; i < COUNT; ++i) store<L>(r.y + at[i], MAX ? v[i] : Vec<L>(v[i] / splat<L>(r.counted)));
}

// The last vector of a row is moved back to end where the row does: its first outputs are computed twice.
template <int L, int STEP, bool MAX>
OPFORGE_INLINE void outputs_of(const PoolRowArgs& r) {
  for (int64_t k = 0; k < r.n;) {
    const int64_t end = r.n - L, at = least(k, end);
    if (k + L < r.n) {
      window<L, 2, STEP, MAX>(r, {at, least(k + L, end)});
      k += 2 * L;
    } else {
      window<L, 1, STEP, MAX>(r, {at});
      k += L;
    }
  }
}

template <int STEP, bool MAX>
void outputs(const PoolRowArgs& r) {
  if (r.n >= kWidth)
    outputs_of<kWidth, STEP, MAX>(r);
  else
    outputs_of<4, STEP, MAX>(r);
}

}  // namespace

void pool_row(const PoolRowArgs& r) {
  if (r.maximum)
    r.stride == 1 ? outputs<1, true>(r) : r.stride == 2 ? outputs<2, true>(r) : outputs<0, true>(r);
  else
    r.stride == 1 ? outputs<1, false>(r) : r.stride == 2 ? outputs<2, false>(r) : outputs<0, false>(r);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
