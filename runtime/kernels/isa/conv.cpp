// conv.cpp: dense convolution on c16 values, any kernel size and stride. A strip of output rows runs through
// all groups of output blocks while its input is in cache.
#include "kernels/isa/dense.h"
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

struct Strip {
  DenseTile tile;
  const DenseFn* fn;
  int64_t most;  // pixels per tile
  int64_t step;  // input pixels per output pixel
};

// n neighbouring pixels; the next ones begin `next` input pixels behind the first of these.
void pixels(Strip& s, int64_t n, int64_t next) {
  DenseTile& t = s.tile;
  while (n > 0) {
    const int64_t p = next_rows(s.fn, n, s.most, s.step == 1);
    t.soon = n > p ? p * s.step : next;
    next -= p * s.step;
    s.fn[p](t);
    t.whole += p * s.step * 16;
    t.half += p * s.step * 8;
    t.out.whole += p * t.out.row;
    t.out.half += p * t.out.half_row;
    n -= p;
  }
}

}  // namespace

void conv_direct(const ConvArgs& a, int64_t image0, int64_t image1, int64_t y0, int64_t y1, int64_t block0,
                 int64_t block1) {
  const Image &x = a.x, &y = a.y;
  const int64_t channels = x.channels, taps = int64_t(a.kernel_h) * a.kernel_w;
  const int64_t whole_in = whole_blocks(channels), whole_out = whole_blocks(y.channels);
  const bool half_out = half_block(y.channels);
  const int64_t limit = a.tile_blocks > 0 ? least(a.tile_blocks, kMaxGroup) : kMaxGroup;
  Strip s;
  DenseTile& t = s.tile;
  t.block = x.plane * 16;
  t.row = x.row;
  t.blocks = whole_in;
  t.tail_half = half_block(channels) ? channels % 16 : 0;
  t.tail = t.tail_half == 0 && channels % 16 != 0 ? channels % 16 : 16;
  t.kernel_h = a.kernel_h, t.kernel_w = a.kernel_w, t.dilation_h = a.dilation_h, t.dilation_w = a.dilation_w;
  t.weights_block = channels * taps * 16;
  t.weights_half = a.weights + (whole_out - a.weights_block) * t.weights_block;
  t.next = a.stride_h * x.row;
  t.out.block = y.plane * 16;
  t.out.row = 16;
  t.out.half_row = 8;
  t.out.next = y.row * 16;
  t.out.activation = &a.activation;
  t.out.base = y.data;
  t.out.residual = a.residual;
  s.step = a.stride_w;
  const bool one_row = taps == 1 && a.stride_w == 1 && a.stride_h == 1 && x.row == x.width &&
                       y.row == y.width && a.pad_top == 0 && a.pad_left == 0 && x.height == y.height &&
                       x.width == y.width;
  const DenseTable& table = a.stride_w == 2 ? dense_stride2 : dense_stride1;
  const auto rows_of = [&](int64_t r, int32_t* first, int32_t* end) {
    const int64_t iy = r * a.stride_h - a.pad_top;
    *first = 0, *end = a.kernel_h;
    while (*first < *end && iy + *first * int64_t(a.dilation_h) < 0) ++*first;
    while (*end > *first && iy + (*end - 1) * int64_t(a.dilation_h) >= x.height) --*end;
  };
  for (int64_t b = block0; b < block1;) {
    const int64_t left = least(block1, whole_out) - b;
    const bool half_here = half_out && block1 > whole_out;
    const int64_t group = left > 0 ? dense_group(left, half_here, limit) : 0;
    const bool half = half_here && group == left && group <= 1;
    const bool pairs =
        group == 2 && limit == 2 && table.pair != nullptr && y.width == kPairRow && a.stride_w <= 2;
    s.fn = table.fn[group][half];
    s.most = a.stride_w <= 2 ? tile_rows(int(group), half) : 1;
    t.weights = a.weights + (b - a.weights_block) * t.weights_block;
    t.ahead = a.fetch_ahead != 0 ? group * t.weights_block : 0;
    if (a.fetch != nullptr)
      t.ahead = int64_t(intptr_t(a.fetch) - intptr_t(t.weights)) / int64_t(sizeof(float));
    t.out.bias = a.bias != nullptr ? a.bias + b * 16 : nullptr;
    for (int64_t image = image0; image < image1; ++image) {
      const float* in = x.data + image * x.batch;
      float* out = y.data + image * y.batch;
      for (int64_t r = y0; r < y1; ++r) {
        rows_of(r, &t.ky0, &t.ky1);
        const int64_t from = (x.top + r * a.stride_h - a.pad_top) * x.row + x.left - a.pad_left;
        const int64_t to = (y.top + r) * y.row + y.left;
        t.whole = in + from * 16;
        t.half = in + whole_in * t.block + from * 8;
        t.out.whole = out + b * t.out.block + to * 16;
        t.out.half = out + whole_out * t.out.block + to * 8;
        if (pairs && r + 1 < y1) {
          rows_of(++r, &t.ky0_next, &t.ky1_next);
          table.pair(t);
          continue;
        }
        pixels(s, one_row ? (y1 - r) * y.width : y.width, t.next);
        if (one_row) break;
      }
    }
    b += group + (half ? 1 : 0);
  }
  for (int64_t image = image0; image < image1 && a.epilogue != nullptr; ++image)
    image_epilogue(a, image, y0, y1, block0, block1);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
