// dense.h: the register tile of dense convolutions: P neighbouring output pixels by a group of channel
// blocks.
#pragma once

#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {

constexpr int kMaxGroup = kWidth == 16 ? 4 : 1;  // most whole output blocks of one tile
constexpr int kMaxPixels = 14;
constexpr int kPairRow =
    7;  // images that were halved five times from 224; wider ones fill a tile with one row

struct DenseTile {
  const float *whole, *half;  // input of the first pixel's first tap, in whole blocks and in the half block
  int64_t block, row;         // floats between whole input blocks; pixels per input row
  int64_t blocks, tail,
      tail_half;  // whole input blocks, channels in the last of them, channels in the half block
  int32_t kernel_h, kernel_w, dilation_h, dilation_w;
  int32_t ky0, ky1;                     // taps whose row is not padding
  int32_t ky0_next, ky1_next;           // the same of the second row, in tiles of two
  int64_t next;                         // input floats from the first row to the second
  const float *weights, *weights_half;  // of the group's first whole block; of the half block
  int64_t weights_block;
  int64_t ahead;  // floats to the weights that are fetched meanwhile
  int64_t soon;   // input pixels to the next tile
  TileOutput out;
};
using DenseFn = void (*)(const DenseTile&);

// [whole output blocks][half output block][pixels]
struct DenseTable {
  DenseFn fn[kMaxGroup + 1][2][kMaxPixels + 1] = {};
  DenseFn pair = nullptr;  // two rows of kPairRow pixels by two whole blocks
};
extern const DenseTable dense_stride1, dense_stride2;

// PS: pixels from one output pixel's input to the next one's; 0 = any, for tiles of one pixel.
template <int P, int NF, bool HF, int PS>
static void dense_tile(const DenseTile& t) {
  Tile<P, NF, HF> tile;
  tile.begin(t.out.bias);
  tile.fetch(t.out);
  const int64_t taps = int64_t(t.kernel_h) * t.kernel_w, skipped = int64_t(t.ky0) * t.kernel_w;
  const int64_t soon = (t.soon + int64_t(t.ky1 - 1) * t.dilation_h * t.row) * 16;
  int64_t k = 0;  // weights before this input block
  for (int64_t b = 0; b < t.blocks; ++b) {
    const int64_t n = b == t.blocks - 1 ? t.tail : 16;
    int64_t at = k + n * skipped;
    // The next tile's pixels: blocks of channels lie far apart, too many streams for the processor to follow.
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) __builtin_prefetch(t.whole + b * t.block + soon + p * 16 * PS);
    for (int y = t.ky0; y < t.ky1; ++y) {
      const float* x = t.whole + b * t.block + y * t.dilation_h * t.row * 16;
      for (int i = 0; i < t.kernel_w; ++i, at += n, x += t.dilation_w * 16)
        tile.template steps<16 * PS, 1, (NF >= 2)>(x, t.weights + at * 16, t.weights_block,
                                                   t.weights_half + at * 8, n, 0, t.ahead);
    }
    k += n * taps;
  }
  if (const int64_t n = t.tail_half; n > 0) {
    int64_t at = k + n * skipped;
    for (int y = t.ky0; y < t.ky1; ++y) {
      const float* x = t.half + y * t.dilation_h * t.row * 8;
      for (int i = 0; i < t.kernel_w; ++i, at += n, x += t.dilation_w * 8)
        tile.template steps<8 * PS, 1, (NF >= 2)>(x, t.weights + at * 16, t.weights_block,
                                                  t.weights_half + at * 8, n, 0, t.ahead);
    }
  }
  tile.finish(t.out);
}

struct Lanes16 {
  static constexpr int kLanes = 16;
};
struct Lanes8 {
  static constexpr int kLanes = 8;
};

// Two rows in one tile: late layers have few pixels and so many weights that to read them once a row costs
// more than the products. Each row still adds only the taps that are not padding.
template <int PS>
static void dense_pair(const DenseTile& t) {
  constexpr int P = 2 * kPairRow;
  Tile<P, 2, false, kPairRow> tile;
  tile.begin(t.out.bias);
  const auto taps = [&](const float* in, int64_t pixel, int64_t next, int64_t k, int64_t n, auto lanes) {
    constexpr int kStep = decltype(lanes)::kLanes * PS;
    for (int y = int(least(t.ky0, t.ky0_next)); y < most(t.ky1, t.ky1_next); ++y) {
      const bool first = y >= t.ky0 && y < t.ky1, second = y >= t.ky0_next && y < t.ky1_next;
      const float* x = in + y * t.dilation_h * t.row * pixel;
      int64_t at = k + n * y * t.kernel_w;
      for (int i = 0; i < t.kernel_w; ++i, at += n, x += t.dilation_w * pixel) {
        const float* weights = t.weights + at * 16;
        if (first && second)
          tile.template steps<kStep, 1, true>(x, weights, t.weights_block, nullptr, n, next, t.ahead);
        else if (first)
          tile.template steps<kStep, 1, true, 0, kPairRow>(x, weights, t.weights_block, nullptr, n, next,
                                                           t.ahead);
        else if (second)
          tile.template steps<kStep, 1, true, kPairRow, P>(x, weights, t.weights_block, nullptr, n, next,
                                                           t.ahead);
      }
    }
  };
  int64_t k = 0;
  for (int64_t b = 0; b < t.blocks; ++b) {
    const int64_t n = b == t.blocks - 1 ? t.tail : 16;
    taps(t.whole + b * t.block, 16, t.next * 16, k, n, Lanes16());
    k += n * t.kernel_h * t.kernel_w;
  }
  if (t.tail_half > 0) taps(t.half, 8, t.next * 8, k, t.tail_half, Lanes8());
  tile.finish(t.out);
}

// Stride 1 has a tile for every count; stride 2, which is rarer, for a few.
template <int PS>
struct DenseFill {
  DenseTable table;
  template <int NF, bool HF, int P>
  constexpr void fill() {
    constexpr int kMost = tile_rows(NF, HF);
    if constexpr (P == kMost || (P < kMost && (PS == 1 || sparse_tile(P, kMost))))
      table.fn[NF][HF][P] = dense_tile<P, NF, HF, PS>;
    if constexpr (P > 1) fill<NF, HF, P - 1>();
  }
  constexpr DenseFill() : table() {
    fill<0, true, kMaxPixels>();
    fill<1, false, kMaxPixels>();
    fill<1, true, kMaxPixels>();
    if constexpr (kMaxGroup >= 2) {
      fill<2, false, kMaxPixels>();
      table.pair = dense_pair<PS>;
    }
    if constexpr (kMaxGroup >= 3) fill<3, false, kMaxPixels>();
    if constexpr (kMaxGroup >= 4) fill<4, false, kMaxPixels>();
  }
};

// Whole blocks of the next tile when `left` remain, `limit` at most: three or four need the fewest loads per
// multiply-add. A half block at the end shares its tile with the last whole one.
static OPFORGE_INLINE int64_t dense_group(int64_t left, bool half, int64_t limit = kMaxGroup) {
  if (half) {
    if (left == 1) return 1;
    --left;
  }
  if (limit <= 2 || left <= limit) return least(left, limit);
  return limit == 3 || left % 3 == 0 || left == 5 ? 3 : 4;
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
