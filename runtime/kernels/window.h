// window.h: sliding windows over up to three spatial dimensions, as convolutions and pools of plain tensors
// have them. Missing leading dimensions count 1.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

struct Window {
  int rank = 0;  // spatial dimensions that the operator has
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t before[3] = {}, after[3] = {};  // padding

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
};

// The taps of the last dimension that meet the image for any output: kernels of files may be as large as
// 2^31.
struct RowTaps {
  int64_t begin, end;
  explicit RowTaps(const Window& w) {
    const int64_t d = w.dilation[2], last = (w.out[2] - 1) * w.stride[2];
    begin = w.before[2] <= last ? 0 : lesser(w.kernel[2], ceil_div(w.before[2] - last, d));
    end = w.out[2] > 0 ? greater(begin, lesser(w.kernel[2], ceil_div(w.in[2] + w.before[2], d))) : begin;
  }
};

// The outputs [begin, end) of a row that tap `kx` reads within the image, the first of them at element
// `from`.
struct RowTap {
  int64_t begin, end, from;
  RowTap(const Window& w, int64_t kx) {
    const int64_t shift = w.before[2] - kx * w.dilation[2];
    begin = shift <= 0 ? 0 : lesser(w.out[2], ceil_div(shift, w.stride[2]));
    end = shift + w.in[2] <= 0 ? begin
                               : greater(begin, lesser(w.out[2], ceil_div(shift + w.in[2], w.stride[2])));
    from = begin * w.stride[2] - shift;
  }
};

// From the attributes kernel_shape, strides, dilations, pads, auto_pad, ceil_mode and the shape [N, C, ...]
// of X. `kernel` (or null): the kernel's shape when the attribute is absent. False when something does not
// fit.
bool read_window(const Attributes& attributes, const Shape& x, const int64_t* kernel, Window* window);

// Taps [lo, hi) of one dimension that lie in the image; `counted`: taps that an average over padding counts.
struct Span {
  int64_t at, lo, hi, counted;
  Span(const Window& w, int d, int64_t out, bool padding) : at(out * w.stride[d] - w.before[d]) {
    if (at >= 0 && at + (w.kernel[d] - 1) * w.dilation[d] < w.in[d]) {
      lo = 0, hi = counted = w.kernel[d];
      return;
    }
    // Taps whose index is below `limit`; kernels of files may be as large as 2^31. Divisions are slow here.
    const auto below = [&](int64_t limit) {
      if (limit <= at) return int64_t{0};
      return lesser(w.kernel[d], w.dilation[d] == 1 ? limit - at : ceil_div(limit - at, w.dilation[d]));
    };
    lo = below(0);
    hi = greater(lo, below(w.in[d]));
    counted = padding ? greater<int64_t>(1, below(w.in[d] + w.after[d])) : hi - lo;
  }
};

}  // namespace opforge::kernels
