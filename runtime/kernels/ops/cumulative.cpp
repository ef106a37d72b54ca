// cumulative.cpp: CumSum and CumProd.
#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

Status infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Shape& x = c.inputs[0].shape;
  if (!has_sum_type(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (c.inputs[1].data == nullptr) return c.need_data(1);
  int64_t axis = 0, count = 0;
  if (!read_values(c.inputs[1], &axis, 1, &count) || count != 1 || axis_of(axis, x.rank) < 0)
    return bad_axis(c, axis, x.rank);
  c.outputs[0].shape = x;
  return OPFORGE_STATUS_OK;
}

template <bool PRODUCT, class T>
T joined(T a, T b) {
  // 16-bit integers are promoted to int, where their product could overflow.
  using Wide = std::conditional_t<sizeof(T) == 2, uint32_t, T>;
  return static_cast<T>(PRODUCT ? static_cast<Wide>(a) * b : static_cast<Wide>(a) + b);
}

template <bool PRODUCT>
Status run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  if (shape.elements() == 0) return OPFORGE_STATUS_OK;
  const AxisSplit split(shape, axis_of(index_at(c.inputs[1], 0), shape.rank));
  const bool exclusive = c.attributes->get_int("exclusive", 0) != 0,
             reverse = c.attributes->get_int("reverse", 0) != 0;
  // Columns of a unit go through the rows together, so that memory is read in its order.
  constexpr int64_t kColumns = 64;
  const int64_t columns = lesser(split.inner, kColumns), units = ceil_div(split.inner, columns);
  with_sum_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* y = c.outputs[0].as<T>();
    c.parallel(split.outer * units, grain_of(split.size * columns), [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const int64_t from = e % units * columns, n = lesser(columns, split.inner - from);
        const int64_t first = e / units * split.size * split.inner + from;
        T sums[kColumns];
        for (int64_t j = 0; j < n; ++j) sums[j] = PRODUCT ? 1 : 0;
        for (int64_t i = 0; i < split.size; ++i) {
          const int64_t at = first + (reverse ? split.size - 1 - i : i) * split.inner;
          if (exclusive)
            for (int64_t j = 0; j < n; ++j) y[at + j] = sums[j];
          for (int64_t j = 0; j < n; ++j) sums[j] = joined<PRODUCT>(sums[j], x[at + j]);
          if (!exclusive)
            for (int64_t j = 0; j < n; ++j) y[at + j] = sums[j];
        }
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "CumSum", 11, kNewest, nullptr, infer, run<false>, 0, 2},
    {"", "CumProd", 26, kNewest, nullptr, infer, run<true>, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(cumulative, opforge::kRows);
