// first.cpp: convolution of a plain NCHW input with few channels into a c16 output. Input rows are staged in
// a ring of kernel_h lines per channel with the padding written out, so the caller's tensor needs no halo.
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"
#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

constexpr int kGroup = kWidth == 16 ? 2 : 1;
constexpr int kMaxPixels = 14;

struct FirstTile {
  const float* lines;      // pixel 0 of the tile in the first line
  const int64_t* offsets;  // of each (channel, ky)'s line
  const float *weights, *weights_half;
  int64_t weights_block;
  int32_t rows, kernel_w, dilation_w;
  int32_t run;  // neighbouring taps handled in one loop: all of a row, or one where there is dilation
  TileOutput out;
};
using FirstFn = void (*)(const FirstTile&);

template <int P, int NF, bool HF, int S>
void first_tile(const FirstTile& t) {
  Tile<P, NF, HF> tile;
  tile.begin(t.out.bias);
  int64_t k = 0;
  for (int r = 0; r < t.rows; ++r) {
    const float* x = t.lines + t.offsets[r];
    for (int i = 0; i < t.kernel_w; i += t.run, k += t.run)
      tile.template steps<S, 1>(x + i * t.dilation_w, t.weights + k * 16, t.weights_block,
                                t.weights_half + k * 8, t.run);
  }
  tile.finish(t.out);
}

template <int S>
struct FirstTable {
  FirstFn fn[kGroup + 1][2][kMaxPixels + 1] = {};
  template <int NF, bool HF, int P>
  constexpr void fill() {
    constexpr int kMost = tile_rows(NF, HF);
    if constexpr (P <= kMost && sparse_tile(P, kMost)) fn[NF][HF][P] = first_tile<P, NF, HF, S>;
    if constexpr (P > 1) fill<NF, HF, P - 1>();
  }
  constexpr FirstTable() {
    fill<0, true, kMaxPixels>();
    fill<1, false, kMaxPixels>();
    fill<1, true, kMaxPixels>();
    if constexpr (kGroup >= 2) fill<2, false, kMaxPixels>();
  }
};
constexpr FirstTable<1> kStride1;
constexpr FirstTable<2> kStride2;

constexpr int64_t kMaxLines = 1024;  // channels * kernel_h

int64_t line_floats(const ConvArgs& a) {
  const int64_t reach = int64_t(a.y.width - 1) * a.stride_w + int64_t(a.kernel_w - 1) * a.dilation_w + 1;
  return most(reach, a.pad_left + a.x.width) + 16;
}
// Lines that the ring holds per channel: every row that one output row needs.
int64_t ring_lines(const ConvArgs& a) { return int64_t(a.kernel_h - 1) * a.dilation_h + 1; }

}  // namespace

int64_t conv_first_scratch(const ConvArgs& a) { return a.x.channels * ring_lines(a) * line_floats(a); }

void conv_first(const ConvArgs& a, float* scratch, int64_t image, int64_t y0, int64_t y1) {
  const Image &x = a.x, &y = a.y;
  const int64_t line = line_floats(a), ring = ring_lines(a), channels = x.channels;
  std::memset(scratch, 0, sizeof(float) * channels * ring * line);
  const int64_t whole_out = whole_blocks(y.channels);
  const bool half_out = half_block(y.channels);
  const int64_t terms = channels * a.kernel_h * a.kernel_w;
  int64_t offsets[kMaxLines];
  FirstTile t;
  t.offsets = offsets;
  t.rows = int32_t(channels * a.kernel_h);
  t.kernel_w = a.kernel_w, t.dilation_w = a.dilation_w;
  t.run = a.dilation_w == 1 ? a.kernel_w : 1;
  t.weights_block = terms * 16;
  t.weights_half = a.weights + whole_out * t.weights_block;
  t.out = TileOutput{};
  t.out.block = y.plane * 16;
  t.out.row = 16, t.out.half_row = 8;
  t.out.activation = &a.activation;
  t.out.base = y.data, t.out.residual = a.residual;
  float* out = y.data + image * y.batch;
  const float* in = x.data + image * x.batch;
  int64_t staged = y0 * a.stride_h - a.pad_top;  // first row not yet in the ring
  for (int64_t r = y0; r < y1; ++r) {
    const int64_t first = r * a.stride_h - a.pad_top, end = first + ring;
    if (staged < first) staged = first;
    for (; staged < end; ++staged) {
      const int64_t slot = (staged + a.pad_top) % ring;
      for (int64_t c = 0; c < channels; ++c) {
        float* q = scratch + (c * ring + slot) * line + a.pad_left;
        if (staged < 0 || staged >= x.height)
          std::memset(q, 0, sizeof(float) * x.width);
        else if (a.x_step > 1)
          for (int64_t i = 0; i < x.width; ++i) q[i] = in[(staged * x.width + i) * channels + c];
        else
          std::memcpy(q, in + (c * x.height + staged) * x.width, sizeof(float) * x.width);
      }
    }
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t k = 0; k < a.kernel_h; ++k)
        offsets[c * a.kernel_h + k] = (c * ring + (first + k * a.dilation_h + a.pad_top) % ring) * line;
    for (int64_t b = 0; b < whole_out || (b == whole_out && half_out);) {
      const int64_t left = whole_out - b;
      const int64_t group = left >= kGroup && !(half_out && left == kGroup && kGroup > 1) ? kGroup
                            : left > 0                                                    ? 1
                                                                                          : 0;
      const bool half = half_out && group == left && group <= 1;
      const FirstFn* fn = a.stride_w == 2 ? kStride2.fn[group][half] : kStride1.fn[group][half];
      const int64_t limit = a.stride_w <= 2 ? tile_rows(int(group), half) : 1;
      const int64_t to = (y.top + r) * y.row + y.left;
      t.lines = scratch;
      t.weights = a.weights + b * t.weights_block;
      t.out.bias = a.bias + b * 16;
      t.out.whole = out + b * t.out.block + to * 16;
      t.out.half = out + whole_out * t.out.block + to * 8;
      for (int64_t n = y.width, p; n > 0; n -= p) {
        p = next_rows(fn, n, limit, false);
        fn[p](t);
        t.lines += p * a.stride_w;
        t.out.whole += p * 16, t.out.half += p * 8;
      }
      b += group + (half ? 1 : 0);
    }
  }
  if (a.epilogue != nullptr) image_epilogue(a, image, y0, y1, 0, all_blocks(y.channels));
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
