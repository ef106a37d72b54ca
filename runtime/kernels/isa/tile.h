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
  int64_t next;       // floats from the tile's first image row to its second, where it has two
  const float* bias;  // of the first block, or null
  const Activation* activation;
  const float* residual;  // base of a tensor laid out as the output, or null
  const float* base;      // base of the output
};

// Most rows of a tile that leave registers for the weights and one broadcast (x86 takes that from memory).
constexpr int tile_rows(int whole, bool half) {
  const int vectors = whole * (16 / kWidth) + (half ? 8 / kHalfWidth : 0);
  const int budget = kRegisters == 8    ? 4
                     : kRegisters == 16 ? 12
                     : kWidth == 16     ? 28
                                        : kRegisters - 1 - vectors;
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

// ROW: pixels of one image row; a tile of two rows has P = 2*ROW and no half block.
template <int P, int NF, bool HF, int ROW = P>
struct Tile {
  static constexpr int kRow = ROW;
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

  // Fetches the residual, which is wanted at the end.
  OPFORGE_INLINE void fetch(const TileOutput& t) const {
    if (t.residual == nullptr) return;
    const float* from = t.whole + (t.residual - t.base);
    OPFORGE_UNROLL
    for (int j = 0; j < NF; ++j) {
      OPFORGE_UNROLL
      for (int p = 0; p < P; ++p)
        __builtin_prefetch(from + j * t.block + p / kRow * t.next + p % kRow * t.row);
    }
  }

  // n terms of pixels [FROM, TO): x(p, k) = x[p*PS + k*KS], in the second row x[next + (p - ROW)*PS + k*KS];
  // the weights of term k (f32, or widened as they are loaded) lie at weights + k*16 (whole, block apart) and
  // half_block + k*8. Weights that lie `ahead` elements behind are fetched meanwhile (0 = none).
  template <int PS, int KS, bool AHEAD = false, int FROM = 0, int TO = P, class W = float>
  OPFORGE_INLINE void steps(const float* x, const W* weights, int64_t block, const void* half_block,
                            int64_t n, int64_t next = 0, int64_t ahead = 0) {
    const W* half = static_cast<const W*>(half_block);
    _Pragma("GCC unroll 1") for (int64_t k = 0; k < n; ++k) {
      // Neighbouring terms share inputs; the compiler would carry them over in registers that do not exist.
      if constexpr (PS < 8 && KS < PS * 4) asm("" : "+r"(x));
      Vec<kWidth> b[kWhole + 1];
      Vec<kHalfWidth> c[kHalf + 1];
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j)
        b[j] = load<kWidth>(weights + (j / (16 / kWidth)) * block + (j % (16 / kWidth)) * kWidth + k * 16);
      if constexpr (AHEAD) {
        OPFORGE_UNROLL
        for (int j = 0; j < NF; ++j)
          __builtin_prefetch(weights + j * block + k * 16 + ahead, 0, 2);  // into the second cache
      }
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j) c[j] = load<kHalfWidth>(half + k * 8 + j * kHalfWidth);
      OPFORGE_UNROLL
      for (int p = FROM; p < TO; ++p) {
        const float s = x[p / ROW * next + p % ROW * PS + k * KS];
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
    const bool sum_first = t.activation->on_sum;
    if (t.residual != nullptr && sum_first) add(t, t.residual - t.base);
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
    if (t.residual != nullptr && !sum_first) add(t, t.residual - t.base);
    each(
        t, [](float* o, Vec<kWidth>& v) { store<kWidth>(o, v); },
        [](float* o, Vec<kHalfWidth>& v) { store<kHalfWidth>(o, v); });
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

  OPFORGE_INLINE void add(const TileOutput& t, int64_t residual) {
    each(
        t, [=](float* o, Vec<kWidth>& v) { v += load<kWidth>(o + residual); },
        [=](float* o, Vec<kHalfWidth>& v) { v += load<kHalfWidth>(o + residual); });
  }

  // Calls f(place in the output, accumulator) for whole vectors and g for those of the half block.
  template <class F, class G>
  OPFORGE_INLINE void each(const TileOutput& t, F&& f, G&& g) {
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) {
      const int64_t row = p / kRow * t.next + p % kRow * t.row;
      OPFORGE_UNROLL
      for (int j = 0; j < kWhole; ++j)
        f(t.whole + (j / (16 / kWidth)) * t.block + row + (j % (16 / kWidth)) * kWidth, w[p][j]);
      OPFORGE_UNROLL
      for (int j = 0; j < kHalf; ++j) g(t.half + p * t.half_row + j * kHalfWidth, h[p][j]);
    }
  }
};

}  // namespace OPFORGE_ISA
}  // namespace opforge
