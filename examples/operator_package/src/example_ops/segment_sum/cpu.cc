// cpu.cc: the CPU kernels of SegmentSum and SegmentSpread.
#include "opforge/kernel.h"

using opforge::compute_t;  // float for f16 and bf16, else T itself
using opforge::Context;
using opforge::Status;
using opforge::View;

namespace {

// The caller has checked shapes; values are for the kernel to check.
template <class I>
Status check_offsets(Context& context, View<const I, 1> offsets, int64_t rows) {
  const int64_t segments = offsets.shape(0) - 1;
  if (offsets(0) != 0)
    return context.fail("offsets[0] is %lld, expected 0", static_cast<long long>(offsets(0)));
  for (int64_t i = 0; i < segments; ++i) {
    if (offsets(i + 1) < offsets(i)) {
      return context.fail("offsets[%lld] is %lld, less than the one before, %lld",
                          static_cast<long long>(i + 1), static_cast<long long>(offsets(i + 1)),
                          static_cast<long long>(offsets(i)));
    }
  }
  if (offsets(segments) != rows) {
    return context.fail("offsets[%lld] is %lld, expected the number of rows, %lld",
                        static_cast<long long>(segments), static_cast<long long>(offsets(segments)),
                        static_cast<long long>(rows));
  }
  return opforge::kOk;
}

}  // namespace

template <class T, class I>
Status segment_sum(Context& context, View<const T, 2> values, View<const I, 1> offsets, View<T, 2> out) {
  if (const Status status = check_offsets(context, offsets, values.shape(0))) return status;
  const int64_t columns = values.shape(1);
  context.parallel_for(out.shape(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        compute_t<T> sum = 0;
        for (int64_t row = offsets(i); row < offsets(i + 1); ++row)
          sum += static_cast<compute_t<T>>(values(row, j));
        out(i, j) = static_cast<T>(sum);
      }
    }
  });
  return opforge::kOk;
}

template <class T, class I>
Status segment_spread(Context& context, View<const T, 2> sums, View<const I, 1> offsets,
                      View<const T, 2> like, View<T, 2> out) {
  if (const Status status = check_offsets(context, offsets, like.shape(0))) return status;
  const int64_t columns = sums.shape(1);
  context.parallel_for(sums.shape(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t row = offsets(i); row < offsets(i + 1); ++row) {
        for (int64_t j = 0; j < columns; ++j) out(row, j) = sums(i, j);
      }
    }
  });
  return opforge::kOk;
}
