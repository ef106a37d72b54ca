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
        Vec<L> v = r[x] + bias;
        if (s.residual != 0 && s.activation->on_sum) v += load<L>(o + s.residual);
        v = activate_any<L>(v, *s.activation);
        if (s.residual != 0 && !s.activation->on_sum) v += load<L>(o + s.residual);
        store<L>(o, v);
      }
    }
  }
}

// A tile's image and first output pixel.
struct Place {
  int64_t image, y, x, height, width;
  Place(const ConvArgs& a, int64_t tile) : height((a.y.height + 3) / 4 * 4), width((a.y.width + 3) / 4 * 4) {
    const int64_t across = width / 4, tiles = height / 4 * across;
    image = tile / tiles;
    y = tile % tiles / across * 4, x = tile % across * 4;
  }
  OPFORGE_INLINE void step() {
    x += 4;
    if (x == width) x = 0, y += 4;
    if (y == height) y = 0, ++image;
  }
};

}  // namespace

void winograd_input(const ConvArgs& a, float* v, int64_t batch, int64_t t0, int64_t t1, int64_t block0,
                    int64_t block1) {
  const Image& x = a.x;
  const int64_t tap = winograd_tap(batch, x.channels);
  for (int64_t b = block0; b < block1; ++b) {
    const bool whole = b < whole_blocks(x.channels);
    const int64_t lanes = whole ? 16 : 8;
    Place at(a, t0);
    for (int64_t i = 0; i < t1 - t0; ++i, at.step()) {
      const float* in = x.data + at.image * x.batch + b * x.plane * 16 +
                        ((x.top - a.pad_top + at.y) * x.row + x.left - a.pad_left + at.x) * lanes;
      float* to = v + b * batch * 16 + i * lanes;
      if (whole)
        gather<16>(in, x.row, to, tap);
      else
        gather<8>(in, x.row, to, tap);
    }
  }
}

void winograd_product(const ConvArgs& a, const float* v, float* m, int64_t batch, int64_t tiles, int64_t tap0,
                      int64_t tap1) {
  ConvArgs g{};
  g.x.channels = a.x.channels, g.y.channels = a.y.channels;
  g.x.row = g.x.plane = g.y.row = g.y.plane = batch;
  g.x.height = g.y.height = 1;
  g.x.width = g.y.width = int32_t(tiles);
  g.kernel_h = g.kernel_w = g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = 1;
  g.tile_blocks = a.tile_blocks;
  g.fetch_ahead = a.fetch_ahead;
  for (int64_t tap = tap0; tap < tap1; ++tap) {
    g.x.data = const_cast<float*>(v) + tap * winograd_tap(batch, a.x.channels);
    g.y.data = m + tap * winograd_tap(batch, a.y.channels);
    g.weights = a.weights + tap * a.x.channels * padded_channels(a.y.channels);
    conv_direct(g, 0, 1, 0, 1, 0, all_blocks(a.y.channels));
  }
}

void winograd_output(const ConvArgs& a, const float* m, int64_t batch, int64_t t0, int64_t t1, int64_t block0,
                     int64_t block1) {
  const Image& y = a.y;
  const int64_t tap = winograd_tap(batch, y.channels);
  Scatter s;
  s.activation = &a.activation;
  s.row = y.row;
  s.residual = a.residual != nullptr ? a.residual - y.data : 0;
  for (int64_t b = block0; b < block1; ++b) {
    const bool whole = b < whole_blocks(y.channels);
    const int64_t lanes = whole ? 16 : 8;
    s.bias = a.bias + b * 16;
    Place at(a, t0);
    for (int64_t i = 0; i < t1 - t0; ++i, at.step()) {
      s.out =
          y.data + at.image * y.batch + b * y.plane * 16 + ((y.top + at.y) * y.row + y.left + at.x) * lanes;
      s.height = least(4, y.height - at.y);
      s.width = least(4, y.width - at.x);
      const float* from = m + b * batch * 16 + i * lanes;
      if (whole)
        scatter<16>(from, tap, s);
      else
        scatter<8>(from, tap, s);
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
