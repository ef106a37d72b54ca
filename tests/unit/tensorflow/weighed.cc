#include "opforge/kernel.h"
using namespace opforge;

template <class T>
Status weighed(Context&, View<const T, 1> x, int64_t i, double f, std::string_view s, bool b,
               List<int64_t> li, List<double> lf, List<opforge_string> ls, List<int64_t> lb, View<T, 1> y) {
  double weight = static_cast<double>(i) + f + static_cast<double>(s.size()) + (b ? 1000.0 : 0.0);
  for (int64_t v : li) weight += static_cast<double>(v);
  for (double v : lf) weight += v;
  for (const opforge_string& v : ls) weight += static_cast<double>(v.size);
  for (int64_t v : lb) weight += v != 0 ? 2000.0 : 5000.0;
  for (int64_t k = 0; k < x.shape(0); ++k) y(k) = T(x(k) * weight);
  return kOk;
}
