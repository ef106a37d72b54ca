// transpose.h: 4x4 transposes, what packing and layout changes are made of.
#pragma once

#include "kernels/isa/simd.h"

namespace opforge {
namespace OPFORGE_ISA {

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

// Clang has no __builtin_shuffle, GCC before 12 no __builtin_shufflevector.
#if defined(__clang__)
#define OPFORGE_PICK4(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define OPFORGE_PICK4(x, y, a, b, c, d) __builtin_shuffle(x, y, FourInts{a, b, c, d})
#endif

// Four rows of four floats, `row` apart, become four columns at dst, `rows` apart.
static OPFORGE_INLINE void transpose4(const float* a, int64_t row, float* dst, int64_t rows) {
  const Four r0 = load<4>(a), r1 = load<4>(a + row), r2 = load<4>(a + 2 * row), r3 = load<4>(a + 3 * row);
  const Four lo01 = OPFORGE_PICK4(r0, r1, 0, 4, 1, 5), hi01 = OPFORGE_PICK4(r0, r1, 2, 6, 3, 7);
  const Four lo23 = OPFORGE_PICK4(r2, r3, 0, 4, 1, 5), hi23 = OPFORGE_PICK4(r2, r3, 2, 6, 3, 7);
  store<4>(dst, OPFORGE_PICK4(lo01, lo23, 0, 1, 4, 5));
  store<4>(dst + rows, OPFORGE_PICK4(lo01, lo23, 2, 3, 6, 7));
  store<4>(dst + 2 * rows, OPFORGE_PICK4(hi01, hi23, 0, 1, 4, 5));
  store<4>(dst + 3 * rows, OPFORGE_PICK4(hi01, hi23, 2, 3, 6, 7));
}

#undef OPFORGE_PICK4

}  // namespace OPFORGE_ISA
}  // namespace opforge
