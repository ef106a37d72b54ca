// codes.h: weights of 4 and 8 bits with a scale for each group of rows, decoded in registers: (code - zero) *
// scale, rounded as DequantizeLinear says, so that products are those of the dequantised weights bit by bit.
#pragma once

#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {

constexpr int kCoded = kWidth == 16 ? 4 : 2;  // blocks of 16 columns that one row takes at once
constexpr int kCodedParts = 16 / kWidth;

template <int L>
struct WordsOf {
  typedef uint32_t Register __attribute__((vector_size(L * 4)));
  typedef int32_t Signed __attribute__((vector_size(L * 4)));
};
using Words = WordsOf<kWidth>::Register;

static OPFORGE_INLINE Words load_words(const uint32_t* p) {
  Words w;
  std::memcpy(&w, p, sizeof w);
  return w;
}
// The lowest code of each word, less `zero`: 16 numbers are a table that one instruction looks up.
template <int BITS>
struct Lowest {
  float table[16];
  explicit Lowest(float zero) {
    for (int i = 0; i < 16; ++i) table[i] = float(i) - zero;
    offset = zero;
  }
  OPFORGE_INLINE Vec<kWidth> of(Words w) const {
#if defined(__AVX512F__)
    if constexpr (BITS == 4)
      return (Vec<kWidth>)_mm512_maskz_permutexvar_ps((__mmask16)-1, (__m512i)w, _mm512_loadu_ps(table));
#endif
    typedef WordsOf<kWidth>::Signed Signed;
    return __builtin_convertvector((Signed)(w & ((1u << BITS) - 1)), Vec<kWidth>) - splat<kWidth>(offset);
  }

 private:
  float offset;
};

// Calls f(k, block, part, weights) for all rows k, ascending, of F blocks from `first` on. ZEROS: each group
// has its own.
template <int BITS, int F, bool ZEROS, class Fn>
static OPFORGE_INLINE void each_code(const MatmulArgs& g, int64_t first, Fn&& f) {
  constexpr int kPerWord = 32 / BITS;
  const int64_t words = (g.k + kPerWord - 1) / kPerWord, groups = (g.k + g.codes.rows - 1) / g.codes.rows;
  const uint32_t* codes = static_cast<const uint32_t*>(g.b) + first * words * 16;
  const float* scales = g.codes.scales + first * groups * 16;
  const uint8_t* zeros = ZEROS ? g.codes.zeros + first * groups * 16 : nullptr;
  const Lowest<BITS> lowest(ZEROS ? 0 : g.codes.zero);
  for (int64_t group = 0; group < groups; ++group) {
    Vec<kWidth> scale[F][kCodedParts], zero[F][kCodedParts];
    OPFORGE_UNROLL
    for (int j = 0; j < F; ++j) {
      OPFORGE_UNROLL
      for (int q = 0; q < kCodedParts; ++q) {
        const int64_t at = (j * groups + group) * 16 + q * kWidth;
        scale[j][q] = load<kWidth>(scales + at);
        if constexpr (ZEROS) {
          float some[kWidth];
          for (int i = 0; i < kWidth; ++i) some[i] = float(zeros[at + i]);
          zero[j][q] = load<kWidth>(some);
        }
      }
    }
    const int64_t end = least(g.k, (group + 1) * g.codes.rows);
    for (int64_t k = group * g.codes.rows; k < end; k += kPerWord) {
      Words w[F][kCodedParts];
      OPFORGE_UNROLL
      for (int j = 0; j < F; ++j) {
        OPFORGE_UNROLL
        for (int q = 0; q < kCodedParts; ++q)
          w[j][q] = load_words(codes + (j * words + k / kPerWord) * 16 + q * kWidth);
      }
      const int n = int(least(kPerWord, end - k));
      for (int i = 0; i < n; ++i) {
        OPFORGE_UNROLL
        for (int j = 0; j < F; ++j) {
          OPFORGE_UNROLL
          for (int q = 0; q < kCodedParts; ++q) {
            Vec<kWidth> code = lowest.of(w[j][q]);
            if constexpr (ZEROS) code -= zero[j][q];
            f(k + i, j, q, code * scale[j][q]);
            w[j][q] >>= BITS;
          }
        }
      }
    }
  }
}

// One row x of A by F blocks of columns.
template <int BITS, int F, bool ZEROS>
static void coded_row(const MatmulArgs& g, const float* x, int64_t first, const TileOutput& out) {
  Tile<1, F, false> tile;
  tile.begin(out.bias);
  each_code<BITS, F, ZEROS>(g, first, [&](int64_t k, int j, int q, Vec<kWidth> w) {
    Vec<kWidth>& sum = tile.w[0][j * kCodedParts + q];
    sum = vfma<kWidth>(splat<kWidth>(x[k]), w, sum);
  });
  tile.finish(out);
}
// A block of 16 columns as f32: [K][16].
template <int BITS, bool ZEROS>
static void decoded(const MatmulArgs& g, int64_t block, float* to) {
  each_code<BITS, 1, ZEROS>(
      g, block, [&](int64_t k, int, int q, Vec<kWidth> w) { store<kWidth>(to + k * 16 + q * kWidth, w); });
}

template <int BITS, bool ZEROS>
static void coded_of(const MatmulArgs& g, const float* x, int64_t first, int blocks, const TileOutput& out) {
  if (blocks == 1) return coded_row<BITS, 1, ZEROS>(g, x, first, out);
  coded_row<BITS, kCoded, ZEROS>(g, x, first, out);
}
static void coded_tile(const MatmulArgs& g, const float* x, int64_t first, int blocks,
                       const TileOutput& out) {
  const bool zeros = g.codes.zeros != nullptr;
  if (g.b_kind == WeightKind::kU4)
    return zeros ? coded_of<4, true>(g, x, first, blocks, out) : coded_of<4, false>(g, x, first, blocks, out);
  return zeros ? coded_of<8, true>(g, x, first, blocks, out) : coded_of<8, false>(g, x, first, blocks, out);
}
static void decode(const MatmulArgs& g, int64_t block, float* to) {
  const bool zeros = g.codes.zeros != nullptr;
  if (g.b_kind == WeightKind::kU4)
    return zeros ? decoded<4, true>(g, block, to) : decoded<4, false>(g, block, to);
  return zeros ? decoded<8, true>(g, block, to) : decoded<8, false>(g, block, to);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
