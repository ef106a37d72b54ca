// matmul.cpp: f32 matrix products over packed panels. A is packed here, P rows at a time, as [k][P]; B comes
// packed as matmul16. No blocking over k: each output is one chain of multiply-adds from the bias, k
// ascending.
#include "kernels/isa/functions.h"
#include "kernels/isa/half.h"
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

constexpr int kMaxRows = 14;
// Column groups: kMain whole blocks where rows fill the registers, more for few rows (there the stream of B
// is the limit and needs several chains of additions at once).
constexpr int kMain = kWidth == 16 ? 2 : 1;
constexpr int kFew = kWidth == 16 ? 4 : 2;
constexpr int kSingle = kWidth == 16 ? 8 : 4;
constexpr int kFewRows = tile_rows(kFew, false);

// Half weights are widened in the loop for so few rows; for more, a group of columns is widened once.
constexpr int kHalfRows = kFewRows < 4 ? kFewRows : 4;

template <class W>
struct Tiles {
  TileFn main[kMaxRows + 1] = {}, one[kMaxRows + 1] = {}, half[kMaxRows + 1] = {}, few[kMaxRows + 1] = {};
  TileFn single[2] = {};
  template <int P>
  constexpr void fill() {
    if constexpr (P <= tile_rows(kMain, false)) {
      if constexpr (sizeof(W) == 4) main[P] = product_tile<W, P, kMain, false>;
      one[P] = product_tile<W, P, 1, false>;
      half[P] = product_tile<W, P, 0, true>;
      if constexpr (P <= kFewRows) few[P] = product_tile<W, P, kFew, false>;
    }
    if constexpr (P > 1) fill<P - 1>();
  }
  constexpr Tiles() {
    single[1] = product_tile<W, 1, kSingle, false>;
    fill<sizeof(W) == 4 ? kMaxRows : kHalfRows>();
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
OPFORGE_INLINE bool own_panel(const MatmulArgs& g, int64_t rows) { return rows == 1 && g.a_column == 1; }

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
    if (i >= first) pack_panel(g.a + m * g.a_row, g.a_row, g.a_column, p, g.k, panel + (m - m0) * g.k);
    m += p;
  }
}

namespace {

// W: how B lies in memory; T: as what the tiles read it.
template <class W, class T>
void product(const MatmulArgs& g, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  const int64_t rows = m1 - m0;
  const bool few = RowTiles(rows).few;
  const int64_t tiles = RowTiles(rows).count;
  const float* packed = own_panel(g, rows) ? g.a + m0 * g.a_row : panel;
  const int64_t b_rows = g.b_rows != 0 ? g.b_rows : g.k;
  const W* b = static_cast<const W*>(g.b);
  const int64_t whole_end = whole_blocks(g.n) * 16;  // columns before this lie in whole blocks
  // An epilogue runs over about 16 K floats at once: long rows, still in the first or second cache.
  const int64_t stretch = most(32, 16384 / rows / 32 * 32);
  const int64_t stop = least(g.n, n1);
  for (int64_t n = n0; n < stop;) {
    const int64_t begin = n, end = g.epilogue != nullptr ? least(stop, n + stretch) : stop;
    while (n < end) {
      int64_t width = 8;
      const TileFn* fn = kTiles<T>.half;
      const int64_t left = least(whole_end, (end + 15) / 16 * 16) - n;  // up to whole blocks
      if (rows == 1 && left >= kSingle * 16 && n + kSingle * 16 <= g.n) {
        width = kSingle * 16, fn = kTiles<T>.single;
      } else if (few && left >= kFew * 16 && n + kFew * 16 <= g.n) {
        width = kFew * 16, fn = kTiles<T>.few;
      } else if (kTiles<T>.main[1] != nullptr && left >= kMain * 16 && n + kMain * 16 <= g.n) {
        width = kMain * 16, fn = kTiles<T>.main;
      } else if (left >= 16) {
        width = 16, fn = kTiles<T>.one;
      }
      const W* from = b + n * b_rows + g.b_first * (width == 8 ? 8 : 16);
      const void* group = from;
      int64_t block = b_rows * 16;
      if constexpr (sizeof(W) != sizeof(T)) {
        const int64_t blocks = (width + 15) / 16, lanes = width == 8 ? 8 : 16;
        for (int64_t i = 0; i < blocks; ++i)
          widen_from<W>(from + i * block, g.unpacked + i * g.k * lanes, g.k * lanes);
        group = g.unpacked, block = g.k * 16;
      }
      columns(g, group, block, packed, fn, tiles, m0, m1, n, width, least(width, g.n - n));
      n += width;
    }
    n = least(n, g.n);
    if (g.epilogue != nullptr)
      g.epilogue(g.user, g.c + m0 * g.c_row + begin, rows, n - begin, m0, begin, g.c_row);
  }
}

template <class W>
void product_of_halves(const MatmulArgs& g, const float* panel, int64_t m0, int64_t m1, int64_t n0,
                       int64_t n1) {
  if (m1 - m0 <= kHalfRows) return product<W, W>(g, panel, m0, m1, n0, n1);
  product<W, float>(g, panel, m0, m1, n0, n1);
}

}  // namespace

void matmul(const MatmulArgs& g, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if (m1 <= m0 || n1 <= n0) return;
  switch (g.b_kind) {
    case WeightKind::kF32:
      return product<float, float>(g, panel, m0, m1, n0, n1);
    case WeightKind::kF16:
      return product_of_halves<F16>(g, panel, m0, m1, n0, n1);
    case WeightKind::kBF16:
      return product_of_halves<BF16>(g, panel, m0, m1, n0, n1);
  }
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
