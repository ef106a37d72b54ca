// resize.cpp: ONNX Resize (and Upsample) on plain tensors, axis by axis.
#include <cmath>
#include <limits>

#include "kernels/move.h"
#include "kernels/resample.h"
#include "kernels/types.h"

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

  // The axes that change, those that shrink most first, so that what lies between stays small. The last one,
  // whose elements are gathered one by one, shrinks when the others are done.
  int order(int rank, int* axis) const {
    int n = 0;
    for (int k = rank - 1; k >= 0; --k) {
      if (axes[k].same) continue;
      int at = n++;
      const auto cost = [&](int a, int b) {  // in double: the products may exceed 2^63
        const double slow = a == rank - 1 && axes[a].out < axes[a].in ? 3 : 1;
        return slow * static_cast<double>(axes[a].out) * static_cast<double>(axes[b].in);
      };
      const auto larger = [&](int a, int b) { return cost(a, b) > cost(b, a); };
      for (; at > 0 && larger(axis[at - 1], k); --at) axis[at] = axis[at - 1];
      axis[at] = k;
    }
    return n;
  }
};

// A length rounded down; what no axis can have is one more than the most.
int64_t length_of(double x) { return x < INT32_MAX ? static_cast<int64_t>(std::floor(x)) : int64_t{1} << 31; }

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
      a.out = a.scale == 1 ? a.in : length_of(static_cast<double>(a.in) * a.scale);
    } else {
      a.out = larger || smaller ? length_of(common * static_cast<double>(a.in) + 0.5) : sizes[i];
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
    a.same = a.out == a.in && (by_size || a.scale == 1) && !(crop && (a.roi_begin != 0 || a.roi_end != 1));
    if (!a.same && (a.in > INT32_MAX || a.out > INT32_MAX)) return false;  // tables hold 32-bit indices
  }
  return true;
}

// Weights (of 8 bytes at most), then indices, then whether the output lies inside.
int64_t table_bytes(const ResizeRule& rule, const AxisScale& a) {
  return a.out == 0 ? 0 : 4 * scratch_floats(a.out * (3 * tap_count(rule, a) + 1));
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
  if (!is_real(x.dtype) && s.rule.mode != ResizeRule::Mode::kNearest)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Resize interpolates f32 and f64 only");
  if (s.rule.coordinates == ResizeRule::Coordinates::kCrop && !has_type(x.dtype)) return no_type(c);
  c.outputs[0].shape = x.shape;
  for (int k = 0; k < x.shape.rank; ++k) c.outputs[0].shape.dims[k] = z.axes[k].out;
  int64_t largest = 0, elements = x.shape.elements(), table = 0;
  int axis[kMaxRank];
  const int changes = z.order(x.shape.rank, axis);
  for (int i = 0; i < changes; ++i) {
    const AxisScale& a = z.axes[axis[i]];
    if (a.in == 0 && a.out != 0)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "Resize of an axis of length 0 to %lld",
                    static_cast<long long>(a.out));
    elements = a.in == 0 ? 0 : elements / a.in * a.out;
    largest = greater(largest, elements);
    table = greater(table, table_bytes(s.rule, a));
  }
  c.scratch_bytes = table + 2 * (largest * element_bytes(x.dtype) + 128);
  return OPFORGE_STATUS_OK;
}

struct Table {
  int64_t taps;
  int32_t *index, *inside;
  void* weight;
  Table(void* scratch, const ResizeRule& rule, const AxisScale& a, bool wide) : taps(tap_count(rule, a)) {
    weight = scratch;
    index = reinterpret_cast<int32_t*>(static_cast<char*>(scratch) + a.out * taps * 8);
    inside = index + a.out * taps;
    for (int64_t o = 0; o < a.out; ++o) {
      int32_t* at = index + o * taps;
      inside[o] = wide ? taps_of(rule, a, o, taps, at, static_cast<double*>(weight) + o * taps)
                       : taps_of(rule, a, o, taps, at, static_cast<float*>(weight) + o * taps);
    }
  }
};

// One axis: y[outer][out][inner] from x[outer][in][inner].
template <class T>
void interpolate(RunContext& c, const ResizeRule& rule, const AxisScale& a, const Table& t,
                 const AxisSplit& split, const void* from, void* to) {
  const T *x = static_cast<const T*>(from), *weight = static_cast<const T*>(t.weight);
  T* y = static_cast<T*>(to);
  if (split.inner == 1 && t.taps == 2) {  // along rows
    c.parallel(split.outer, greater<int64_t>(1, 4096 / a.out), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = x + row * a.in;
        T* out = y + row * a.out;
        for (int64_t o = 0; o < a.out; ++o)
          out[o] = t.inside[o]
                       ? weight[2 * o] * in[t.index[2 * o]] + weight[2 * o + 1] * in[t.index[2 * o + 1]]
                       : static_cast<T>(rule.extrapolation);
      }
    });
    return;
  }
  if (split.inner == 1) {
    c.parallel(split.outer, greater<int64_t>(1, 1024 / a.out), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = x + row * a.in;
        for (int64_t o = 0; o < a.out; ++o) {
          T sum = 0;
          for (int64_t k = o * t.taps; k < (o + 1) * t.taps; ++k) sum += weight[k] * in[t.index[k]];
          y[row * a.out + o] = t.inside[o] ? sum : static_cast<T>(rule.extrapolation);
        }
      }
    });
    return;
  }
  c.parallel(split.outer * a.out, greater<int64_t>(1, 4096 / greater<int64_t>(split.inner, 1)),
             [&](int64_t begin, int64_t end) {
               for (int64_t e = begin; e < end; ++e) {
                 const int64_t o = e % a.out;
                 const T* in = x + e / a.out * a.in * split.inner;
                 T* out = y + e * split.inner;
                 if (!t.inside[o]) {
                   for (int64_t i = 0; i < split.inner; ++i) out[i] = static_cast<T>(rule.extrapolation);
                   continue;
                 }
                 const T* w = weight + o * t.taps;
                 const int32_t* index = t.index + o * t.taps;
                 if (t.taps == 2) {
                   const T *p = in + index[0] * split.inner, *q = in + index[1] * split.inner;
                   for (int64_t i = 0; i < split.inner; ++i) out[i] = w[0] * p[i] + w[1] * q[i];
                   continue;
                 }
                 for (int64_t i = 0; i < split.inner; ++i) out[i] = 0;
                 for (int64_t k = 0; k < t.taps; ++k) {
                   const T* p = in + index[k] * split.inner;
                   for (int64_t i = 0; i < split.inner; ++i) out[i] += w[k] * p[i];
                 }
               }
             });
}

// Where the outputs of a row lie: each element so many times, or every so-many-th element from one on; else
// by table.
struct Pattern {
  int64_t repeat = 0, step = 0;
  Pattern(const AxisScale& a, const Table& t) {
    const int64_t ratio = a.in > 0 && a.out % a.in == 0 ? a.out / a.in : 0;
    const int64_t apart = a.out > 1 ? t.index[1] - t.index[0] : 0;
    bool repeats = ratio > 0, steps = apart > 0;
    for (int64_t o = 0; o < a.out && (repeats || steps); ++o) {
      if (!t.inside[o]) repeats = steps = false;
      repeats = repeats && t.index[o] == o / ratio;
      steps = steps && t.index[o] == t.index[0] + o * apart;
    }
    repeat = repeats ? ratio : 0;
    step = steps ? apart : 0;
  }
};

template <class Word>
void pick_row(const Pattern& p, const AxisScale& a, const Table& t, const Word* in, Word* out, Word fill) {
  if (p.repeat == 2) {
    for (int64_t i = 0; i < a.in; ++i) out[2 * i] = out[2 * i + 1] = in[i];
  } else if (p.repeat > 0) {
    for (int64_t i = 0; i < a.in; ++i)
      for (int64_t k = 0; k < p.repeat; ++k) *out++ = in[i];
  } else if (p.step == 2) {
    in += t.index[0];
    for (int64_t o = 0; o < a.out; ++o) out[o] = in[2 * o];
  } else {
    for (int64_t o = 0; o < a.out; ++o) out[o] = t.inside[o] ? in[t.index[o]] : fill;
  }
}

// The same by the nearest element, of any type.
void pick(RunContext& c, const ResizeRule& rule, const AxisScale& a, const Table& t, const AxisSplit& split,
          const char* from, char* to) {
  const DType dtype = c.inputs[0].dtype;
  const int64_t element = element_bytes(dtype), run = split.inner * element;
  uint8_t outside[8] = {};
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using Limits = std::numeric_limits<T>;
    const float v = rule.extrapolation;
    T value = 0;
    if (!Limits::is_integer)
      value = static_cast<T>(v);
    else if (v == v)
      value = v <= static_cast<float>(Limits::lowest()) ? Limits::lowest()
              : v >= static_cast<float>(Limits::max())  ? Limits::max()
                                                        : static_cast<T>(v);
    std::memcpy(outside, &value, sizeof value);
  });
  if (split.inner == 1) {
    const Pattern pattern(a, t);
    const auto rows = [&](auto* words) {
      using Word = std::remove_pointer_t<decltype(words)>;
      Word fill;
      std::memcpy(&fill, outside, sizeof fill);
      c.parallel(split.outer, greater<int64_t>(1, 8192 / a.out), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Word* in = reinterpret_cast<const Word*>(from) + row * a.in;
          Word* out = reinterpret_cast<Word*>(to) + row * a.out;
          pick_row(pattern, a, t, in, out, fill);
        }
      });
    };
    if (element == 1) return rows(static_cast<uint8_t*>(nullptr));
    if (element == 2) return rows(static_cast<uint16_t*>(nullptr));
    if (element == 4) return rows(static_cast<uint32_t*>(nullptr));
    return rows(static_cast<uint64_t*>(nullptr));
  }
  c.parallel(split.outer * a.out, greater<int64_t>(1, 16384 / run), [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      char* out = to + e * run;
      const int64_t o = e % a.out;
      if (t.inside[o])
        std::memcpy(out, from + (e / a.out * a.in + t.index[o]) * run, static_cast<size_t>(run));
      else
        for (int64_t i = 0; i < run; i += element)
          std::memcpy(out + i, outside, static_cast<size_t>(element));
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
  int axis[kMaxRank];
  const int changes = z.order(input.shape.rank, axis);
  for (int i = 0; i < changes; ++i) {
    const AxisScale& a = z.axes[axis[i]];
    table = greater(table, table_bytes(s.rule, a));
    elements = elements / a.in * a.out;
    largest = greater(largest, elements);
  }
  char* buffers[2];
  buffers[0] = static_cast<char*>(c.scratch) + table;
  buffers[1] = buffers[0] + (largest * element + 63) / 64 * 64;
  const char* from = static_cast<const char*>(input.data);
  if (changes == 0) std::memcpy(c.outputs[0].data, from, elements * element);
  Shape shape = input.shape;
  for (int done = 1; done <= changes; ++done) {
    const int k = axis[done - 1];
    const AxisScale& a = z.axes[k];
    char* to = done == changes ? static_cast<char*>(c.outputs[0].data) : buffers[done % 2];
    const Table table_of(c.scratch, s.rule, a, input.dtype == DType::kF64);
    const AxisSplit split(shape, k);
    if (s.rule.mode == ResizeRule::Mode::kNearest)
      pick(c, s.rule, a, table_of, split, from, to);
    else if (is_f32(input))
      interpolate<float>(c, s.rule, a, table_of, split, from, to);
    else
      interpolate<double>(c, s.rule, a, table_of, split, from, to);
    shape.dims[k] = a.out;
    from = to;
  }
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Resize", 11, kNewest, resize_load<false>, resize_infer, resize_run, 0, 1, 4},
    {"", "Upsample", 9, kNewest, resize_load<true>, resize_infer, resize_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(resize, opforge::kRows);
