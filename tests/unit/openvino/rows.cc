// rows.cc: an output whose dtype the signature fixes: for each element whether it is not 0, counted from 10.
#include "opforge/kernel.h"

template <class T>
opforge::Status rows(opforge::Context&, opforge::View<const T, 1> x, opforge::View<int64_t, 1> y) {
  for (int64_t k = 0; k < x.shape(0); ++k) y(k) = 10 + (x(k) != T(0) ? 1 : 0);
  return opforge::kOk;
}
