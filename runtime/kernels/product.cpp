// product.cpp: a matrix product cut into units for the threads.
#include "kernels/product.h"

namespace opforge::kernels {

namespace {

constexpr int64_t kPackOwn = 32768;  // floats of A that every thread packs for itself

// Columns of a unit: a multiple of 64, or of 32 where that makes an odd number of few units even, and enough
// for 64 K weights or a million multiplications, about 10 us.
int64_t columns_of_unit(int64_t n, int64_t row_units, int64_t unit_rows, int64_t depth) {
  const int64_t least = lesser(int64_t{65536} / depth, (int64_t{1} << 20) / (unit_rows * depth));
  const int64_t multiple = unit_rows == 1 ? 128 : 64;
  const int64_t columns = greater<int64_t>(1, ceil_div(least, multiple)) * multiple;
  const int64_t units = row_units * ceil_div(n, columns);
  if (units == 1 || units > 8 || units % 2 == 0) return columns;
  return greater<int64_t>(1, ceil_div(ceil_div(n * row_units, units + 1), 32)) * 32;
}

}  // namespace

// A unit's rows of A take about 192 KB packed, half of a second cache. Few row units (up to 8) are cut along
// the columns as well, so that A is packed once and threads end together; a small A is packed by every
// thread, which takes less than to fetch it from where another one packed it.
ProductPlan::ProductPlan(int64_t m, int64_t n, int64_t k, WeightKind weights) {
  const int64_t depth = greater<int64_t>(k, 1);
  const int64_t rows = lesser<int64_t>(512, greater<int64_t>(56, 49152 / depth));
  row_units = greater<int64_t>(1, ceil_div(m, rows));
  const int64_t unit_rows = ceil_div(greater<int64_t>(m, 1), row_units);
  pack_first = row_units <= 8;
  own_panels = row_units == 1 && m * k <= kPackOwn;
  unit_columns = pack_first ? columns_of_unit(greater<int64_t>(n, 1), row_units, unit_rows, depth) : n;
  column_units = greater<int64_t>(1, ceil_div(n, greater<int64_t>(unit_columns, 1)));
  panel = scratch_floats(isa_table().matmul_panel_floats(unit_rows, k));
  if (weights != WeightKind::kF32) unpacked = scratch_floats(isa_table().matmul_unpacked_floats(k));
}

void run_product(RunContext& context, const MatmulArgs& g, const ProductPlan& plan, float* scratch) {
  if (g.m == 0 || g.n == 0) return;
  const IsaTable& isa = isa_table();
  const auto row = [&](int64_t unit) { return cut(g.m, plan.row_units, unit); };
  float* unpacked = scratch + plan.panels(context.threads);
  const auto multiply = [&](int64_t slot, const float* panel, int64_t unit, int64_t n0, int64_t n1) {
    if (plan.unpacked == 0) return isa.matmul(g, panel, row(unit), row(unit + 1), n0, n1);
    MatmulArgs own = g;
    own.unpacked = unpacked + slot * plan.unpacked;
    isa.matmul(own, panel, row(unit), row(unit + 1), n0, n1);
  };
  if (!plan.pack_first) {
    for_units(context, plan.row_units, [&](int64_t slot, int64_t unit) {
      float* panel = scratch + slot * plan.panel;
      isa.pack_a(g, panel, row(unit), row(unit + 1));
      multiply(slot, panel, unit, 0, g.n);
    });
    return;
  }
  if (plan.own_panels) {
    constexpr int64_t kSlots = 256;
    bool packed[kSlots] = {};
    for_units(context, plan.column_units, [&](int64_t slot, int64_t unit) {
      float* panel = scratch + slot * plan.panel;
      if (slot >= kSlots || !packed[slot]) isa.pack_a(g, panel, 0, g.m);
      if (slot < kSlots) packed[slot] = true;
      const int64_t n0 = unit * plan.unit_columns;
      multiply(slot, panel, 0, n0, lesser(g.n, n0 + plan.unit_columns));
    });
    return;
  }
  const int64_t parts = ceil_div(4, plan.row_units);
  for_units(context, plan.row_units * parts, [&](int64_t, int64_t i) {
    const int64_t unit = i / parts;
    isa.pack_a_part(g, scratch + unit * plan.panel, row(unit), row(unit + 1), i % parts, parts);
  });
  for_units(context, plan.row_units * plan.column_units, [&](int64_t slot, int64_t unit) {
    const int64_t r = unit / plan.column_units, n0 = unit % plan.column_units * plan.unit_columns;
    multiply(slot, scratch + r * plan.panel, r, n0, lesser(g.n, n0 + plan.unit_columns));
  });
}

bool Unpacked::fits() const {
  if (k < 16 || m == 0 || n == 0) return false;
  const bool rows = b_column == 1 && m <= 2 && n >= 16;
  const bool dots =
      (n == 1 && a_column == 1 && (b_row == 1 || k == 1)) || (m == 1 && a_column == 1 && b_row == 1);
  return rows || dots;
}

void run_unpacked(RunContext& context, const Unpacked& all, MatricesFn matrices, const void* user) {
  const IsaTable& isa = isa_table();
  const auto product = [&](int64_t batch) {
    int64_t a = 0, b = 0;
    if (matrices != nullptr) matrices(user, batch, &a, &b);
    Unpacked one = all;
    one.a += a * one.m * one.k, one.b += b * one.k * one.n, one.c += batch * one.m * one.n;
    return one;
  };
  if (all.b_column == 1 && all.m <= 2 && all.n >= 16) {
    const int64_t step = ceil_div(greater<int64_t>(128, 131072 / all.k), 128) * 128;
    const int64_t units = ceil_div(all.n, step);
    for_units(context, all.batches * units, [&](int64_t, int64_t i) {
      const Unpacked g = product(i / units);
      const int64_t n0 = i % units * step;
      for (int64_t m = 0; m < g.m; ++m) {
        const ThinArgs row{g.a + m * g.a_row, g.a_column, g.b, g.b_row, g.c + m * g.n, g.k};
        isa.thin_product(row, n0, lesser(g.n, n0 + step));
      }
    });
    return;
  }
  // A row times each row of the other operand.
  const bool column = all.n == 1;
  const int64_t count = column ? all.m : all.n, apart = column ? all.a_row : all.b_column;
  const int64_t step = greater<int64_t>(4, 65536 / all.k / 4 * 4), units = ceil_div(count, step);
  for_units(context, all.batches * units, [&](int64_t, int64_t i) {
    const Unpacked g = product(i / units);
    const float *rows = column ? g.a : g.b, *x = column ? g.b : g.a;
    const int64_t r0 = i % units * step;
    isa.dot_rows(rows + r0 * apart, apart, x, g.k, g.c + r0, lesser(step, count - r0));
  });
}

int64_t double_scratch(int64_t k, int32_t threads) {
  return 8 * scratch_floats(k * isa_table().double_columns()) * greater(1, threads);
}

void run_doubles(RunContext& context, const DoubleProducts& g, void* scratch, MatricesFn matrices,
                 const void* user) {
  const IsaTable& isa = isa_table();
  const int64_t columns = isa.double_columns(), strips = ceil_div(g.n, columns);
  const int64_t rows = 128, units = ceil_div(g.m, rows);
  for_units(context, g.batches * units * strips, [&](int64_t slot, int64_t unit) {
    int64_t a = 0, b = 0;
    matrices(user, unit / strips / units, &a, &b);
    const int64_t n0 = unit % strips * columns, m0 = unit / strips % units * rows;
    DoubleArgs tile{g.a + a * g.m * g.k,
                    g.a_row,
                    g.a_column,
                    g.b + b * g.k * g.n + n0 * g.b_column,
                    g.b_row,
                    nullptr,
                    g.n,
                    lesser(columns, g.n - n0),
                    g.k};
    tile.c = g.c + unit / strips / units * g.m * g.n + n0;
    if (g.b_column != 1 || tile.n < columns) {  // a strip of its own
      double* strip = static_cast<double*>(scratch) + slot * scratch_floats(g.k * columns);
      for (int64_t k = 0; k < g.k; ++k)
        for (int64_t i = 0; i < tile.n; ++i) strip[k * columns + i] = tile.b[k * g.b_row + i * g.b_column];
      tile.b = strip, tile.b_row = columns;
    }
    isa.double_product(tile, m0, lesser(g.m, m0 + rows));
  });
}

}  // namespace opforge::kernels
