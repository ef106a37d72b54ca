// cpu.cc: the CPU kernels of PixelConv16, which computes in NHWC with channels filled up to 16, and of its
// gradients.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "opforge/kernel.h"

namespace {

using opforge::Context;
using opforge::Status;
using opforge::View;

constexpr int64_t kLanes = 16;

Status check(Context& context, std::string_view layout) {
  if (layout == "nhwc16") return opforge::kOk;
  return context.fail("layout is %.*s, expected nhwc16", static_cast<int>(layout.size()), layout.data());
}

}  // namespace

// Both sides are brought into the layout in scratch; sums are formed in 16 lanes, then over these in their
// order.
template <class T>
Status pixel_conv16(Context& context, View<const T, 4> x, View<const T, 2> weight, std::string_view layout,
                    View<T, 4> y) {
  using R = opforge::compute_t<T>;  // float for f16 and bf16, else T itself
  if (const Status status = check(context, layout); status != opforge::kOk) return status;
  const int64_t channels = x.shape(1), plane = x.shape(2) * x.shape(3), units = weight.shape(0);
  const int64_t filled = (channels + kLanes - 1) / kLanes * kLanes, pixels = x.shape(0) * plane;
  if (y.size() == 0) return opforge::kOk;
  R* image = context.scratch<R>(pixels * filled + 1);
  R* rows = context.scratch<R>(units * filled + 1);
  std::fill(rows, rows + units * filled, R(0));
  for (int64_t m = 0; m < units; ++m)
    for (int64_t c = 0; c < channels; ++c) rows[m * filled + c] = static_cast<R>(weight(m, c));
  context.parallel_for(pixels, 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const T* from = x.data() + p / plane * channels * plane + p % plane;
      R* to = image + p * filled;
      for (int64_t c = 0; c < channels; ++c) to[c] = static_cast<R>(from[c * plane]);
      std::fill(to + channels, to + filled, R(0));
      for (int64_t m = 0; m < units; ++m) {
        R lanes[kLanes] = {};
        for (int64_t c = 0; c < filled; c += kLanes)
          for (int64_t k = 0; k < kLanes; ++k) lanes[k] += to[c + k] * rows[m * filled + c + k];
        R sum = 0;
        for (int64_t k = 0; k < kLanes; ++k) sum += lanes[k];
        y.data()[(p / plane * units + m) * plane + p % plane] = static_cast<T>(sum);
      }
    }
  });
  return opforge::kOk;
}

template <class T>
Status pixel_conv16_grad_x(Context& context, View<const T, 4> y, View<const T, 2> weight,
                           std::string_view layout, View<T, 4> x) {
  using R = opforge::compute_t<T>;
  if (const Status status = check(context, layout); status != opforge::kOk) return status;
  const int64_t units = y.shape(1), channels = x.shape(1), plane = y.shape(2) * y.shape(3);
  context.parallel_for(x.size(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / plane / channels, c = i / plane % channels;
      const T* from = y.data() + n * units * plane + i % plane;
      R sum = 0;
      for (int64_t m = 0; m < units; ++m)
        sum += static_cast<R>(from[m * plane]) * static_cast<R>(weight(m, c));
      x.data()[i] = static_cast<T>(sum);
    }
  });
  return opforge::kOk;
}

template <class T>
Status pixel_conv16_grad_weight(Context& context, View<const T, 4> x, View<const T, 4> y,
                                std::string_view layout, View<T, 2> weight) {
  if (const Status status = check(context, layout); status != opforge::kOk) return status;
  const int64_t channels = x.shape(1), units = y.shape(1), plane = x.shape(2) * x.shape(3),
                images = x.shape(0);
  context.parallel_for(weight.size(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;  // over all pixels of all images: more numbers than float adds well
      for (int64_t n = 0; n < images; ++n) {
        const T* left = y.data() + (n * units + i / channels) * plane;
        const T* right = x.data() + (n * channels + i % channels) * plane;
        for (int64_t p = 0; p < plane; ++p)
          sum += static_cast<double>(left[p]) * static_cast<double>(right[p]);
      }
      weight.data()[i] = static_cast<T>(sum);
    }
  });
  return opforge::kOk;
}
