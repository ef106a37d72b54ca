// authored.cu: a launcher with every kind of parameter: strided, of any rank, optional, variadic, attributes.
#include "opforge/cuda/kernel.cuh"
#include "steps.cuh"

using opforge::cuda::View;

template <class T>
__global__ void add_weighted(View<const T> x, View<const T, 1> bias, View<const T, 2> more, double factor, View<T> y) {
  const int64_t n = y.size(), columns = y.ndim() == 0 ? 1 : y.shape(-1);
  for (int64_t i = first_of(); i < n; i += step_of()) {
    int64_t rest = i, offset = 0;
    for (int axis = x.ndim() - 1; axis >= 0; --axis) {
      offset += rest % x.shape(axis) * x.stride(axis);
      rest /= x.shape(axis);
    }
    double sum = factor * static_cast<double>(opforge::cuda::widen(x.data()[offset]));
    if (bias.present()) sum += static_cast<double>(opforge::cuda::widen(bias(i % columns)));
    if (more.present()) sum += static_cast<double>(opforge::cuda::widen(more(0, 1)));
    y[i] = opforge::cuda::narrow<T>(static_cast<opforge::cuda::compute_t<T>>(sum));
  }
}

template <class T>
opforge::Status weighted(opforge::cuda::Context& context, View<const T> x, View<const T, 1> bias,
                         opforge::cuda::Views<const T, 2> more, double factor, opforge::List<int64_t> threads,
                         std::string_view mode, View<T> y) {
  if (mode == "fail") return context.fail("mode is %.*s", static_cast<int>(mode.size()), mode.data());
  if (mode == "memory") context.scratch<T>(int64_t{1} << 55);
  if (mode == "dense" && !x.is_dense()) return context.fail("x is not dense");
  auto launch = context.launch(y.size());
  if (!launch) return launch.status();
  const View<const T, 2> last = more.size() > 0 ? more[more.size() - 1] : View<const T, 2>();
  add_weighted<T><<<2, static_cast<unsigned>(threads[0]), 0, launch.stream()>>>(x, bias, last, factor, y);
  return launch.finish();
}
