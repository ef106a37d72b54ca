// halves.cpp: rows of f16 and bf16 to and from f32: widening is exact, narrowing rounds to nearest even.
#include "kernels/isa/functions.h"
#include "kernels/isa/half.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

using Lanes16 = vm::raw::Half<kWidth>;

template <bool BF16>
void widen(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    Lanes16 h{};
    const int64_t here = least(kWidth, n - i);
    std::memcpy(&h, x + i, here == kWidth ? sizeof h : static_cast<size_t>(here) * 2);
    const Vec<kWidth> v =
        BF16 ? (Vec<kWidth>)vm::raw::bf16_to_float<kWidth>(h) : (Vec<kWidth>)vm::raw::f16_to_float<kWidth>(h);
    std::memcpy(y + i, &v, here == kWidth ? sizeof v : static_cast<size_t>(here) * 4);
  }
}

template <bool BF16>
void narrow(const float* x, uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    Vec<kWidth> v{};
    const int64_t here = least(kWidth, n - i);
    std::memcpy(&v, x + i, here == kWidth ? sizeof v : static_cast<size_t>(here) * 4);
    const Lanes16 h = BF16 ? vm::raw::float_to_bf16<kWidth>(v) : vm::raw::float_to_f16<kWidth>(v);
    std::memcpy(y + i, &h, here == kWidth ? sizeof h : static_cast<size_t>(here) * 2);
  }
}

}  // namespace

void widen_halves(bool bf16, const uint16_t* x, float* y, int64_t n) {
  bf16 ? widen<true>(x, y, n) : widen<false>(x, y, n);
}
void narrow_halves(bool bf16, const float* x, uint16_t* y, int64_t n) {
  bf16 ? narrow<true>(x, y, n) : narrow<false>(x, y, n);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
