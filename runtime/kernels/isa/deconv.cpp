// deconv.cpp: transposed convolution with a 2x2 kernel and stride 2: each tap is a 1x1 convolution whose
// pixels land two apart in the output.
#include "kernels/isa/dense.h"
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"

namespace opforge {
namespace OPFORGE_ISA {

void deconv2(const ConvArgs& a, int64_t image, int64_t y0, int64_t y1) {
  const Image &x = a.x, &y = a.y;
  const int64_t whole_in = whole_blocks(x.channels), whole_out = whole_blocks(y.channels);
  const bool half_out = half_block(y.channels);
  DenseTile t = {};
  t.block = x.plane * 16, t.row = x.row;
  t.blocks = whole_in;
  t.tail_half = half_block(x.channels) ? x.channels % 16 : 0;
  t.tail = t.tail_half == 0 && x.channels % 16 != 0 ? x.channels % 16 : 16;
  t.kernel_h = t.kernel_w = t.dilation_h = t.dilation_w = 1;
  t.ky0 = 0, t.ky1 = 1;
  t.ahead = 0;
  t.weights_block = int64_t(x.channels) * 16;
  t.out.block = y.plane * 16;
  t.out.row = 32, t.out.half_row = 16;
  t.out.activation = &a.activation;
  t.out.base = y.data, t.out.residual = a.residual;
  const float* in = x.data + image * x.batch;
  float* out = y.data + image * y.batch;
  for (int64_t r = y0; r < y1; ++r) {
    for (int tap = 0; tap < 4; ++tap) {
      const float* weights = a.weights + tap * x.channels * padded_channels(y.channels);
      const int64_t from = (x.top + r) * x.row + x.left;
      const int64_t to = (y.top + 2 * r + tap / 2) * y.row + y.left + tap % 2;
      for (int64_t b = 0; b < whole_out || (b == whole_out && half_out);) {
        const int64_t left = whole_out - b, group = left > 0 ? dense_group(left, half_out) : 0;
        const bool half = half_out && group == left && group <= 1;
        const int64_t limit = tile_rows(int(group), half);
        t.weights = weights + b * t.weights_block;
        t.weights_half = weights + whole_out * t.weights_block;
        t.out.bias = a.bias + b * 16;
        t.whole = in + from * 16;
        t.half = in + whole_in * t.block + from * 8;
        t.out.whole = out + b * t.out.block + to * 16;
        t.out.half = out + whole_out * t.out.block + to * 8;
        const DenseFn* fn = dense_stride1.fn[group][half];
        for (int64_t n = x.width, p; n > 0; n -= p) {
          p = next_rows(fn, n, limit, true);
          t.soon = n > p ? p : 0;
          fn[p](t);
          t.whole += p * 16, t.half += p * 8;
          t.out.whole += p * 32, t.out.half += p * 16;
        }
        b += group + (half ? 1 : 0);
      }
    }
  }
  if (a.epilogue != nullptr) image_epilogue(a, image, 2 * y0, 2 * y1, 0, all_blocks(y.channels));
}

void deconv2_plain(const ConvArgs& a, float* scratch, int64_t image, int64_t y0, int64_t y1) {
  const Image &x = a.x, &y = a.y;
  const int64_t channels = y.channels, lanes = channels * 4 <= 8 ? 8 : 16;
  ConvArgs one{};
  one.x = x;
  one.x.height = 1;
  one.x.data = x.data + image * x.batch;
  one.y.data = scratch;
  one.y.channels = int32_t(channels * 4);
  one.y.row = one.y.plane = x.width;
  one.y.width = x.width, one.y.height = 1;
  one.weights = a.weights, one.bias = a.bias;
  one.kernel_h = one.kernel_w = one.stride_h = one.stride_w = one.dilation_h = one.dilation_w = 1;
  one.activation = a.activation;
  for (int64_t r = y0; r < y1; ++r) {
    one.x.top = int32_t(x.top + r);
    conv_direct(one, 0, 1, 0, 1, 0, 1);
    for (int64_t c = 0; c < channels; ++c) {
      float* upper = y.data + image * y.batch + c * y.plane + 2 * r * y.row;
      float* lower = upper + y.row;
      const float* from = scratch + c;
      for (int64_t i = 0; i < x.width; ++i, from += lanes) {
        upper[2 * i] = from[0];
        upper[2 * i + 1] = from[channels];
        lower[2 * i] = from[2 * channels];
        lower[2 * i + 1] = from[3 * channels];
      }
      if (a.epilogue != nullptr)
        a.epilogue(a.user, upper, 2, y.row, (image * channels + c) * y.height + 2 * r, 0, y.row);
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
