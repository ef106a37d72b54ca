// transpose.h: 4x4 transposes, what packing and layout changes are made of.
#pragma once

#include "kernels/isa/simd.h"

namespace opforge {
namespace OPFORGE_ISA {

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

// Four rows of four floats, `row` apart, become four columns at dst, `rows` apart.
static OPFORGE_INLINE void transpose4(const float* a, int64_t row, float* dst, int64_t rows) {
  const Four r0 = load<4>(a), r1 = load<4>(a + row), r2 = load<4>(a + 2 * row), r3 = load<4>(a + 3 * row);
  const Four lo01 = __builtin_shuffle(r0, r1, FourInts{0, 4, 1, 5}),
             hi01 = __builtin_shuffle(r0, r1, FourInts{2, 6, 3, 7});
  const Four lo23 = __builtin_shuffle(r2, r3, FourInts{0, 4, 1, 5}),
             hi23 = __builtin_shuffle(r2, r3, FourInts{2, 6, 3, 7});
  store<4>(dst, __builtin_shuffle(lo01, lo23, FourInts{0, 1, 4, 5}));
  store<4>(dst + rows, __builtin_shuffle(lo01, lo23, FourInts{2, 3, 6, 7}));
  store<4>(dst + 2 * rows, __builtin_shuffle(hi01, hi23, FourInts{0, 1, 4, 5}));
  store<4>(dst + 3 * rows, __builtin_shuffle(hi01, hi23, FourInts{2, 3, 6, 7}));
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
