// image.cpp: c16 values: pooling, mean over pixels, nearest resize, concatenation, changes of layout.
#include "kernels/isa/functions.h"
#include "kernels/isa/image_epilogue.h"
#include "kernels/isa/transpose.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

OPFORGE_INLINE int64_t lanes_of(const Image& x, int64_t block) {
  return block < whole_blocks(x.channels) ? 16 : 8;
}
OPFORGE_INLINE float* plane_of(const Image& x, int64_t image, int64_t block) {
  return x.data + image * x.batch + block * x.plane * 16;
}
OPFORGE_INLINE int64_t pixel(const Image& x, int64_t row, int64_t column) {
  return (x.top + row) * x.row + x.left + column;
}

struct Window {
  int64_t begin, end, count;  // taps inside the image, and taps that an average counts
};
OPFORGE_INLINE Window window(int64_t at, int64_t kernel, int64_t dilation, int64_t size, int64_t pad_end,
                             bool count_padding) {
  // Taps whose index is below `limit`; kernels of files may be as large as 2^31.
  const auto below = [&](int64_t limit) {
    return limit <= at ? int64_t{0} : least(kernel, (limit - at + dilation - 1) / dilation);
  };
  Window w{below(0), below(size), 0};
  w.end = most(w.begin, w.end);
  w.count = count_padding ? most(1, below(size + pad_end)) : w.end - w.begin;
  return w;
}

// P neighbouring outputs of one row whose windows have the same taps.
template <int L, int P>
OPFORGE_INLINE void pool_pixels(const PoolArgs& a, const float* in, const Window& h, const Window& w,
                                float* to, int64_t lanes) {
  const int64_t row = a.dilation_h * a.x.row * lanes, tap = a.dilation_w * lanes, step = a.stride_w * lanes;
  Vec<L> v[P];
  OPFORGE_UNROLL
  for (int p = 0; p < P; ++p) v[p] = splat<L>(a.average ? 0.0f : -__builtin_inff());
  for (int64_t y = h.begin; y < h.end; ++y) {
    for (int64_t k = w.begin; k < w.end; ++k) {
      const float* x = in + y * row + k * tap;
      OPFORGE_UNROLL
      for (int p = 0; p < P; ++p) {
        const Vec<L> t = load<L>(x + p * step);
        v[p] = a.average ? v[p] + t : vmax<L>(v[p], t);
      }
    }
  }
  OPFORGE_UNROLL
  for (int p = 0; p < P; ++p)
    store<L>(to + p * lanes, a.average ? v[p] / splat<L>(float(h.count * w.count)) : v[p]);
}

template <int LANES>
void pool_rows(const PoolArgs& a, int64_t image, int64_t block, int64_t y0, int64_t y1) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth, P = 4;
  const float* in = plane_of(a.x, image, block);
  float* out = plane_of(a.y, image, block);
  const int64_t reach = int64_t(a.kernel_w - 1) * a.dilation_w;
  for (int64_t r = y0; r < y1; ++r) {
    const int64_t iy = r * a.stride_h - a.pad_top;
    const Window h = window(iy, a.kernel_h, a.dilation_h, a.x.height, a.pad_bottom, a.count_include_pad);
    for (int64_t c = 0; c < a.y.width;) {
      const int64_t ix = c * a.stride_w - a.pad_left;
      const Window w = window(ix, a.kernel_w, a.dilation_w, a.x.width, a.pad_right, a.count_include_pad);
      const bool many =
          c + P <= a.y.width && ix >= 0 && ix + (P - 1) * int64_t(a.stride_w) + reach < a.x.width;
      const float* from = in + pixel(a.x, iy, ix) * LANES;
      float* to = out + pixel(a.y, r, c) * LANES;
      for (int q = 0; q < LANES; q += L) {
        if (many)
          pool_pixels<L, P>(a, from + q, h, w, to + q, LANES);
        else
          pool_pixels<L, 1>(a, from + q, h, w, to + q, LANES);
      }
      c += many ? P : 1;
    }
  }
}

// Sums of a row go to four partial sums by column, the rows' sums are added in order.
template <int LANES>
void average(const Image& x, const float* in, float* to) {
  constexpr int L = LANES == 16 ? kWidth : kHalfWidth;
  for (int q = 0; q < LANES; q += L) {
    Vec<L> total{};
    for (int64_t r = 0; r < x.height; ++r) {
      const float* p = in + pixel(x, r, 0) * LANES + q;
      Vec<L> s[4] = {};
      int64_t c = 0;
      for (; c + 4 <= x.width; c += 4) {
        OPFORGE_UNROLL
        for (int i = 0; i < 4; ++i) s[i] += load<L>(p + (c + i) * LANES);
      }
      for (int i = 0; c < x.width; ++c, ++i) s[i] += load<L>(p + c * LANES);
      total += (s[0] + s[2]) + (s[1] + s[3]);
    }
    store<L>(to + q, total / splat<L>(float(int64_t(x.height) * x.width)));
  }
}

}  // namespace

void pool(const PoolArgs& a, int64_t image, int64_t block, int64_t y0, int64_t y1) {
  if (lanes_of(a.x, block) == 16)
    pool_rows<16>(a, image, block, y0, y1);
  else
    pool_rows<8>(a, image, block, y0, y1);
}

void global_average(const Image& x, const Image& y, int64_t image, int64_t block) {
  const int64_t lanes = lanes_of(x, block);
  float* to = plane_of(y, image, block) + pixel(y, 0, 0) * lanes;
  if (lanes == 16)
    average<16>(x, plane_of(x, image, block), to);
  else
    average<8>(x, plane_of(x, image, block), to);
}

void resize_nearest(const Image& x, const Image& y, int64_t scale_h, int64_t scale_w, int64_t image,
                    int64_t block, int64_t y0, int64_t y1) {
  const int64_t lanes = lanes_of(x, block);
  const float* in = plane_of(x, image, block);
  float* out = plane_of(y, image, block);
  for (int64_t r = y0; r < y1; ++r) {
    const float* from = in + pixel(x, r, 0) * lanes;
    float* first = out + pixel(y, r * scale_h, 0) * lanes;
    float* to = first;
    for (int64_t c = 0; c < x.width; ++c, from += lanes) {
      for (int64_t k = 0; k < scale_w; ++k, to += lanes) {
        for (int64_t q = 0; q < lanes; q += kHalfWidth) store<kHalfWidth>(to + q, load<kHalfWidth>(from + q));
      }
    }
    for (int64_t k = 1; k < scale_h; ++k)
      std::memcpy(out + pixel(y, r * scale_h + k, 0) * lanes, first, sizeof(float) * y.width * lanes);
  }
}

// Eight channels at a time where both sides begin at multiples of eight, else channel by channel.
void concat_channels(const Image& x, const Image& y, int64_t channel0, int64_t image, int64_t y0,
                     int64_t y1) {
  const bool last = channel0 + x.channels == y.channels;
  for (int64_t c = 0; c < x.channels;) {
    const int64_t lanes_in = lanes_of(x, c / 16), to_channel = channel0 + c,
                  lanes_out = lanes_of(y, to_channel / 16);
    const float* in = plane_of(x, image, c / 16) + c % 16;
    float* out = plane_of(y, image, to_channel / 16) + to_channel % 16;
    const bool sixteen = lanes_in == 16 && lanes_out == 16 && c % 16 == 0 && to_channel % 16 == 0 &&
                         (c + 16 <= x.channels || last);
    const bool eight = c % 8 == 0 && to_channel % 8 == 0 && (c + 8 <= x.channels || last);
    for (int64_t r = y0; r < y1; ++r) {
      const float* from = in + pixel(x, r, 0) * lanes_in;
      float* to = out + pixel(y, r, 0) * lanes_out;
      if (sixteen) {
        std::memcpy(to, from, sizeof(float) * x.width * 16);
      } else if (eight) {
        for (int64_t i = 0; i < x.width; ++i)
          for (int q = 0; q < 8; q += kHalfWidth)
            store<kHalfWidth>(to + i * lanes_out + q, load<kHalfWidth>(from + i * lanes_in + q));
      } else {
        for (int64_t i = 0; i < x.width; ++i) to[i * lanes_out] = from[i * lanes_in];
      }
    }
    c += sixteen ? 16 : eight ? 8 : 1;
  }
}

void to_plain(const Image& x, float* y, int64_t image, int64_t y0, int64_t y1) {
  const int64_t size = int64_t(x.height) * x.width;
  for (int64_t c = 0; c < x.channels; c += 4) {
    const int64_t lanes = lanes_of(x, c / 16), real = least(4, x.channels - c);
    const float* in = plane_of(x, image, c / 16) + c % 16;
    float* out = y + (image * x.channels + c) * size;
    for (int64_t r = y0; r < y1; ++r) {
      const float* from = in + pixel(x, r, 0) * lanes;
      float* to = out + r * x.width;
      int64_t i = 0;
      if (real == 4)
        for (; i + 4 <= x.width; i += 4) transpose4(from + i * lanes, lanes, to + i, size);
      for (; i < x.width; ++i)
        for (int64_t k = 0; k < real; ++k) to[k * size + i] = from[i * lanes + k];
    }
  }
}

void from_plain(const float* x, const Image& y, int64_t image, int64_t y0, int64_t y1) {
  const int64_t size = int64_t(y.height) * y.width;
  const int64_t padded = padded_channels(y.channels);
  for (int64_t c = 0; c < padded; c += 4) {
    const int64_t lanes = lanes_of(y, c / 16), real = most(0, least(4, y.channels - c));
    const float* in = x + (image * y.channels + c) * size;
    float* out = plane_of(y, image, c / 16) + c % 16;
    for (int64_t r = y0; r < y1; ++r) {
      const float* from = in + r * y.width;
      float* to = out + pixel(y, r, 0) * lanes;
      int64_t i = 0;
      if (real == 4)
        for (; i + 4 <= y.width; i += 4) transpose4(from + i, size, to + i * lanes, lanes);
      for (; i < y.width; ++i)
        for (int64_t k = 0; k < 4; ++k) to[i * lanes + k] = k < real ? from[k * size + i] : 0.0f;
    }
  }
}

void epilogue(const ConvArgs& a, int64_t image, int64_t y0, int64_t y1, int64_t block0, int64_t block1) {
  if (a.epilogue != nullptr) image_epilogue(a, image, y0, y1, block0, block1);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
