// pairs.h: register tiles of products of bf16 by the instruction that adds two products to each f32
// (vdpbf16ps).
//
// The only code that a level has for some of its CPUs: callers ask isa_bf16_pairs(). Each output is one chain
// from the bias, two k at a time in ascending order; the CPU reads and gives denormals as zeros.
#pragma once

#include "kernels/isa/half.h"
#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {

// Weights as BF16 lie, for these tiles.
struct BF16Pairs {
  uint16_t bits;
};

#if defined(__AVX512F__)
#define OPFORGE_PAIRS __attribute__((target("avx512bf16")))

alignas(64) constexpr uint16_t kPairUp[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

// panel: [pairs of k][P] words of two bf16, the even k low. Blocks of B are [k][16] as for every other
// product: two rows are one vector, which a permutation turns into pairs.
template <int P, int NF>
OPFORGE_PAIRS static void pair_tile(const float* panel, const void* b, int64_t block, int64_t k,
                                    const TileOutput& out) {
  Tile<P, NF, false> tile;
  tile.begin(out.bias);
  const __m512i pair_up = _mm512_load_si512(kPairUp);
  const uint16_t* w = static_cast<const uint16_t*>(b);
  _Pragma("GCC unroll 1") for (int64_t i = 0; i < k; i += 2) {
    const __mmask32 there = i + 1 < k ? 0xffffffffu : 0xffffu;  // the last row may have no partner
    __m512i v[NF];
    OPFORGE_UNROLL
    for (int j = 0; j < NF; ++j)
      v[j] = _mm512_permutexvar_epi16(pair_up, _mm512_maskz_loadu_epi16(there, w + j * block + i * 16));
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) {
      int32_t two;
      std::memcpy(&two, panel + p, sizeof two);
      const __m512i x = _mm512_set1_epi32(two);
      OPFORGE_UNROLL
      for (int j = 0; j < NF; ++j)
        tile.w[p][j] = (Vec<16>)_mm512_dpbf16_ps((__m512)tile.w[p][j], (__m512bh)x, (__m512bh)v[j]);
    }
    panel += P;
  }
  tile.finish(out);
}
#undef OPFORGE_PAIRS
#endif

}  // namespace OPFORGE_ISA
}  // namespace opforge
