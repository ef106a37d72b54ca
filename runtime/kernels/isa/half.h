// half.h: weights that lie in memory as f16 or bf16 and are multiplied as f32.
#pragma once

#include "kernels/isa/simd.h"
#include "opforge/vector_math.h"

namespace opforge {
namespace OPFORGE_ISA {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

template <int L>
static OPFORGE_INLINE Vec<L> load(const F16* p) {
  vm::raw::Half<L> h;
  std::memcpy(&h, p, sizeof h);
  return (Vec<L>)vm::raw::f16_to_float<L>(h);
}
template <int L>
static OPFORGE_INLINE Vec<L> load(const BF16* p) {
  vm::raw::Half<L> h;
  std::memcpy(&h, p, sizeof h);
  return (Vec<L>)vm::raw::bf16_to_float<L>(h);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
