// tile.h: the register tile that matrix products and convolutions share: P rows (pixels) by NF whole channel
// blocks and, if HF, a half block. Accumulators start at the bias; activation and residual are applied in
// registers.
#pragma once

#include "kernels/isa/activation.h"
#include "kernels/isa/simd.h"
#include "kernels/isa/table.h"

namespace opforge {
namespace OPFORGE_ISA {

struct TileOutput {
  float* whole;       // row 0 of the first whole block
  int64_t block;      // floats from one whole block to the next
  int64_t row;        // floats from row to row in a whole block
  float* half;        // row 0 of the half block
  int64_t half_row;   // floats from row to row in the half block
  const float* bias;  // of the first block, or null
  const Activation* activation;
  const float* residual;  // base of a tensor laid out as the output, or null
  const float* base;      // base of the output
};

// Most rows of a tile that leave registers for the weights and one broadcast.
constexpr int tile_rows(int whole, bool half) {
  const int vectors = whole * (16 / kWidth) + (half ? 8 / kHalfWidth : 0);
  const int budget = kRegisters == 32 ? 28 : 12;
  const int rows = budget / vectors;
  return rows > 14 ? 14 : rows < 1 ? 1 : rows;
}

// Whether a table that need not serve every count evenly has a tile of P rows out of at most `most`.
constexpr bool sparse_tile(int p, int most) { return p == most || p == 7 || p == 4 || p == 2 || p == 1; }

// Rows of the next tile when `left` remain: even pieces where every count has a tile, else the largest that
// fits.
template <class Fn>
static OPFORGE_INLINE int64_t next_rows(const Fn* table, int64_t left, int64_t most, bool even) {
  const int64_t tiles = (left + most - 1) / most;
  int64_t p = even ? (left + tiles - 1) / tiles : least(left, most);
  while (table[p] == nullptr) --p;
  return p;
}

template <int P, int NF, bool HF>
struct Tile {
  static constexpr int kWhole = NF * (16 / kWidth);
  static constexpr int kHalf = HF ? 8 / kHalfWidth : 0;
  Vec<kWidth> w[P][kWhole + 1];
  Vec<kHalfWidth> h[P][kHalf + 1];

  OPFORGE_INLINE void begin(const float* bias) {
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) {
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j) w[p][j] = bias ? load<kWidth>(bias + j * kWidth) : Vec<kWidth>{};
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j)
        h[p][j] = bias ? load<kHalfWidth>(bias + NF * 16 + j * kHalfWidth) : Vec<kHalfWidth>{};
    }
  }

  // n terms: x(p, k) = x[p*PS + k*KS]; the weights of term k lie at weights + k*16 (whole, block apart) and
  // half + k*8.
  template <int PS, int KS>
  OPFORGE_INLINE void steps(const float* x, const float* weights, int64_t block, const float* half,
                            int64_t n) {
    _Pragma("GCC unroll 1") for (int64_t k = 0; k < n; ++k) {
      Vec<kWidth> b[kWhole + 1];
      Vec<kHalfWidth> c[kHalf + 1];
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j)
        b[j] = load<kWidth>(weights + (j / (16 / kWidth)) * block + (j % (16 / kWidth)) * kWidth + k * 16);
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j) c[j] = load<kHalfWidth>(half + k * 8 + j * kHalfWidth);
      OPFORGE_UNROLL
      for (int p = 0; p < P; ++p) {
        const float s = x[p * PS + k * KS];
        if constexpr (NF > 0) {
          const Vec<kWidth> v = splat<kWidth>(s);
          OPFORGE_UNROLL
          for (int j = 0; j < kWhole; ++j) w[p][j] = vfma<kWidth>(v, b[j], w[p][j]);
          if constexpr (HF) {
            const Vec<kHalfWidth> u = low_half(v);
            OPFORGE_UNROLL
            for (int j = 0; j < kHalf; ++j) h[p][j] = vfma<kHalfWidth>(u, c[j], h[p][j]);
          }
        } else {
          const Vec<kHalfWidth> u = splat<kHalfWidth>(s);
          OPFORGE_UNROLL
          for (int j = 0; j < kHalf; ++j) h[p][j] = vfma<kHalfWidth>(u, c[j], h[p][j]);
        }
      }
    }
  }

  // Activation, residual, store.
  OPFORGE_INLINE void finish(const TileOutput& t) {
    switch (t.activation->kind) {
      case ActivationKind::kClip:
        apply<ActivationKind::kClip>(*t.activation);
        break;
      case ActivationKind::kGate:
        apply<ActivationKind::kGate>(*t.activation);
        break;
      case ActivationKind::kGateAffine:
        apply<ActivationKind::kGateAffine>(*t.activation);
        break;
      case ActivationKind::kHardSigmoid:
        apply<ActivationKind::kHardSigmoid>(*t.activation);
        break;
      default:
        break;
    }
    if (t.residual != nullptr)
      put<true>(t, t.residual - t.base);
    else
      put<false>(t, 0);
  }

 private:
  static OPFORGE_INLINE Vec<kHalfWidth> low_half(Vec<kWidth> v) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return v;
#endif
  }

  template <ActivationKind A>
  OPFORGE_INLINE void apply(const Activation& a) {
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) {
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j) w[p][j] = activate<A, kWidth>(w[p][j], a);
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j) h[p][j] = activate<A, kHalfWidth>(h[p][j], a);
    }
  }

  template <bool R>
  OPFORGE_INLINE void put(const TileOutput& t, int64_t residual) {
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) {
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j) {
        float* o = t.whole + (j / (16 / kWidth)) * t.block + p * t.row + (j % (16 / kWidth)) * kWidth;
        store<kWidth>(o, R ? w[p][j] + load<kWidth>(o + residual) : w[p][j]);
      }
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j) {
        float* o = t.half + p * t.half_row + j * kHalfWidth;
        store<kHalfWidth>(o, R ? h[p][j] + load<kHalfWidth>(o + residual) : h[p][j]);
      }
    }
  }
};

}  // namespace OPFORGE_ISA
}  // namespace opforge
