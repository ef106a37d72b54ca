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

// From the attributes kernel_shape, strides, dilations, pads, auto_pad, ceil_mode and the shape [N, C, ...]
// of X. `kernel` (or null): the kernel's shape when the attribute is absent. False when something does not
// fit.
bool read_window(const Attributes& attributes, const Shape& x, const int64_t* kernel, Window* window);

}  // namespace opforge::kernels
