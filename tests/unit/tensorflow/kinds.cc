#include "opforge/kernel.h"
using namespace opforge;

template <class T, class I>
Status kinds(Context& context, View<const T, 2> x, View<const I, 1> index, View<const T, 1> bias,
             Views<const T, 1> more, int64_t i, double f, std::string_view s, bool b, List<int64_t> li,
             List<double> lf, List<opforge_string> ls, List<int64_t> lb, View<T, 1> picked, View<T, 1> scaled,
             View<double, 1> facts, View<I, 1> counts) {
  if (bias.present() && bias.shape(0) != x.shape(0)) return context.fail("bias does not fit the rows of x");
  for (int64_t row = 0; row < x.shape(0); ++row) {
    if (index(row) < 0 || index(row) >= x.shape(1)) {
      return context.fail("index[%lld] is %lld", static_cast<long long>(row),
                          static_cast<long long>(index(row)));
    }
    compute_t<T> sum = x(row, index(row));
    if (bias.present()) sum += compute_t<T>(10) * compute_t<T>(bias(row));
    for (int k = 0; k < more.size(); ++k) sum += compute_t<T>(more[k](row));
    picked(row) = T(sum);
    if (scaled.present()) scaled(row) = T(compute_t<T>(10) * compute_t<T>(bias(row)));
    counts(row) = I((bias.present() ? 10 : 0) + more.size());
  }
  double sums[8] = {static_cast<double>(i), f, static_cast<double>(s.size()), b ? 1.0 : 0.0};
  for (int64_t v : li) sums[4] = sums[4] * 10 + static_cast<double>(v);
  for (double v : lf) sums[5] += v;
  for (const opforge_string& v : ls) sums[6] = sums[6] * 10 + static_cast<double>(v.size);
  for (int64_t v : lb) sums[7] = sums[7] * 2 + static_cast<double>(v);
  for (int k = 0; k < 8; ++k) facts(k) = sums[k];
  return kOk;
}
