// product.cpp: a matrix product cut into units for the threads.
#include "kernels/product.h"

namespace opforge::kernels {

// A unit's rows of A take about 192 KB packed, half of a second cache. Few row units (up to 8) are cut along
// the columns as well, so that A is packed once and every thread has work: at least 64 K weights per unit.
ProductPlan::ProductPlan(int64_t m, int64_t n, int64_t k) {
  const int64_t depth = greater<int64_t>(k, 1);
  const int64_t rows = lesser<int64_t>(512, greater<int64_t>(56, 49152 / depth));
  row_units = greater<int64_t>(1, ceil_div(m, rows));
  const int64_t unit_rows = ceil_div(greater<int64_t>(m, 1), row_units);
  pack_first = row_units <= 8;
  unit_columns = n;
  if (pack_first) {
    const int64_t least = greater(65536 / depth, (int64_t{1} << 20) / (unit_rows * depth));
    unit_columns = greater<int64_t>(128, ceil_div(least, 128) * 128);
  }
  column_units = greater<int64_t>(1, ceil_div(n, greater<int64_t>(unit_columns, 1)));
  panel = scratch_floats(isa_table().matmul_panel_floats(unit_rows, k));
}

void run_product(RunContext& context, const MatmulArgs& g, const ProductPlan& plan, float* scratch) {
  if (g.m == 0 || g.n == 0) return;
  const IsaTable& isa = isa_table();
  const auto row = [&](int64_t unit) { return cut(g.m, plan.row_units, unit); };
  if (!plan.pack_first) {
    for_units(context, plan.row_units, [&](int64_t slot, int64_t unit) {
      float* panel = scratch + slot * plan.panel;
      isa.pack_a(g, panel, row(unit), row(unit + 1));
      isa.matmul(g, panel, row(unit), row(unit + 1), 0, g.n);
    });
    return;
  }
  const auto pack = [&](int64_t unit) {
    isa.pack_a(g, scratch + unit * plan.panel, row(unit), row(unit + 1));
  };
  if (plan.row_units == 1)
    pack(0);
  else
    for_units(context, plan.row_units, [&](int64_t, int64_t unit) { pack(unit); });
  for_units(context, plan.row_units * plan.column_units, [&](int64_t, int64_t unit) {
    const int64_t r = unit % plan.row_units, n0 = unit / plan.row_units * plan.unit_columns;
    isa.matmul(g, scratch + r * plan.panel, row(r), row(r + 1), n0, lesser(g.n, n0 + plan.unit_columns));
  });
}

}  // namespace opforge::kernels
