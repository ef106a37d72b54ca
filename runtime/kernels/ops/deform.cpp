// deform.cpp: DeformConv over one to three spatial dimensions: inputs are sampled where the offsets say, a
// block of outputs at a time, and multiplied with the weights.
#include <cmath>

#include "kernels/move.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr int64_t kBlock = 64;  // outputs of a unit

struct Plan {
  Window w;
  int64_t images, channels_in, channels_out, groups, offset_groups;
  int64_t in_group() const { return channels_in / groups; }
  int64_t terms() const { return in_group() * w.taps(); }
  int64_t blocks() const { return ceil_div(w.out_size(), kBlock); }
};

// A tensor of the shape [images, channels, outputs...].
bool over_outputs(const Tensor& t, const Plan& p, int64_t channels) {
  if (t.shape.rank != p.w.rank + 2 || t.shape[0] != p.images || t.shape[1] != channels) return false;
  for (int k = 0; k < p.w.rank; ++k)
    if (t.shape[2 + k] != p.w.out[3 - p.w.rank + k]) return false;
  return true;
}

template <class Context>
bool deform_plan(const Context& c, Plan* p) {
  const Shape &x = c.inputs[0].shape, &w = c.inputs[1].shape;
  for (int32_t k = 0; k < c.n_inputs; ++k)
    if (c.inputs[k].present() && (c.inputs[k].dtype != c.inputs[0].dtype || !is_plain(c.inputs[k])))
      return false;
  if (x.rank < 3 || w.rank != x.rank || !read_window(*c.attributes, x, w.dims + 2, &p->w)) return false;
  p->images = x[0], p->channels_in = x[1], p->channels_out = w[0];
  p->groups = c.attributes->get_int("group", 1);
  p->offset_groups = c.attributes->get_int("offset_group", 1);
  if (p->groups < 1 || p->offset_groups < 1 || x[1] % p->groups != 0 || w[0] % p->groups != 0 ||
      x[1] % p->offset_groups != 0 || p->offset_groups > greater<int64_t>(1, x[1]) || w[1] != p->in_group())
    return false;
  for (int k = 0; k < p->w.rank; ++k)
    if (w[2 + k] != p->w.kernel[3 - p->w.rank + k]) return false;
  const int64_t taps = p->offset_groups * p->w.taps();
  return over_outputs(c.inputs[2], *p, taps * p->w.rank) &&
         (!given(c, 3) || (c.inputs[3].shape.rank == 1 && c.inputs[3].shape[0] == w[0])) &&
         (!given(c, 4) || over_outputs(c.inputs[4], *p, taps));
}

Status deform_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  Plan p;
  if (!is_real(c.inputs[0].dtype)) return no_type(c);
  if (!deform_plan(c, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X, W, offset, B, mask and the attributes of DeformConv do not fit together");
  Shape& y = c.outputs[0].shape;
  y = c.inputs[0].shape;
  y.dims[1] = p.channels_out;
  for (int k = 0; k < p.w.rank; ++k) y.dims[2 + k] = p.w.out[3 - p.w.rank + k];
  c.scratch_bytes = 8 * scratch_floats(p.terms() * kBlock) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

// Linear interpolation between the neighbours that lie in the image.
template <class T>
T value_at(const Window& w, const T* plane, const T* at) {
  int64_t low[3];
  T part[3];
  for (int d = 0; d < 3; ++d) {
    if (!(at[d] > -1) || !(at[d] < static_cast<T>(w.in[d]))) return 0;
    const T floor = std::floor(at[d]);
    low[d] = static_cast<int64_t>(floor);
    part[d] = at[d] - floor;
  }
  T sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    T weight = 1;
    int64_t offset = 0;
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      const bool high = (corner >> (2 - d) & 1) != 0;
      const int64_t i = low[d] + high;
      weight *= high ? part[d] : 1 - part[d];
      inside = inside && i >= 0 && i < w.in[d];
      offset = offset * w.in[d] + i;
    }
    if (inside && weight != 0) sum += weight * plane[offset];
  }
  return sum;
}

// columns[term][output] of one group.
template <class T>
void gather(RunContext& c, const Plan& p, int64_t image, int64_t group, int64_t first, int64_t n,
            T* columns) {
  const Window& w = p.w;
  const int64_t out_size = w.out_size(), taps = w.taps(), each = p.channels_in / p.offset_groups;
  const T* offsets = c.inputs[2].as<T>() + image * p.offset_groups * taps * w.rank * out_size;
  const T* mask = given(c, 4) ? c.inputs[4].as<T>() + image * p.offset_groups * taps * out_size : nullptr;
  for (int64_t k = 0; k < p.in_group(); ++k) {
    const int64_t channel = group * p.in_group() + k, shift = channel / each;
    const T* plane = c.inputs[0].as<T>() + (image * p.channels_in + channel) * w.in_size();
    for (int64_t tap = 0; tap < taps; ++tap, columns += n)
      for (int64_t j = 0; j < n; ++j) {
        int64_t output = first + j, step = tap;
        T at[3] = {};
        for (int d = 2; d >= 0; --d) {
          at[d] = static_cast<T>(output % w.out[d] * w.stride[d] - w.before[d] +
                                 step % w.kernel[d] * w.dilation[d]);
          output /= w.out[d];
          step /= w.kernel[d];
        }
        for (int d = 0; d < w.rank; ++d)
          at[3 - w.rank + d] += offsets[((shift * taps + tap) * w.rank + d) * out_size + first + j];
        columns[j] = value_at(w, plane, at);
        if (mask != nullptr) columns[j] *= mask[(shift * taps + tap) * out_size + first + j];
      }
  }
}

template <class T>
void deform(RunContext& c, const Plan& p) {
  const int64_t out_size = p.w.out_size(), terms = p.terms(), out_group = p.channels_out / p.groups;
  for_units(c, p.images * p.groups * p.blocks(), [&](int64_t slot, int64_t unit) {
    T* columns =
        reinterpret_cast<T*>(static_cast<char*>(c.scratch) + 8 * slot * scratch_floats(terms * kBlock));
    const int64_t first = unit % p.blocks() * kBlock, group = unit / p.blocks() % p.groups;
    const int64_t image = unit / p.blocks() / p.groups, n = lesser(kBlock, out_size - first);
    gather(c, p, image, group, first, n, columns);
    for (int64_t m = 0; m < out_group; ++m) {
      const int64_t channel = group * out_group + m;
      const T* weights = c.inputs[1].as<T>() + channel * terms;
      T* to = c.outputs[0].as<T>() + (image * p.channels_out + channel) * out_size + first;
      const T bias = given(c, 3) ? c.inputs[3].as<T>()[channel] : T(0);
      for (int64_t j = 0; j < n; ++j) to[j] = bias;
      for (int64_t t = 0; t < terms; ++t)
        for (int64_t j = 0; j < n; ++j) to[j] += weights[t] * columns[t * n + j];
    }
  });
}

Status deform_run(RunContext& c) {
  Plan p;
  deform_plan(c, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  with_real(c.inputs[0].dtype, [&](auto* type) { deform<std::remove_pointer_t<decltype(type)>>(c, p); });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "DeformConv", 19, kNewest, nullptr, deform_infer, deform_run, 0, 3, 5},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(deform, opforge::kRows);
