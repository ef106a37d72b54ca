// both.cc: two outputs.
#include "opforge/kernel.h"

template <class T>
opforge::Status both(opforge::Context&, opforge::View<const T, 1> x, opforge::View<T, 1> sum,
                     opforge::View<T, 1> product) {
  for (int64_t k = 0; k < x.shape(0); ++k) {
    sum(k) = x(k) + x(k);
    product(k) = x(k) * x(k);
  }
  return opforge::kOk;
}
