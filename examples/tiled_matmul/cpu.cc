// cpu.cc: the CPU kernel of TiledMatMul, plain: rows in parallel, the columns of a row in the inner loop.
#include <vector>

#include "opforge/kernel.h"

template <class T>
opforge::Status tiled_matmul(opforge::Context& context, opforge::View<const T, 2> left,
                             opforge::View<const T, 2> right, opforge::View<T, 2> out) {
  using R = opforge::compute_t<T>;  // float for f16 and bf16, else T itself
  const int64_t m = out.shape(0), n = out.shape(1), k = left.shape(1);
  context.parallel_for(m, 65536 / (n * k + 1) + 1, [&](int64_t begin, int64_t end) {
    std::vector<R> sums(static_cast<size_t>(n));
    for (int64_t r = begin; r < end; ++r) {
      for (R& sum : sums) sum = R(0);
      for (int64_t i = 0; i < k; ++i) {
        const R factor = static_cast<R>(left(r, i));
        for (int64_t c = 0; c < n; ++c) sums[static_cast<size_t>(c)] += factor * static_cast<R>(right(i, c));
      }
      for (int64_t c = 0; c < n; ++c) out(r, c) = static_cast<T>(sums[static_cast<size_t>(c)]);
    }
  });
  return opforge::kOk;
}
