// winograd.cpp: F(4x4, 3x3) for stride 1: 36 small matrix products between two linear transforms. The
// transforms use plain additions and multiplications in one order, so results do not depend on how tiles are
// batched.
#include "kernels/isa/activation.h"
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

template <int L>
OPFORGE_INLINE void input_transform(const Vec<L>* d, Vec<L>* t) {
  const Vec<L> a = vfma<L>(splat<L>(-4.0f), d[2], d[4]), b = vfma<L>(splat<L>(-4.0f), d[1], d[3]);
  const Vec<L> c = d[4] - d[2], e = (d[3] - d[1]) + (d[3] - d[1]);
  t[0] = vfma<L>(splat<L>(4.0f), d[0], vfma<L>(splat<L>(-5.0f), d[2], d[4]));
  t[1] = a + b;
  t[2] = a - b;
  t[3] = c + e;
  t[4] = c - e;
  t[5] = vfma<L>(splat<L>(4.0f), d[1], vfma<L>(splat<L>(-5.0f), d[3], d[5]));
}

template <int L>
OPFORGE_INLINE void output_transform(const Vec<L>* m, Vec<L>* o) {
  const Vec<L> s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
  o[0] = m[0] + s1 + s2;
  o[1] = d1 + (d2 + d2);
  o[2] = vfma<L>(splat<L>(4.0f), s2, s1);
  o[3] = vfma<L>(splat<L>(8.0f), d2, d1) + m[5];
}

template <int LANES>
void gather(const float* in, int64_t row, float* v, int64_t tap) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth;
  for (int q = 0; q < LANES; q += L) {
    Vec<L> t[6][6];
    OPFORGE_UNROLL
    for (int x = 0; x < 6; ++x) {
      Vec<L> d[6], r[6];
      OPFORGE_UNROLL
      for (int y = 0; y < 6; ++y) d[y] = load<L>(in + (y * row + x) * LANES + q);
      input_transform<L>(d, r);
      OPFORGE_UNROLL
      for (int y = 0; y < 6; ++y) t[y][x] = r[y];
    }
    OPFORGE_UNROLL
    for (int y = 0; y < 6; ++y) {
      Vec<L> r[6];
      input_transform<L>(t[y], r);
      OPFORGE_UNROLL
      for (int x = 0; x < 6; ++x) store<L>(v + (y * 6 + x) * tap + q, r[x]);
    }
  }
}

struct Scatter {
  const float* bias;
  const Activation* activation;
  float* out;
  int64_t row, residual;
  int64_t height, width;  // pixels of this tile that exist
};

template <int LANES>
void scatter(const float* m, int64_t tap, const Scatter& s) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth;
  for (int q = 0; q < LANES; q += L) {
    Vec<L> t[4][6];
    const Vec<L> bias = load<L>(s.bias + q);
    OPFORGE_UNROLL
    for (int x = 0; x < 6; ++x) {
      Vec<L> d[6], r[4];
      OPFORGE_UNROLL
      for (int y = 0; y < 6; ++y) d[y] = load<L>(m + (y * 6 + x) * tap + q);
      output_transform<L>(d, r);
      OPFORGE_UNROLL
      for (int y = 0; y < 4; ++y) t[y][x] = r[y];
    }
    OPFORGE_UNROLL
    for (int y = 0; y < 4; ++y) {
      Vec<L> r[4];
      output_transform<L>(t[y], r);
      if (y >= s.height) continue;
      OPFORGE_UNROLL
      for (int x = 0; x < 4; ++x) {
        if (x >= s.width) continue;
        float* o = s.out + (y * s.row + x) * LANES + q;
        Vec<L> v = activate_any<L>(r[x] + bias, *s.activation);
        if (s.residual != 0) v += load<L>(o + s.residual);
        store<L>(o, v);
      }
    }
  }
}

}  // namespace

// Tiles of a batch: the transformed input and output of all channels stay in the second cache.
int64_t winograd_batch(int64_t channels_in, int64_t channels_out) {
  const int64_t fit = 400 * 1024 / (4 * 36 * (padded_channels(channels_in) + padded_channels(channels_out)));
  const int64_t tiles = least(84, most(14, fit));
  return tiles / 14 * 14;
}

int64_t winograd_scratch(int64_t channels_in, int64_t channels_out) {
  return 36 * winograd_batch(channels_in, channels_out) *
             (padded_channels(channels_in) + padded_channels(channels_out)) +
         padded_channels(channels_out) + 64;
}

void winograd(const ConvArgs& a, float* scratch, int64_t image, int64_t t0, int64_t t1) {
  const Image &x = a.x, &y = a.y;
  const int64_t across = (y.width + 3) / 4, n = t1 - t0, batch = winograd_batch(x.channels, y.channels);
  const int64_t in_tap = batch * padded_channels(x.channels), out_tap = batch * padded_channels(y.channels);
  float* v = scratch;
  float* m = v + 36 * in_tap;
  float* zeros = m + 36 * out_tap;
  std::memset(zeros, 0, sizeof(float) * padded_channels(y.channels));
  for (int64_t b = 0; b < all_blocks(x.channels); ++b) {
    const bool whole = b < whole_blocks(x.channels);
    const int64_t lanes = whole ? 16 : 8;
    const float* plane = x.data + image * x.batch + b * x.plane * 16;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t ty = (t0 + i) / across * 4, tx = (t0 + i) % across * 4;
      const float* in = plane + ((x.top - a.pad_top + ty) * x.row + x.left - a.pad_left + tx) * lanes;
      float* to = v + b * batch * 16 + i * lanes;
      if (whole)
        gather<16>(in, x.row, to, in_tap);
      else
        gather<8>(in, x.row, to, in_tap);
    }
  }
  ConvArgs g{};
  g.x.channels = x.channels, g.y.channels = y.channels;
  g.x.row = g.x.plane = g.y.row = g.y.plane = batch;
  g.x.height = g.y.height = 1;
  g.x.width = g.y.width = int32_t(n);
  g.kernel_h = g.kernel_w = g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = 1;
  g.bias = zeros;
  for (int64_t tap = 0; tap < 36; ++tap) {
    g.x.data = v + tap * in_tap;
    g.y.data = m + tap * out_tap;
    g.weights = a.weights + tap * x.channels * padded_channels(y.channels);
    conv_direct(g, 0, 0, 1, 0, all_blocks(y.channels));
  }
  Scatter s;
  s.activation = &a.activation;
  s.row = y.row;
  s.residual = a.residual != nullptr ? a.residual - y.data : 0;
  for (int64_t b = 0; b < all_blocks(y.channels); ++b) {
    const bool whole = b < whole_blocks(y.channels);
    const int64_t lanes = whole ? 16 : 8;
    float* plane = y.data + image * y.batch + b * y.plane * 16;
    s.bias = a.bias + b * 16;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t ty = (t0 + i) / across * 4, tx = (t0 + i) % across * 4;
      s.out = plane + ((y.top + ty) * y.row + y.left + tx) * lanes;
      s.height = least(4, y.height - ty);
      s.width = least(4, y.width - tx);
      const float* from = m + b * batch * 16 + i * lanes;
      if (whole)
        scatter<16>(from, out_tap, s);
      else
        scatter<8>(from, out_tap, s);
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
