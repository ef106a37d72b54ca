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

// Products that are not worth packing B for: few rows, or one column. Elements of A lie a_row and a_column
// apart, those of B [k, n] b_row and b_column.
struct Unpacked {
  const float *a, *b;
  float* c;
  int64_t m, n, k, a_row, a_column, b_row, b_column;
  int64_t batches = 1;
  bool fits() const;
};
// matrices(batch, &a, &b) says which ones a product takes; NULL = the first of both, for one product.
using MatricesFn = void (*)(const void* user, int64_t batch, int64_t* a, int64_t* b);
void run_unpacked(RunContext& context, const Unpacked& g, MatricesFn matrices = nullptr,
                  const void* user = nullptr);

// `batches` products of f64; matrices(batch, &a, &b) says which ones. scratch: double_scratch(k, threads)
// bytes.
struct DoubleProducts {
  const double *a, *b;
  double* c;
  int64_t batches, m, n, k, a_row, a_column, b_row, b_column;
};
int64_t double_scratch(int64_t k, int32_t threads);
void run_doubles(RunContext& context, const DoubleProducts& g, void* scratch, MatricesFn matrices,
                 const void* user);

}  // namespace opforge::kernels
