// product.h: a matrix product cut into units for the threads.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

// How C[m, n] is cut. Cuts depend on the sizes only.
struct ProductPlan {
  int64_t row_units, column_units, unit_columns, panel;  // panel: floats of one row unit's packed A
  bool pack_first;                                       // A is packed once for all column units
  bool own_panels;                                       // by every thread for itself
  int64_t unpacked = 0;  // floats per thread for weights of another kind than f32
  ProductPlan(int64_t m, int64_t n, int64_t k, WeightKind weights = WeightKind::kF32);
  int64_t scratch(int32_t threads) const { return panels(threads) + unpacked * greater(1, threads); }
  int64_t panels(int32_t threads) const {
    return panel * (pack_first && !own_panels ? row_units : greater(1, threads));
  }
};

// C = A * B for packed B. scratch: plan.scratch(threads) floats.
void run_product(RunContext& context, const MatmulArgs& g, const ProductPlan& plan, float* scratch);

}  // namespace opforge::kernels
