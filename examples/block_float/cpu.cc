// cpu.cc: the CPU kernel of BlockFloat.
#include <algorithm>
#include <cmath>
#include <limits>

#include "opforge/kernel.h"

namespace {

// The step between two numbers of a block: 2^(exponent - (bits - 1)), but no finer than R can tell apart.
template <class R>
R step_of(R largest, int64_t bits) {
  constexpr int kFinest = std::numeric_limits<R>::min_exponent - std::numeric_limits<R>::digits;
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::ldexp(R(1), std::max(exponent - static_cast<int>(bits - 1), kFinest));
}

}  // namespace

template <class T>
opforge::Status block_float(opforge::Context& context, opforge::View<const T> x, int64_t block, int64_t bits,
                            opforge::View<T> y) {
  using R = opforge::compute_t<T>;  // float for f16 and bf16, else T itself
  if (block < 1) return context.fail("block is %lld, expected at least 1", static_cast<long long>(block));
  if (bits < 2 || bits > 24)
    return context.fail("bits is %lld, expected 2 to 24", static_cast<long long>(bits));
  if (x.size() == 0) return opforge::kOk;
  const int64_t columns = x.ndim() == 0 ? 1 : x.shape(-1);
  block = std::min(block, columns);  // it may be any number: what is added to it must stay in range
  const int64_t blocks = (columns + block - 1) / block;
  const R most = static_cast<R>((int64_t{1} << (bits - 1)) - 1);
  context.parallel_for(x.size() / columns * blocks, 256, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k / blocks * columns + k % blocks * block;
      const int64_t last = std::min(first + block, (k / blocks + 1) * columns);
      R largest = 0;
      for (int64_t i = first; i < last; ++i) {
        const R magnitude = std::fabs(static_cast<R>(x[i]));
        if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
      }
      const R step = step_of(largest, bits);
      for (int64_t i = first; i < last; ++i) {
        const R value = static_cast<R>(x[i]);
        const R rounded = std::nearbyint(value / step);  // halves to even
        y[i] = static_cast<T>(std::isfinite(value) ? std::clamp(rounded, -most, most) * step : value);
      }
    }
  });
  return opforge::kOk;
}
