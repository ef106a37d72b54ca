// matmul.cpp: f32 matrix products over packed panels. A is packed here, P rows at a time, as [k][P]; B comes
// packed as matmul16. No blocking over k: each output is one chain of multiply-adds from the bias, k
// ascending.
#include "kernels/isa/codes.h"
#include "kernels/isa/functions.h"
#include "kernels/isa/half.h"
#include "kernels/isa/pairs.h"
#include "kernels/isa/tile.h"
#include "kernels/isa/transpose.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

// A panel against the blocks of B that lie from b on, `block` elements apart.
using TileFn = void (*)(const float* panel, const void* b, int64_t block, int64_t k, const TileOutput& out);

template <class W, int P, int NF, bool HF>
void product_tile(const float* panel, const void* b, int64_t block, int64_t k, const TileOutput& out) {
  Tile<P, NF, HF> tile;
  tile.begin(out.bias);
  tile.template steps<1, P>(panel, static_cast<const W*>(b), block, b, k);
  tile.finish(out);
}

#if defined(__AVX512F__)
constexpr bool kHasPairs = true;
#else
constexpr bool kHasPairs = false;
#endif
template <class W>
constexpr bool kPairs = std::is_same_v<W, BF16Pairs>;

template <class W, int P, int NF>
constexpr TileFn whole_tile() {
#if defined(__AVX512F__)
  if constexpr (kPairs<W>) return pair_tile<P, NF>;
#endif
  if constexpr (!kPairs<W>) return product_tile<W, P, NF, false>;
  return nullptr;
}

constexpr int kMaxRows = 14;
// Column groups: kMain whole blocks where rows fill the registers, more for few rows (there the stream of B
// is the limit and needs several chains of additions at once).
constexpr int kMain = kWidth == 16 ? 2 : 1;
constexpr int kFew = kWidth == 16 ? 4 : 2;
constexpr int kSingle = kWidth == 16 ? 8 : 4;
constexpr int kFewRows = tile_rows(kFew, false);

// Half weights are widened in the loop for so few rows; for more, a group of columns is widened once.
constexpr int kHalfRows = kFewRows < 4 ? kFewRows : 4;

// Whether tiles of W serve every count of rows.
template <class W>
constexpr bool kAnyRows = sizeof(W) == 4 || kPairs<W>;

template <class W>
struct Tiles {
  TileFn main[kMaxRows + 1] = {}, one[kMaxRows + 1] = {}, half[kMaxRows + 1] = {}, few[kMaxRows + 1] = {};
  TileFn single[2] = {};
  template <int P>
  constexpr void fill() {
    if constexpr (P <= tile_rows(kMain, false)) {
      if constexpr (kAnyRows<W>) main[P] = whole_tile<W, P, kMain>();
      one[P] = whole_tile<W, P, 1>();
      if constexpr (!kPairs<W>) half[P] = product_tile<W, P, 0, true>;
      if constexpr (P <= kFewRows) few[P] = whole_tile<W, P, kFew>();
    }
    if constexpr (P > 1) fill<P - 1>();
  }
  constexpr Tiles() {
    single[1] = whole_tile<W, 1, kSingle>();
    fill<kAnyRows<W> ? kMaxRows : kHalfRows>();
  }
};
template <class W>
constexpr Tiles<W> kTiles;

// Rows of A into one panel [k][rows].
void pack_panel(const float* a, int64_t row, int64_t column, int64_t rows, int64_t k, float* dst) {
  if (rows == 1 && column == 1) {
    std::memcpy(dst, a, sizeof(float) * k);
    return;
  }
  if (column != 1 || rows < 4) {
    for (int64_t i = 0; i < k; ++i)
      for (int64_t p = 0; p < rows; ++p) dst[i * rows + p] = a[p * row + i * column];
    return;
  }
  int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    for (int64_t p = 0;; p = least(p + 4, rows - 4)) {  // the last group overlaps the one before it
      transpose4(a + p * row + i, row, dst + i * rows + p, rows);
      if (p == rows - 4) break;
    }
  }
  for (; i < k; ++i)
    for (int64_t p = 0; p < rows; ++p) dst[i * rows + p] = a[p * row + i];
}

// Rows of A, dense along k, rounded to bf16 into one panel [pairs of k][rows]; of an odd k the last has a
// zero.
void pack_pairs(const float* a, int64_t row, int64_t rows, int64_t k, float* dst) {
  constexpr int64_t kTerms = 64;
  alignas(64) float pairs[kMaxRows * kTerms / 2];
  for (int64_t i = 0; i < k; i += kTerms) {
    const int64_t terms = least(kTerms, k - i), words = (terms + 1) / 2;
    for (int64_t p = 0; p < rows; ++p) {
      float* to = pairs + p * kTerms / 2;
      to[words - 1] = 0;
      narrow_halves(true, a + p * row + i, reinterpret_cast<uint16_t*>(to), terms);
    }
    pack_panel(pairs, kTerms / 2, 1, rows, words, dst + i / 2 * rows);
  }
}

void round_panel(float* panel, int64_t n) {
  constexpr int64_t kStretch = 256;
  uint16_t halves[kStretch];
  for (int64_t i = 0; i < n; i += kStretch) {
    const int64_t here = least(kStretch, n - i);
    narrow_halves(true, panel + i, halves, here);
    widen_halves(true, halves, panel + i, here);
  }
}

// Rows of tile i when `rows` rows are spread evenly over `tiles` tiles.
OPFORGE_INLINE int64_t spread(int64_t rows, int64_t tiles, int64_t i) {
  return rows / tiles + (i < rows % tiles ? 1 : 0);
}

// All panels against one group of columns that lies at b; `real` columns of it exist in C.
void columns(const MatmulArgs& g, const void* b, int64_t block, const float* panel, const TileFn* fn,
             int64_t tiles, int64_t m0, int64_t m1, int64_t n, int64_t width, int64_t real) {
  TileOutput out{};
  out.bias = g.bias != nullptr ? g.bias + n : nullptr;
  out.activation = &g.activation;
  alignas(64) float edge[kMaxRows * 16];
  int64_t m = m0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t rows = spread(m1 - m0, tiles, i);
    float* c = g.c + m * g.c_row + n;
    const bool whole = real == width;
    out.whole = out.half = whole ? c : edge;
    out.block = 16;
    out.row = out.half_row = whole ? g.c_row : width;
    fn[rows](panel + (m - m0) * g.k, b, block, g.k, out);
    if (!whole)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < real; ++j) c[r * g.c_row + j] = edge[r * width + j];
    m += rows;
  }
}

}  // namespace

namespace {

// How rows are cut into tiles: even pieces, at most `limit` rows each.
struct RowTiles {
  bool few;
  int64_t count;
  explicit RowTiles(int64_t rows) : few(rows <= kFewRows) {
    const int64_t limit = few ? kFewRows : tile_rows(kMain, false);
    count = (rows + limit - 1) / limit;
  }
};

template <class W>
void widen_from(const void* weights, float* to, int64_t n) {
  const W* from = static_cast<const W*>(weights);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store<kWidth>(to + i, load<kWidth>(from + i));
  for (; i < n; i += kHalfWidth) store<kHalfWidth>(to + i, load<kHalfWidth>(from + i));
}

// One row that lies dense is its own panel.
OPFORGE_INLINE bool own_panel(const MatmulArgs& g, int64_t rows) {
  return rows == 1 && g.a_column == 1 && g.operands == OperandKind::kAsTheyAre;
}

}  // namespace

void pack_a(const MatmulArgs& g, float* panel, int64_t m0, int64_t m1) {
  pack_a_part(g, panel, m0, m1, 0, 1);
}

void pack_a_part(const MatmulArgs& g, float* panel, int64_t m0, int64_t m1, int64_t part, int64_t parts) {
  if (m1 <= m0 || own_panel(g, m1 - m0)) return;
  const RowTiles tiles(m1 - m0);
  const int64_t first = tiles.count * part / parts, last = tiles.count * (part + 1) / parts;
  int64_t m = m0;
  for (int64_t i = 0; i < last; ++i) {
    const int64_t p = spread(m1 - m0, tiles.count, i);
    const float* from = g.a + m * g.a_row;
    float* to = panel + (m - m0) * g.k;
    m += p;
    if (i < first) continue;
    if (kHasPairs && g.operands == OperandKind::kPairs) {
      pack_pairs(from, g.a_row, p, g.k, to);
      continue;
    }
    pack_panel(from, g.a_row, g.a_column, p, g.k, to);
    if (g.operands != OperandKind::kAsTheyAre) round_panel(to, p * g.k);
  }
}

namespace {

bool coded(const MatmulArgs& g) { return g.b_kind == WeightKind::kU4 || g.b_kind == WeightKind::kU8; }

// Columns [n, n + width) of B as f32 into g.unpacked, blocks of 16 (or 8) k*16 floats apart.
void unpack(const MatmulArgs& g, int64_t n, int64_t width) {
  if (coded(g)) {
    for (int64_t i = 0; i < width / 16; ++i) decode(g, n / 16 + i, g.unpacked + i * g.k * 16);
    return;
  }
  const int64_t lanes = width == 8 ? 8 : 16;
  const uint16_t* from = static_cast<const uint16_t*>(g.b) + n * g.k;
  for (int64_t i = 0; i < width / lanes; ++i)
    widen(g.b_kind, from + i * g.k * 16, g.unpacked + i * g.k * lanes, g.k * lanes);
}

// A half block that starts at column n, as a whole one whose other columns are zeros.
const void* whole_block(const MatmulArgs& g, int64_t n) {
  const uint16_t* from = static_cast<const uint16_t*>(g.b) + n * g.k;
  uint16_t* to = reinterpret_cast<uint16_t*>(g.unpacked);
  std::memset(to, 0, sizeof(uint16_t) * 16 * g.k);
  for (int64_t i = 0; i < g.k; ++i) std::memcpy(to + i * 16, from + i * 8, sizeof(uint16_t) * 8);
  return to;
}

// One row against one group of columns of coded weights, decoded in registers.
void coded_columns(const MatmulArgs& g, const float* x, int64_t m, int64_t n, int64_t width) {
  alignas(64) float edge[kCoded * 16];
  const int64_t real = least(width, g.n - n);
  float* c = g.c + m * g.c_row + n;
  TileOutput out{};
  out.bias = g.bias != nullptr ? g.bias + n : nullptr;
  out.activation = &g.activation;
  out.whole = real == width ? c : edge;
  out.block = 16;
  coded_tile(g, x, n / 16, width == 16 ? 1 : kCoded, out);
  for (int64_t j = 0; real < width && j < real; ++j) c[j] = edge[j];
}

// T: as what the tiles read B; float where it is unpacked first.
template <class T>
void product(const MatmulArgs& g, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  const int64_t rows = m1 - m0;
  const bool few = RowTiles(rows).few, as_it_lies = sizeof(T) != 4 || g.b_kind == WeightKind::kF32;
  const int64_t tiles = RowTiles(rows).count;
  const float* packed = own_panel(g, rows) ? g.a + m0 * g.a_row : panel;
  const int64_t b_rows = g.b_rows != 0 ? g.b_rows : g.k;
  const T* b = static_cast<const T*>(g.b);
  // Columns before this lie in whole blocks.
  const int64_t whole_end = (coded(g) ? all_blocks(g.n) : whole_blocks(g.n)) * 16;
  // An epilogue runs over about 16 K floats at once: long rows, still in the first or second cache.
  const int64_t stretch = most(32, 16384 / rows / 32 * 32);
  const int64_t stop = least(g.n, n1);
  for (int64_t n = n0; n < stop;) {
    const int64_t begin = n, end = g.epilogue != nullptr ? least(stop, n + stretch) : stop;
    while (n < end) {
      int64_t width = 8;
      const TileFn* fn = kTiles<T>.half;
      const int64_t left = least(whole_end, (end + 15) / 16 * 16) - n;  // up to whole blocks
      if (coded(g) && rows == 1) {
        width = left >= kCoded * 16 ? kCoded * 16 : 16;
        coded_columns(g, packed, m0, n, width);
        n += width;
        continue;
      }
      if (rows == 1 && left >= kSingle * 16 && n + kSingle * 16 <= g.n) {
        width = kSingle * 16, fn = kTiles<T>.single;
      } else if (few && left >= kFew * 16 && n + kFew * 16 <= g.n) {
        width = kFew * 16, fn = kTiles<T>.few;
      } else if (kTiles<T>.main[1] != nullptr && left >= kMain * 16 && n + kMain * 16 <= g.n) {
        width = kMain * 16, fn = kTiles<T>.main;
      } else if (left >= 16) {
        width = 16, fn = kTiles<T>.one;
      }
      if (kPairs<T> && width == 8) {
        columns(g, whole_block(g, n), 0, packed, kTiles<T>.one, tiles, m0, m1, n, 16, least(8, g.n - n));
        n += 8;
        continue;
      }
      const void* group = g.unpacked;
      int64_t block = g.k * 16;
      if (as_it_lies) {
        group = b + n * b_rows + g.b_first * (width == 8 ? 8 : 16), block = b_rows * 16;
      } else {
        unpack(g, n, width);
      }
      columns(g, group, block, packed, fn, tiles, m0, m1, n, width, least(width, g.n - n));
      n += width;
    }
    n = least(n, g.n);
    if (g.epilogue != nullptr)
      g.epilogue(g.user, g.c + m0 * g.c_row + begin, rows, n - begin, m0, begin, g.c_row);
  }
}

}  // namespace

void matmul(const MatmulArgs& g, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if (m1 <= m0 || n1 <= n0) return;
#if defined(__AVX512F__)
  if (g.operands == OperandKind::kPairs) return product<BF16Pairs>(g, panel, m0, m1, n0, n1);
#endif
  const bool few = m1 - m0 <= kHalfRows;
  if (few && g.b_kind == WeightKind::kF16) return product<F16>(g, panel, m0, m1, n0, n1);
  if (few && g.b_kind == WeightKind::kBF16) return product<BF16>(g, panel, m0, m1, n0, n1);
  product<float>(g, panel, m0, m1, n0, n1);
}

void widen(WeightKind kind, const void* from, float* to, int64_t n) {
  if (kind == WeightKind::kF16) return widen_from<F16>(from, to, n);
  if (kind == WeightKind::kBF16) return widen_from<BF16>(from, to, n);
  std::memcpy(to, from, sizeof(float) * n);
}

int64_t matmul_panel_floats(int64_t rows, int64_t k) { return rows * k + 16; }
int64_t matmul_unpacked_floats(int64_t k) { return most(kFew, kMain) * 16 * k; }

void pack_b(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* packed, int64_t block0,
            int64_t block1) {
  for (int64_t block = block0; block < block1; ++block) {
    const int64_t n0 = block * 16, width = n - n0 <= 8 ? 8 : 16, real = least(width, n - n0);
    float* dst = packed + n0 * k;
    if (column == 1 && real == width) {
      for (int64_t i = 0; i < k; ++i) std::memcpy(dst + i * width, b + i * row + n0, sizeof(float) * width);
    } else if (row == 1 && real == width) {
      int64_t i = 0;
      for (; i + 4 <= k; i += 4)
        for (int64_t j = 0; j < width; j += 4)
          transpose4(b + (n0 + j) * column + i, column, dst + i * width + j, width);
      for (; i < k; ++i)
        for (int64_t j = 0; j < width; ++j) dst[i * width + j] = b[i + (n0 + j) * column];
    } else {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < width; ++j)
          dst[i * width + j] = j < real ? b[i * row + (n0 + j) * column] : 0.0f;
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
