// resample.cpp: where the outputs of ONNX Resize lie in the input, and with which weights.
#include "kernels/resample.h"

#include <cmath>

namespace opforge::kernels {
namespace {

template <class E, size_t N>
bool choose(StringView text, const char* const (&names)[N], E* value) {
  for (size_t i = 0; i < N; ++i) {
    if (!equals(text, names[i])) continue;
    *value = static_cast<E>(i);
    return true;
  }
  return false;
}

double source_of(const ResizeRule& rule, const AxisScale& a, int64_t o) {
  const double x = static_cast<double>(o), in = static_cast<double>(a.in), out = static_cast<double>(a.out);
  switch (rule.coordinates) {
    case ResizeRule::Coordinates::kHalfPixelSymmetric: {
      const double exact = a.scale * in, adjust = out / exact, center = in / 2;
      return center * (1 - adjust) + (x + 0.5) / a.scale - 0.5;
    }
    case ResizeRule::Coordinates::kPytorchHalfPixel:
      return a.out > 1 ? (x + 0.5) / a.scale - 0.5 : 0;
    // The length before it is rounded down, as in the standard's own examples.
    case ResizeRule::Coordinates::kAlignCorners:
      return a.out > 1 ? x * (in - 1) / (a.scale * in - 1) : 0;
    case ResizeRule::Coordinates::kAsymmetric:
      return x / a.scale;
    case ResizeRule::Coordinates::kCrop:
      return a.out > 1 ? a.roi_begin * (in - 1) + x * (a.roi_end - a.roi_begin) * (in - 1) / (out - 1)
                       : 0.5 * (a.roi_begin + a.roi_end) * (in - 1);
    default:
      return (x + 0.5) / a.scale - 0.5;
  }
}

double nearest_of(ResizeRule::Nearest rule, double x) {
  switch (rule) {
    case ResizeRule::Nearest::kRoundPreferCeil:
      return std::floor(x + 0.5);
    case ResizeRule::Nearest::kFloor:
      return std::floor(x);
    case ResizeRule::Nearest::kCeil:
      return std::ceil(x);
    default:
      return std::ceil(x - 0.5);
  }
}

double cubic_weight(double a, double x) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

double widening(const ResizeRule& rule, const AxisScale& a) {
  return rule.antialias && rule.mode != ResizeRule::Mode::kNearest && a.scale < 1 ? 1 / a.scale : 1;
}

}  // namespace

bool read_resize_rule(const Attributes& attributes, ResizeRule* rule) {
  static const char* const kModes[] = {"nearest", "linear", "cubic"};
  static const char* const kCoordinates[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                             "align_corners", "asymmetric",           "tf_crop_and_resize"};
  static const char* const kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  rule->exclude_outside = attributes.get_int("exclude_outside", 0) != 0;
  rule->antialias = attributes.get_int("antialias", 0) != 0;
  rule->cubic = static_cast<float>(attributes.get_float("cubic_coeff_a", -0.75));
  rule->extrapolation = static_cast<float>(attributes.get_float("extrapolation_value", 0));
  return choose(attributes.get_string("mode", "nearest"), kModes, &rule->mode) &&
         choose(attributes.get_string("coordinate_transformation_mode", "half_pixel"), kCoordinates,
                &rule->coordinates) &&
         choose(attributes.get_string("nearest_mode", "round_prefer_floor"), kNearest, &rule->nearest);
}

int64_t tap_count(const ResizeRule& rule, const AxisScale& axis) {
  if (rule.mode == ResizeRule::Mode::kNearest) return 1;
  const int64_t plain = rule.mode == ResizeRule::Mode::kLinear ? 2 : 4;
  const double wide = widening(rule, axis);
  return wide == 1 ? plain : static_cast<int64_t>(std::ceil(plain * wide)) + 1;
}

template <class T>
bool taps_of(const ResizeRule& rule, const AxisScale& axis, int64_t o, int64_t taps, int32_t* index,
             T* weight) {
  const double source = source_of(rule, axis, o);
  const bool inside = rule.coordinates != ResizeRule::Coordinates::kCrop ||
                      (source >= 0 && source <= static_cast<double>(axis.in - 1));
  const auto clamp = [&](double i) {
    const double top = static_cast<double>(axis.in - 1);
    return static_cast<int32_t>(i < 0 ? 0 : i > top ? top : i);
  };
  if (rule.mode == ResizeRule::Mode::kNearest) {
    index[0] = clamp(nearest_of(rule.nearest, source));
    weight[0] = 1;
    return inside;
  }
  const double wide = widening(rule, axis), radius = (rule.mode == ResizeRule::Mode::kLinear ? 1 : 2) * wide;
  // The unwidened window begins at the neighbour below (and, for cubic, one before it).
  const double first = wide == 1 ? std::floor(source) - (radius - 1) : std::floor(source - radius) + 1;
  double sum = 0, weights[64];
  for (int64_t t = 0; t < taps; ++t) {
    const double at = first + static_cast<double>(t), distance = (at - source) / wide;
    double w = rule.mode == ResizeRule::Mode::kLinear ? greater(0.0, 1 - std::fabs(distance))
                                                      : cubic_weight(rule.cubic, distance);
    if (rule.exclude_outside && (at < 0 || at > static_cast<double>(axis.in - 1))) w = 0;
    if (t < 64)
      weights[t] = w;
    else
      weight[t] = static_cast<T>(w);
    index[t] = clamp(at);
    sum += w;
  }
  const bool normalise = (rule.exclude_outside || wide != 1) && sum != 0;
  for (int64_t t = 0; t < taps; ++t) {
    const double w = t < 64 ? weights[t] : static_cast<double>(weight[t]);
    weight[t] = static_cast<T>(normalise ? w / sum : w);
  }
  return inside;
}

template bool taps_of(const ResizeRule&, const AxisScale&, int64_t, int64_t, int32_t*, float*);
template bool taps_of(const ResizeRule&, const AxisScale&, int64_t, int64_t, int32_t*, double*);

}  // namespace opforge::kernels
