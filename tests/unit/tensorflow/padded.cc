// padded.cc: copies, then zeros.
#include "opforge/kernel.h"

template <class T>
opforge::Status padded(opforge::Context&, opforge::View<const T, 1> x, int64_t, opforge::View<T, 1> y) {
  for (int64_t k = 0; k < y.shape(0); ++k) y(k) = k < x.shape(0) ? x(k) : T(0);
  return opforge::kOk;
}
