// thin.cpp: products whose second operand is used too rarely to be packed: few rows, one column, and doubles.
#include "kernels/isa/functions.h"
#include "kernels/isa/lanes.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

constexpr int kTogether = 8;  // vectors of columns, each a chain of additions

template <int COUNT>
OPFORGE_INLINE void columns(const ThinArgs& g, int64_t n) {
  Vec<kWidth> sums[COUNT];
  for (int i = 0; i < COUNT; ++i) sums[i] = Vec<kWidth>{};
  const float *a = g.a, *b = g.b + n;
  for (int64_t k = 0; k < g.k; ++k, a += g.a_step, b += g.b_row) {
    const Vec<kWidth> factor = splat<kWidth>(*a);
    OPFORGE_UNROLL
    for (int i = 0; i < COUNT; ++i) sums[i] = vfma<kWidth>(factor, load<kWidth>(b + i * kWidth), sums[i]);
  }
  for (int i = 0; i < COUNT; ++i) store<kWidth>(g.c + n + i * kWidth, sums[i]);
}

typedef double Doubles __attribute__((vector_size(kWidth * 4)));
typedef double DoublesInMemory __attribute__((vector_size(kWidth * 4), aligned(8), may_alias));
constexpr int kDoubles = kWidth / 2;

// ROWS x 2 vectors of results, of which `n` columns exist.
template <int ROWS>
void double_tile(const DoubleArgs& g, const double* a, const double* b, double* c, int64_t n) {
  Doubles sums[ROWS][2];
  for (auto& row : sums) row[0] = row[1] = Doubles{};
  const bool whole = n == 2 * kDoubles;
  for (int64_t k = 0; k < g.k; ++k, a += g.a_column, b += g.b_row) {
    Doubles x, y;
    if (whole) {
      x = *reinterpret_cast<const DoublesInMemory*>(b);
      y = *reinterpret_cast<const DoublesInMemory*>(b + kDoubles);
    } else {
      double t[2 * kDoubles] = {};
      for (int64_t i = 0; i < n; ++i) t[i] = b[i];
      std::memcpy(&x, t, sizeof x);
      std::memcpy(&y, t + kDoubles, sizeof y);
    }
    OPFORGE_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const Doubles factor = a[r * g.a_row] - Doubles{};
      sums[r][0] = vm::raw::mad<Doubles>(factor, x, sums[r][0]);
      sums[r][1] = vm::raw::mad<Doubles>(factor, y, sums[r][1]);
    }
  }
  for (int r = 0; r < ROWS; ++r) std::memcpy(c + r * g.c_row, sums[r], static_cast<size_t>(n) * 8);
}

}  // namespace

void thin_product(const ThinArgs& g, int64_t n0, int64_t n1) {
  int64_t n = n0;
  for (; n + kTogether * kWidth <= n1; n += kTogether * kWidth) columns<kTogether>(g, n);
  for (; n + kWidth <= n1; n += kWidth) columns<1>(g, n);
  for (; n < n1; ++n) {
    float sum = 0;
    for (int64_t k = 0; k < g.k; ++k) sum = sfma(g.a[k * g.a_step], g.b[k * g.b_row + n], sum);
    g.c[n] = sum;
  }
}

void dot_rows(const float* a, int64_t a_row, const float* x, int64_t k, float* y, int64_t rows) {
  constexpr int kRows = 4;  // chains side by side
  const auto add = [](float p, float q) { return p + q; };
  for (int64_t r = 0; r < rows; r += kRows) {
    const int count = static_cast<int>(least(kRows, rows - r));
    Lanes sums[kRows];
    const float* row[kRows];
    for (int i = 0; i < kRows; ++i) {
      sums[i] = lanes_of(0);
      row[i] = a + (r + (i < count ? i : 0)) * a_row;
    }
    int64_t i = 0;
    for (; i < k; i += 16) {
      const bool whole = i + 16 <= k;
      const Lanes right = whole ? load16(x + i) : load_some(x + i, k - i, 0.0f);
      OPFORGE_UNROLL
      for (int j = 0; j < kRows; ++j) {
        const Lanes left = whole ? load16(row[j] + i) : load_some(row[j] + i, k - i, 0.0f);
        OPFORGE_UNROLL
        for (int p = 0; p < kParts; ++p) sums[j].v[p] = vfma<kWidth>(left.v[p], right.v[p], sums[j].v[p]);
      }
    }
    for (int j = 0; j < count; ++j) y[r + j] = tree(sums[j], add);
  }
}

int64_t double_columns() { return 2 * kDoubles; }

void double_product(const DoubleArgs& g, int64_t m0, int64_t m1) {
  const double* a = g.a + m0 * g.a_row;
  double* c = g.c + m0 * g.c_row;
  int64_t m = m0;
  for (; m + 4 <= m1; m += 4, a += 4 * g.a_row, c += 4 * g.c_row) double_tile<4>(g, a, g.b, c, g.n);
  for (; m < m1; ++m, a += g.a_row, c += g.c_row) double_tile<1>(g, a, g.b, c, g.n);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
