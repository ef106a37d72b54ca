// cpu.cc: the CPU kernels of ChannelGather and of ChannelScatter, its gradient.
#include <algorithm>

#include "opforge/kernel.h"

namespace {

using opforge::Context;
using opforge::Status;
using opforge::View;

template <class I>
Status check(Context& context, View<const I, 1> kept, int64_t channels) {
  for (int64_t k = 0; k < kept.size(); ++k)
    if (kept[k] < 0 || kept[k] >= channels)
      return context.fail("kept[%lld] is %lld, expected 0 to %lld", static_cast<long long>(k),
                          static_cast<long long>(kept[k]), static_cast<long long>(channels - 1));
  return opforge::kOk;
}

}  // namespace

template <class T, class I>
Status channel_gather(Context& context, View<const T, 4> x, View<const I, 1> kept, View<T, 4> y) {
  const int64_t channels = x.shape(1), left = kept.size(), plane = x.shape(2) * x.shape(3);
  if (const Status status = check(context, kept, channels); status != opforge::kOk) return status;
  context.parallel_for(y.shape(0) * left, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* from = x.data() + (i / left * channels + static_cast<int64_t>(kept[i % left])) * plane;
      std::copy(from, from + plane, y.data() + i * plane);
    }
  });
  return opforge::kOk;
}

// An image is one task: channels that are named twice are added in the order of `kept`.
template <class T, class I>
Status channel_scatter(Context& context, View<const T, 4> y, View<const I, 1> kept, View<const T, 4> like,
                       View<T, 4> x) {
  const int64_t channels = like.shape(1), left = kept.size(), plane = like.shape(2) * like.shape(3);
  using R = opforge::compute_t<T>;  // float for f16 and bf16, else T itself
  if (const Status status = check(context, kept, channels); status != opforge::kOk) return status;
  context.parallel_for(x.shape(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* image = x.data() + n * channels * plane;
      std::fill(image, image + channels * plane, static_cast<T>(R(0)));
      for (int64_t k = 0; k < left; ++k) {
        const T* from = y.data() + (n * left + k) * plane;
        T* to = image + static_cast<int64_t>(kept[k]) * plane;
        for (int64_t i = 0; i < plane; ++i)
          to[i] = static_cast<T>(static_cast<R>(to[i]) + static_cast<R>(from[i]));
      }
    }
  });
  return opforge::kOk;
}
