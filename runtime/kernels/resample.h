// resample.h: the taps of ONNX Resize along one axis.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

struct ResizeRule {
  enum class Mode : int32_t { kNearest, kLinear, kCubic } mode = Mode::kNearest;
  enum class Coordinates : int32_t {
    kHalfPixel,
    kHalfPixelSymmetric,
    kPytorchHalfPixel,
    kAlignCorners,
    kAsymmetric,
    kCrop
  } coordinates = Coordinates::kHalfPixel;
  enum class Nearest : int32_t {
    kRoundPreferFloor,
    kRoundPreferCeil,
    kFloor,
    kCeil
  } nearest = Nearest::kRoundPreferFloor;
  bool exclude_outside = false, antialias = false;
  float cubic = -0.75f, extrapolation = 0;
};

// False when an attribute has an unknown value.
bool read_resize_rule(const Attributes& attributes, ResizeRule* rule);

struct AxisScale {
  int64_t in = 1, out = 1;
  double scale = 1;  // out / in, as given
  double roi_begin = 0, roi_end = 1;
  bool same = true;  // nothing to do
};

// Taps per output of this axis: 1 (nearest), 2, 4, or more where antialiasing widens the window.
int64_t tap_count(const ResizeRule& rule, const AxisScale& axis);
// For output `o`: source indices (clamped into the image) and weights. Returns false when the output lies
// outside the region of tf_crop_and_resize and gets the extrapolation value. T is float or double.
template <class T>
bool taps_of(const ResizeRule& rule, const AxisScale& axis, int64_t o, int64_t taps, int32_t* index,
             T* weight);

}  // namespace opforge::kernels
