// cpu.cc: the CPU kernel of FakeQuantise.
#include <cmath>

#include "opforge/kernel.h"

template <class T>
opforge::Status fake_quantise(opforge::Context& context, opforge::View<const T> x, double scale, double low,
                              double high, opforge::View<T> y) {
  using R = opforge::compute_t<T>;  // float for f16 and bf16, else T itself
  if (!(scale > 0)) return context.fail("scale is %g, expected scale > 0", scale);
  const R step = static_cast<R>(scale), smallest = static_cast<R>(low), largest = static_cast<R>(high);
  context.parallel_for(x.size(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      R value = std::nearbyint(static_cast<R>(x[i]) / step);  // halves to even, as NumPy and ONNX round
      if (value < smallest) value = smallest;                 // NaN is neither and stays
      if (value > largest) value = largest;
      y[i] = static_cast<T>(value * step);
    }
  });
  return opforge::kOk;
}
