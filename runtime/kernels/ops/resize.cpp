// resize.cpp: ONNX Resize (and Upsample) on plain tensors, axis by axis.
#include <cmath>

#include "kernels/move.h"
#include "kernels/resample.h"

namespace opforge {
namespace {

using namespace kernels;

struct ResizeState {
  ResizeRule rule;
  bool upsample = false;
};

template <bool UPSAMPLE>
Status resize_load(LoadContext& c) {
  ResizeState* s = new_state<ResizeState>(c);
  if (s == nullptr) return no_memory(c);
  s->upsample = UPSAMPLE;
  if (!read_resize_rule(*c.attributes, &s->rule))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "unknown mode of Resize");
  if (UPSAMPLE)
    s->rule.coordinates = ResizeRule::Coordinates::kAsymmetric, s->rule.nearest = ResizeRule::Nearest::kFloor;
  return OPFORGE_STATUS_OK;
}

struct Sizes {
  AxisScale axes[kMaxRank];
  int32_t missing = -1;  // an input whose data is needed
};

bool present(const Tensor* in, int32_t n, int32_t i) {
  return i < n && in[i].present() && in[i].shape.elements() > 0;
}

// Reads scales or sizes; false when they do not fit X.
bool read_sizes(const Attributes& attributes, const ResizeState& s, const Tensor* in, int32_t n, Sizes* z) {
  const Shape& x = in[0].shape;
  const int32_t scales_at = s.upsample ? 1 : 2;
  const bool by_scale = present(in, n, scales_at), by_size = !s.upsample && present(in, n, 3);
  const bool crop = s.rule.coordinates == ResizeRule::Coordinates::kCrop;
  if (by_scale == by_size) return false;
  const int32_t used = by_scale ? scales_at : 3;
  if (in[used].data == nullptr || (crop && present(in, n, 1) && in[1].data == nullptr)) {
    z->missing = in[used].data == nullptr ? used : 1;
    return true;
  }
  const int64_t* listed = nullptr;
  int64_t count = x.rank;
  const bool some = attributes.get_ints("axes", &listed, &count);
  if (in[used].shape.elements() != count || count > kMaxRank) return false;
  int64_t sizes[kMaxRank], read = 0;
  if (by_size ? !read_values(in[used], sizes, kMaxRank, &read) : !is_f32(in[used])) return false;
  for (int k = 0; k < x.rank; ++k) z->axes[k].in = z->axes[k].out = x[k];
  int axis[kMaxRank];
  for (int i = 0; i < count; ++i) {
    axis[i] = some ? axis_of(listed[i], x.rank) : i;
    if (axis[i] < 0) return false;
  }
  const StringView policy = attributes.get_string("keep_aspect_ratio_policy", "stretch");
  const bool larger = equals(policy, "not_larger"), smaller = equals(policy, "not_smaller");
  double common = larger ? INFINITY : 0;
  for (int i = 0; i < count && by_size; ++i) {
    const double ratio = static_cast<double>(sizes[i]) / static_cast<double>(greater<int64_t>(1, x[axis[i]]));
    common = larger ? lesser(common, ratio) : greater(common, ratio);
  }
  for (int i = 0; i < count; ++i) {
    AxisScale& a = z->axes[axis[i]];
    if (by_scale) {
      a.scale = static_cast<double>(in[used].as<float>()[i]);
      if (!(a.scale > 0) || !(a.scale < 1e9)) return false;
      a.out = static_cast<int64_t>(std::floor(static_cast<double>(a.in) * a.scale));
    } else {
      a.out = larger || smaller ? static_cast<int64_t>(std::floor(common * static_cast<double>(a.in) + 0.5))
                                : sizes[i];
      if (a.out < 0) return false;
      a.scale = larger || smaller
                    ? common
                    : static_cast<double>(a.out) / static_cast<double>(greater<int64_t>(1, a.in));
    }
    if (crop && present(in, n, 1)) {
      if (!is_f32(in[1]) || in[1].shape.elements() != 2 * count) return false;
      a.roi_begin = static_cast<double>(in[1].as<float>()[i]);
      a.roi_end = static_cast<double>(in[1].as<float>()[count + i]);
    }
    if (a.out > INT32_MAX) return false;
    a.same = a.out == a.in && (by_size || a.scale == 1) && !(crop && (a.roi_begin != 0 || a.roi_end != 1));
  }
  return true;
}

int64_t table_floats(const ResizeRule& rule, const AxisScale& a) {
  return scratch_floats(a.out * (2 * tap_count(rule, a) + 1));
}

Status resize_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const ResizeState& s = *static_cast<ResizeState*>(c.state);
  Sizes z;
  const Tensor& x = c.inputs[0];
  if (!is_plain(x) || element_bytes(x.dtype) == 0 || !read_sizes(*c.attributes, s, c.inputs, c.n_inputs, &z))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X, scales, sizes and axes of Resize do not fit together");
  if (z.missing >= 0) return c.need_data(z.missing);
  if (!is_f32(x) && s.rule.mode != ResizeRule::Mode::kNearest)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Resize interpolates f32 only");
  c.outputs[0].shape = x.shape;
  int64_t largest = 0, elements = x.shape.elements(), table = 0;
  for (int k = 0; k < x.shape.rank; ++k) {
    const AxisScale& a = z.axes[k];
    c.outputs[0].shape.dims[k] = a.out;
    if (a.same) continue;
    if (a.in == 0 && a.out != 0)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "Resize of an axis of length 0 to %lld",
                    static_cast<long long>(a.out));
    elements = a.in == 0 ? 0 : elements / a.in * a.out;
    largest = greater(largest, elements);
    table = greater(table, table_floats(s.rule, a));
  }
  c.scratch_bytes = 4 * table + 2 * (largest * element_bytes(x.dtype) + 128);
  return OPFORGE_STATUS_OK;
}

// One axis: y[outer][out][inner] from x[outer][in][inner].
void interpolate(RunContext& c, const ResizeRule& rule, const AxisScale& a, int64_t taps,
                 const int32_t* index, const float* weight, const int32_t* inside, const AxisSplit& split,
                 const float* x, float* y) {
  c.parallel(split.outer * a.out, greater<int64_t>(1, 4096 / greater<int64_t>(split.inner, 1)),
             [&](int64_t begin, int64_t end) {
               for (int64_t e = begin; e < end; ++e) {
                 const int64_t o = e % a.out;
                 const float* from = x + e / a.out * a.in * split.inner;
                 float* to = y + e * split.inner;
                 for (int64_t i = 0; i < split.inner; ++i) {
                   float sum = 0;
                   for (int64_t t = 0; t < taps; ++t)
                     sum += weight[o * taps + t] * from[index[o * taps + t] * split.inner + i];
                   to[i] = inside[o] ? sum : rule.extrapolation;
                 }
               }
             });
}

Status resize_run(RunContext& c) {
  const ResizeState& s = *static_cast<ResizeState*>(c.state);
  Sizes z;
  read_sizes(*c.attributes, s, c.inputs, c.n_inputs, &z);
  const Tensor& input = c.inputs[0];
  const int64_t element = element_bytes(input.dtype);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  int64_t table = 0, largest = 0, elements = input.shape.elements();
  int changes = 0;
  for (int k = 0; k < input.shape.rank; ++k) {
    if (z.axes[k].same) continue;
    ++changes;
    table = greater(table, table_floats(s.rule, z.axes[k]));
    elements = elements / z.axes[k].in * z.axes[k].out;
    largest = greater(largest, elements);
  }
  char* buffers[2];
  buffers[0] = static_cast<char*>(c.scratch) + 4 * table;
  buffers[1] = buffers[0] + (largest * element + 63) / 64 * 64;
  const char* from = static_cast<const char*>(input.data);
  if (changes == 0) std::memcpy(c.outputs[0].data, from, elements * element);
  Shape shape = input.shape;
  const bool crop = s.rule.coordinates == ResizeRule::Coordinates::kCrop;
  for (int k = shape.rank - 1, done = 0; k >= 0; --k) {
    const AxisScale& a = z.axes[k];
    if (a.same) continue;
    char* to = ++done == changes ? static_cast<char*>(c.outputs[0].data) : buffers[done % 2];
    const int64_t taps = tap_count(s.rule, a);
    int32_t* index = static_cast<int32_t*>(c.scratch);
    float* weight = static_cast<float*>(c.scratch) + a.out * taps;
    int32_t* inside = index + 2 * a.out * taps;
    for (int64_t o = 0; o < a.out; ++o)
      inside[o] = taps_of(s.rule, a, o, taps, index + o * taps, weight + o * taps);
    const AxisSplit split(shape, k);
    if (s.rule.mode != ResizeRule::Mode::kNearest || (crop && is_f32(input))) {
      interpolate(c, s.rule, a, taps, index, weight, inside, split, reinterpret_cast<const float*>(from),
                  reinterpret_cast<float*>(to));
    } else {
      const int64_t run = split.inner * element;
      c.parallel(split.outer * a.out, greater<int64_t>(1, 16384 / run), [&](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e)
          std::memcpy(to + e * run, from + (e / a.out * a.in + index[e % a.out]) * run, run);
      });
    }
    shape.dims[k] = a.out;
    from = to;
  }
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Resize", 11, kNewest, resize_load<false>, resize_infer, resize_run},
    {"", "Upsample", 9, kNewest, resize_load<true>, resize_infer, resize_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(resize, opforge::kRows);
