// integer.cpp: products of bytes with 32-bit sums. A tile of P rows by NB blocks of 16 columns stays in
// registers; four bytes of a row at a time meet 64 bytes of packed weights.
#include "kernels/isa/functions.h"
#include "kernels/isa/integer_lanes.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

constexpr int kVectors = 16 / kWidth;  // of a block
constexpr int kTileRows = kWidth == 16 ? 12 : kWidth == 8 ? 4 : 2;
constexpr int kTileBlocks = kWidth == 16 ? 2 : 1;  // 24 sums; the weights of a tile stay in the first cache

// Writes the sums of P rows, NB * 16 side by side.
using TileFn = void (*)(const IntegerArgs& g, int64_t row, int64_t block, int32_t* sums);

template <class Dot, int P, int NB>
void tile(const IntegerArgs& g, int64_t row, int64_t block, int32_t* sums) {
  Ints sum[P][NB * kVectors];
  OPFORGE_UNROLL
  for (int p = 0; p < P; ++p) {
    OPFORGE_UNROLL
    for (int j = 0; j < NB * kVectors; ++j) sum[p][j] = Ints{};
  }
  const int64_t block_bytes = g.n_segments * g.groups * 64;
  const int8_t* b = g.b + block * block_bytes;
  const uint8_t* a = g.a + row * g.a_row;
  for (int64_t s = 0; s < g.n_segments; ++s) {
    const uint8_t* from = a + g.segments[s];
    _Pragma("GCC unroll 1") for (int64_t k = 0; k < g.groups; ++k) {
      typename Dot::Weights w[NB * kVectors];
      OPFORGE_UNROLL
      for (int j = 0; j < NB * kVectors; ++j)
        w[j] = Dot::weights(load_ints(b + j / kVectors * block_bytes + j % kVectors * kWidth * 4));
      OPFORGE_UNROLL
      for (int p = 0; p < P; ++p) {
        const typename Dot::Row r = Dot::row(broadcast4(from + p * g.a_row));
        OPFORGE_UNROLL
        for (int j = 0; j < NB * kVectors; ++j) sum[p][j] = Dot::dot(sum[p][j], r, w[j]);
      }
      b += 64;
      from += 4;
    }
  }
  OPFORGE_UNROLL
  for (int p = 0; p < P; ++p) {
    OPFORGE_UNROLL
    for (int j = 0; j < NB * kVectors; ++j) store_ints(sums + p * NB * 16 + j * kWidth, sum[p][j]);
  }
}

// rows x blocks finished sums to their place; once for all tiles, since it is long.
__attribute__((noinline)) void finish(const IntegerArgs& g, const int32_t* sums, int64_t row, int64_t rows,
                                      int64_t block, int64_t blocks) {
  const bool bytes = g.output == IntegerOutput::kU8 || g.output == IntegerOutput::kI8;
  if (bytes && g.row == nullptr && (block + blocks) * 16 <= g.n) {
    for (int64_t i = 0; i < blocks * 16; i += kWidth) {
      const int64_t n = block * 16 + i;
      uint8_t* to = static_cast<uint8_t*>(g.c) + row * g.c_row + n;
      if (g.shift != nullptr)
        requantize_rows<true>(g, sums + i, blocks * 16, rows, n, to);
      else
        requantize_rows<false>(g, sums + i, blocks * 16, rows, n, to);
    }
    return;
  }
  for (int64_t p = 0; p < rows; ++p) {
    for (int64_t j = 0; j < blocks; ++j, sums += 16) {
      Ints v[kVectors];
      OPFORGE_UNROLL
      for (int i = 0; i < kVectors; ++i) v[i] = load_ints(sums + i * kWidth);
      finish16(g, v, row + p, (block + j) * 16);
    }
  }
}

struct Tiles {
  TileFn wide[kTileRows + 1] = {}, one[kTileRows + 1] = {};
};
template <class Dot>
struct TilesOf : Tiles {
  template <int P>
  constexpr void fill() {
    wide[P] = tile<Dot, P, kTileBlocks>;
    one[P] = tile<Dot, P, 1>;
    if constexpr (P > 1) fill<P - 1>();
  }
  constexpr TilesOf() { fill<kTileRows>(); }
};
constexpr TilesOf<DotPairs> kPairs;
#if defined(__AVX2__)
constexpr TilesOf<DotInstruction> kInstruction;
#else
constexpr const TilesOf<DotPairs>& kInstruction = kPairs;
#endif

}  // namespace

void integer_product(const IntegerArgs& g, int64_t m0, int64_t m1, int64_t block0, int64_t block1) {
  const Tiles& tiles =
      g.pairs == 0 && has_dot_instruction() ? static_cast<const Tiles&>(kInstruction) : kPairs;
  alignas(64) int32_t sums[kTileRows * kTileBlocks * 16];
  const int64_t rows = m1 - m0, count = (rows + kTileRows - 1) / kTileRows;
  const auto piece = [&](int64_t i, int64_t block) {  // even pieces of the rows; returns the blocks done
    const int64_t width = block1 - block >= kTileBlocks ? kTileBlocks : 1, extra = rows % count;
    const int64_t m = m0 + i * (rows / count) + least(i, extra), p = rows / count + (i < extra ? 1 : 0);
    (width > 1 ? tiles.wide : tiles.one)[p](g, m, block, sums);
    finish(g, sums, m, p, block, width);
    return width;
  };
  // Weights that stay in the first cache meet few rows at a time, so that whole rows of C are written at
  // once; more of them meet all rows, block by block.
  if ((block1 - block0) * g.n_segments * g.groups * 64 <= kIntegerWeights) {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t block = block0; block < block1;) block += piece(i, block);
    return;
  }
  for (int64_t block = block0, width = 0; block < block1; block += width)
    for (int64_t i = 0; i < count; ++i) width = piece(i, block);
}

namespace {

constexpr int64_t kPixels = 12;  // whose sums wait to be finished together

// Channels [n, n + 16) of some pixels.
void depthwise16(const IntegerDepthwiseArgs& d, int64_t pixel0, int64_t pixel1, int64_t n) {
  const IntegerArgs& g = d.output;
  const int64_t padded = (g.n + 15) / 16 * 16, real = least(16, g.n - n);
  for (int64_t p0 = pixel0; p0 < pixel1; p0 += kPixels) {
    const int64_t count = least(kPixels, pixel1 - p0);
    alignas(64) int32_t sums[kPixels][16];
    for (int64_t p = 0; p < count; ++p) {
      alignas(64) int32_t sum[16] = {};
      const uint8_t* x = d.x + (p0 + p) * d.x_pixel + n;
      if (real == 16) {
        for (int64_t t = 0; t < d.n_taps; ++t) {
          const uint8_t* a = x + d.taps[t];
          const int8_t* w = d.weights + t * padded + n;
          for (int j = 0; j < 16; ++j) sum[j] += int32_t(a[j]) * w[j];
        }
      } else {
        for (int64_t t = 0; t < d.n_taps; ++t)
          for (int64_t j = 0; j < real; ++j)
            sum[j] += int32_t(x[d.taps[t] + j]) * d.weights[t * padded + n + j];
      }
      std::memcpy(sums[p], sum, sizeof sum);
    }
    finish(g, sums[0], p0, count, n / 16, 1);
  }
}

#if defined(__AVX512BW__)
// Sixty-four channels at once: four taps are interleaved into the bytes of a lane, and one dot product takes
// them. Interleaving stays within 128 bits, so that the sums of 4 channels out of every 16 lie side by side.
struct Interleaved {
  __m512i v[4];
};
OPFORGE_INLINE Interleaved interleave(const void* t0, const void* t1, const void* t2, const void* t3) {
  const __m512i a = _mm512_loadu_si512(t0), b = _mm512_loadu_si512(t1), c = _mm512_loadu_si512(t2),
                d = _mm512_loadu_si512(t3);
  const __m512i ab0 = _mm512_unpacklo_epi8(a, b), ab1 = _mm512_unpackhi_epi8(a, b),
                cd0 = _mm512_unpacklo_epi8(c, d), cd1 = _mm512_unpackhi_epi8(c, d);
  return {{_mm512_unpacklo_epi16(ab0, cd0), _mm512_unpackhi_epi16(ab0, cd0), _mm512_unpacklo_epi16(ab1, cd1),
           _mm512_unpackhi_epi16(ab1, cd1)}};
}
// The four groups of sums in the order of the channels.
OPFORGE_INLINE void store_ordered(const Ints* s, int32_t* to) {
  const __m512i a = (__m512i)s[0], b = (__m512i)s[1], c = (__m512i)s[2], d = (__m512i)s[3];
  const __mmask16 all = static_cast<__mmask16>(-1);
  const __m512i x = _mm512_maskz_shuffle_i32x4(all, a, b, 0x44),
                y = _mm512_maskz_shuffle_i32x4(all, c, d, 0x44),
                z = _mm512_maskz_shuffle_i32x4(all, a, b, 0xee),
                w = _mm512_maskz_shuffle_i32x4(all, c, d, 0xee);
  _mm512_storeu_si512(to, _mm512_maskz_shuffle_i32x4(all, x, y, 0x88));
  _mm512_storeu_si512(to + 16, _mm512_maskz_shuffle_i32x4(all, x, y, 0xdd));
  _mm512_storeu_si512(to + 32, _mm512_maskz_shuffle_i32x4(all, z, w, 0x88));
  _mm512_storeu_si512(to + 48, _mm512_maskz_shuffle_i32x4(all, z, w, 0xdd));
}

constexpr int64_t kMostTaps = 64;

// Channels [n, n + 64) of all pixels; w: their bytes for each tap, `row` apart.
void depthwise64(const IntegerDepthwiseArgs& d, int64_t pixels, int64_t n, const int8_t* w, int64_t row) {
  alignas(64) static const uint8_t nothing[64] = {};
  const int64_t groups = (d.n_taps + 3) / 4;
  Interleaved weights[kMostTaps / 4];
  int64_t taps[kMostTaps];
  const auto tap = [&](int64_t t) -> const void* {
    return t < d.n_taps ? w + t * row : static_cast<const void*>(nothing);
  };
  for (int64_t i = 0; i < groups; ++i)
    weights[i] = interleave(tap(4 * i), tap(4 * i + 1), tap(4 * i + 2), tap(4 * i + 3));
  for (int64_t t = 0; t < 4 * groups; ++t) taps[t] = d.taps[least(t, d.n_taps - 1)] + n;
  alignas(64) int32_t sums[kPixels * 64];
  for (int64_t p0 = 0; p0 < pixels; p0 += kPixels) {
    const int64_t count = least(kPixels, pixels - p0);
    for (int64_t p = 0; p < count; ++p) {
      const uint8_t* x = d.x + (p0 + p) * d.x_pixel;
      Ints s[4] = {};
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t* t = taps + 4 * i;
        const Interleaved v = interleave(x + t[0], x + t[1], x + t[2], x + t[3]);
        OPFORGE_UNROLL
        for (int k = 0; k < 4; ++k) s[k] = DotInstruction::dot(s[k], (Ints)v.v[k], {(Ints)weights[i].v[k]});
      }
      store_ordered(s, sums + p * 64);
    }
    finish(d.output, sums, p0, count, n / 16, 4);
  }
}

// Few channels, pixels without gaps: 64 bytes are 64/C pixels, whose weights and terms repeat. Returns the
// pixels that it has done.
int64_t depthwise_repeated(const IntegerDepthwiseArgs& d, int64_t pixels) {
  const IntegerArgs& g = d.output;
  const int64_t channels = g.n, each = 64 / channels;
  int8_t weights[kMostTaps * 64];
  alignas(64) int32_t column[64];
  alignas(64) float scale[64], shift[64];
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t c = i % channels;
    column[i] = g.column[c];
    scale[i] = g.scale != nullptr ? g.scale[c] : 0;
    shift[i] = g.shift != nullptr ? g.shift[c] : 0;
    for (int64_t t = 0; t < d.n_taps; ++t) weights[t * 64 + i] = d.weights[t * channels + c];
  }
  IntegerDepthwiseArgs wide = d;
  wide.x_pixel = wide.output.c_row = wide.output.n = 64;
  wide.output.column = column;
  wide.output.scale = scale;
  if (g.shift != nullptr) wide.output.shift = shift;
  depthwise64(wide, pixels / each, 0, weights, 64);
  return pixels / each * each;
}
#endif

}  // namespace

void integer_depthwise(const IntegerDepthwiseArgs& d, int64_t pixels) {
  const IntegerArgs& g = d.output;
  int64_t done = 0, n = 0;
#if defined(__AVX512BW__)
  if (g.n % 16 == 0 && d.n_taps >= 1 && d.n_taps <= kMostTaps && g.row == nullptr && g.pairs == 0 &&
      has_dot_instruction()) {
    for (; n + 64 <= g.n; n += 64) depthwise64(d, pixels, n, d.weights + n, g.n);
    if (n > 0 && n < g.n) {  // the last ones overlap those before
      depthwise64(d, pixels, g.n - 64, d.weights + g.n - 64, g.n);
      n = g.n;
    }
    const bool bytes = g.output == IntegerOutput::kU8 || g.output == IntegerOutput::kI8;
    if (n == 0 && 64 % g.n == 0 && d.x_pixel == g.n && g.c_row == g.n && bytes)
      done = depthwise_repeated(d, pixels);
  }
#endif
  for (; n < g.n; n += 16) depthwise16(d, done, pixels, n);
}

void integer_rows(const uint8_t* from, int64_t from_row, uint8_t flip, int64_t rows, int64_t k, uint8_t* to,
                  int64_t to_row, int32_t* sums) {
  for (int64_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += static_cast<uint8_t>(from[i] ^ flip);
    if (sums != nullptr) sums[r] = static_cast<int32_t>(sum);
    if (to == from) continue;
    for (int64_t i = 0; i < k; ++i) to[i] = from[i] ^ flip;
    for (int64_t i = k; i < to_row; ++i) to[i] = 0;
  }
}

namespace {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t Bytes16Memory __attribute__((vector_size(16), aligned(1), may_alias));

// Sixteen rows of sixteen bytes: interleaving rows i and i + 8 four times turns rows into columns.
OPFORGE_INLINE void transpose16(const uint8_t* from, int64_t from_row, uint8_t* to, int64_t to_row,
                                Bytes16 flip) {
  Bytes16 v[16];
  OPFORGE_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = *reinterpret_cast<const Bytes16Memory*>(from + i * from_row) ^ flip;
  OPFORGE_UNROLL
  for (int step = 0; step < 4; ++step) {
    Bytes16 w[16];
    OPFORGE_UNROLL
    for (int i = 0; i < 8; ++i) {
      w[2 * i] =
          __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                             30, 15, 31);
    }
    OPFORGE_UNROLL
    for (int i = 0; i < 16; ++i) v[i] = w[i];
  }
  OPFORGE_UNROLL
  for (int i = 0; i < 16; ++i) *reinterpret_cast<Bytes16Memory*>(to + i * to_row) = v[i];
}

}  // namespace

void transpose_bytes(const uint8_t* from, int64_t from_row, int64_t rows, int64_t columns, uint8_t* to,
                     int64_t to_row, uint8_t flip) {
  const Bytes16 mask = flip - Bytes16{};
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < columns; c += 16) {
      if (rows >= 16 && columns >= 16) {  // the last block overlaps the one before it
        const int64_t r0 = least(r, rows - 16), c0 = least(c, columns - 16);
        transpose16(from + r0 * from_row + c0, from_row, to + c0 * to_row + r0, to_row, mask);
        continue;
      }
      for (int64_t i = r; i < least(rows, r + 16); ++i)
        for (int64_t j = c; j < least(columns, c + 16); ++j)
          to[j * to_row + i] = from[i * from_row + j] ^ flip;
    }
  }
}

void quantize_bytes(const float* x, uint8_t* y, int64_t n, float scale, int32_t zero, bool is_signed) {
  const Vec<kWidth> divisor = splat<kWidth>(scale), magic = splat<kWidth>(12582912.0f);  // 1.5 * 2^23
  const Vec<kWidth> least_ = splat<kWidth>(float((is_signed ? -128 : 0) - zero));
  const Vec<kWidth> most_ = splat<kWidth>(float((is_signed ? 127 : 255) - zero));
  const Vec<kWidth> nothing = splat<kWidth>(float(-zero));
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t real = least(kWidth, n - i);
    float edge[kWidth] = {};
    if (real < kWidth) std::memcpy(edge, x + i, sizeof(float) * real);
    Vec<kWidth> v = load<kWidth>(real < kWidth ? edge : x + i) / divisor;
    v = v == v ? v : nothing;
    v = vmin<kWidth>(vmax<kWidth>(v, least_), most_) + magic;
    const Ints whole = (Ints)v - 0x4b400000 + zero;
    const auto bytes = __builtin_convertvector(whole, IntegersOf<kWidth>::Bytes);
    std::memcpy(y + i, &bytes, static_cast<size_t>(real));
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
