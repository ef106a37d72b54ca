// depthwise.cpp: depthwise convolution on c16 values; 3 and 5 wide kernels of stride 1 and 2 in registers,
// any other size one pixel at a time.
#include "kernels/isa/activation.h"
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

struct Row {
  const float* in;  // first tap of the first pixel
  int64_t in_row;   // floats from tap row to tap row
  const float *weights, *bias;
  float* out;
  const Activation* activation;
  int64_t residual;  // floats from the output to the residual; 0 = none
  int32_t kernel_h, kernel_w, stride_w;
  int64_t tap;  // floats from tap to tap in a row
};

template <int L>
OPFORGE_INLINE void put(const Row& t, float* out, Vec<L> v) {
  if (t.residual != 0 && t.activation->on_sum) v += load<L>(out + t.residual);
  v = activate_any<L>(v, *t.activation);
  if (t.residual != 0 && !t.activation->on_sum) v += load<L>(out + t.residual);
  store<L>(out, v);
}

// P pixels of LANES channels; the kernel is K wide.
template <int LANES, int K, int S, int P>
void pixels(const Row& t) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth;
  _Pragma("GCC unroll 1") for (int q = 0; q < LANES; q += L) {
    Vec<L> sum[P];
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) sum[p] = load<L>(t.bias + q);
    _Pragma("GCC unroll 1") for (int y = 0; y < t.kernel_h; ++y) {
      const float* x = t.in + y * t.in_row + q;
      Vec<L> w[K];
      OPFORGE_UNROLL
      for (int k = 0; k < K; ++k) w[k] = load<L>(t.weights + (y * K + k) * LANES + q);
      OPFORGE_UNROLL
      for (int i = 0; i < (P - 1) * S + K; ++i) {
        const Vec<L> v = load<L>(x + i * LANES);
        OPFORGE_UNROLL
        for (int k = 0; k < K; ++k)
          if (i >= k && (i - k) % S == 0 && (i - k) / S < P)
            sum[(i - k) / S] = vfma<L>(v, w[k], sum[(i - k) / S]);
      }
    }
    OPFORGE_UNROLL
    for (int p = 0; p < P; ++p) put<L>(t, t.out + p * LANES + q, sum[p]);
  }
}

// One pixel of any kernel.
template <int LANES>
void any_pixel(const Row& t) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth;
  for (int q = 0; q < LANES; q += L) {
    Vec<L> sum = load<L>(t.bias + q);
    for (int y = 0; y < t.kernel_h; ++y)
      for (int k = 0; k < t.kernel_w; ++k)
        sum = vfma<L>(load<L>(t.in + y * t.in_row + k * t.tap + q),
                      load<L>(t.weights + (y * t.kernel_w + k) * LANES + q), sum);
    put<L>(t, t.out + q, sum);
  }
}

using RowFn = void (*)(const Row&);
struct Choice {
  RowFn many, four, one;
  int32_t count;  // pixels of many
};

template <int LANES, int K, int S>
constexpr Choice choice() {
  constexpr int P = kRegisters == 16 && K == 5 ? 6 : 8;
  return {pixels<LANES, K, S, P>, pixels<LANES, K, S, 4>, pixels<LANES, K, S, 1>, P};
}

template <int LANES>
Choice choose(const ConvArgs& a) {
  if (a.dilation_w == 1) {
    if (a.kernel_w == 3 && a.stride_w == 1) return choice<LANES, 3, 1>();
    if (a.kernel_w == 3 && a.stride_w == 2) return choice<LANES, 3, 2>();
    if (a.kernel_w == 5 && a.stride_w == 1) return choice<LANES, 5, 1>();
    if (a.kernel_w == 5 && a.stride_w == 2) return choice<LANES, 5, 2>();
  }
  return {any_pixel<LANES>, any_pixel<LANES>, any_pixel<LANES>, 1};
}

template <int LANES>
void rows(const ConvArgs& a, int64_t image, int64_t block, int64_t y0, int64_t y1) {
  const Image &x = a.x, &y = a.y;
  const Choice c = choose<LANES>(a);
  const float* in = x.data + image * x.batch + block * x.plane * 16;
  float* out = y.data + image * y.batch + block * y.plane * 16;
  Row t;
  t.weights = a.weights + block * 16 * a.kernel_h * a.kernel_w;
  t.bias = a.bias + block * 16;
  t.activation = &a.activation;
  t.residual = a.residual != nullptr ? a.residual - y.data : 0;
  t.kernel_h = a.kernel_h, t.kernel_w = a.kernel_w, t.stride_w = a.stride_w;
  t.in_row = a.dilation_h * x.row * LANES;
  t.tap = a.dilation_w * LANES;
  for (int64_t r = y0; r < y1; ++r) {
    t.in = in + ((x.top + r * a.stride_h - a.pad_top) * x.row + x.left - a.pad_left) * LANES;
    t.out = out + ((y.top + r) * y.row + y.left) * LANES;
    for (int64_t i = 0; i < y.width;) {
      const int64_t left = y.width - i;
      const int64_t n = left >= c.count ? c.count : left >= 4 && c.count > 4 ? 4 : 1;
      (n == c.count ? c.many : n == 4 ? c.four : c.one)(t);
      t.in += n * a.stride_w * LANES;
      t.out += n * LANES;
      i += n;
    }
  }
}

}  // namespace

void conv_depthwise(const ConvArgs& a, int64_t image, int64_t block, int64_t y0, int64_t y1) {
  if (block < whole_blocks(a.y.channels))
    rows<16>(a, image, block, y0, y1);
  else
    rows<8>(a, image, block, y0, y1);
  if (a.epilogue != nullptr) image_epilogue(a, image, y0, y1, block, block + 1);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
