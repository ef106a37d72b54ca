// conv.cpp: ONNX Conv and ConvTranspose on plain tensors: any group, dilation and one to three dimensions.
// Conv gathers the inputs of 16 neighbouring outputs into matmul16 blocks and multiplies; ConvTranspose
// scatters. The compiler replaces the common cases by opforge::Conv.
#include "kernels/move.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

struct Plan {
  Window w;
  int64_t images, channels_in, channels_out, groups;
  int64_t in_group() const { return channels_in / groups; }
  int64_t out_group() const { return channels_out / groups; }
  int64_t terms() const { return in_group() * w.taps(); }
};

bool operands_fit(const Tensor* in, int32_t n, int64_t outputs) {
  for (int i = 0; i < n; ++i)
    if (in[i].present() && (!is_real(in[i].dtype) || in[i].dtype != in[0].dtype || !is_plain(in[i]) ||
                            in[i].packing != Packing::kNone))
      return false;
  return n < 3 || !in[2].present() || in[2].shape.elements() == outputs;
}

bool conv_plan(const Attributes& attributes, const Tensor* in, int32_t n, Plan* p) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (x.rank < 3 || w.rank != x.rank) return false;
  p->images = x[0], p->channels_in = x[1], p->channels_out = w[0];
  p->groups = attributes.get_int("group", 1);
  return p->groups >= 1 && x[1] % p->groups == 0 && w[0] % p->groups == 0 && w[1] == x[1] / p->groups &&
         read_window(attributes, x, w.dims + 2, &p->w) &&
         p->terms() == w[1] * (w.elements() / greater<int64_t>(1, w[0] * w[1])) && operands_fit(in, n, w[0]);
}

// Outputs of a unit: a multiple of 16 whose gathered inputs take about 256 KB.
int64_t unit_outputs(const Plan& p) {
  const int64_t fit = 65536 / greater<int64_t>(p.terms(), 1) / 16 * 16;
  return lesser<int64_t>(greater<int64_t>(16, fit), (p.w.out_size() + 15) / 16 * 16);
}
int64_t gathered_floats(const Plan& p) { return scratch_floats(p.terms() * unit_outputs(p)); }
int64_t weights_floats(const Plan& p) {
  return scratch_floats(isa_table().matmul_panel_floats(p.out_group(), p.terms()));
}

Status conv_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  Plan p;
  if (!conv_plan(*c.attributes, c.inputs, c.n_inputs, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "Conv takes plain f32 or f64 X [N, C, ...], W [M, C/group, ...] and bias [M]");
  Shape& y = c.outputs[0].shape;
  y = c.inputs[0].shape;
  y.dims[1] = p.channels_out;
  for (int i = 0; i < p.w.rank; ++i) y.dims[2 + i] = p.w.out[3 - p.w.rank + i];
  if (is_f32(c.inputs[0]))
    c.scratch_bytes = 4 * (p.groups * weights_floats(p) + c.max_threads * gathered_floats(p));
  return OPFORGE_STATUS_OK;
}

// The inputs of outputs [o0, o0 + n) as blocks [16 outputs][terms][16|8].
void gather(const Plan& p, const float* x, int64_t o0, int64_t n, float* to) {
  const Window& w = p.w;
  for (int64_t block = 0; block < n; block += 16) {
    const int64_t lanes = n - block <= 8 ? 8 : 16, real = lesser(lanes, n - block);
    int64_t at[16][3];
    for (int64_t l = 0; l < real; ++l) {
      int64_t o = o0 + block + l;
      for (int d = 2; d >= 0; --d) {
        at[l][d] = o % w.out[d] * w.stride[d] - w.before[d];
        o /= w.out[d];
      }
    }
    for (int64_t c = 0; c < p.in_group(); ++c) {
      const float* plane = x + c * w.in_size();
      for (int64_t kz = 0; kz < w.kernel[0]; ++kz)
        for (int64_t ky = 0; ky < w.kernel[1]; ++ky)
          for (int64_t kx = 0; kx < w.kernel[2]; ++kx, to += lanes)
            for (int64_t l = 0; l < lanes; ++l) {
              to[l] = 0;
              if (l >= real) continue;
              const int64_t z = at[l][0] + kz * w.dilation[0], y = at[l][1] + ky * w.dilation[1];
              const int64_t i = at[l][2] + kx * w.dilation[2];
              if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1] || i < 0 || i >= w.in[2]) continue;
              to[l] = plane[(z * w.in[1] + y) * w.in[2] + i];
            }
    }
  }
}

// Double precision: a plane of outputs at a time, tap by tap.
void convolve(RunContext& c, const Plan& p) {
  const Window& w = p.w;
  const double *x = c.inputs[0].as<double>(), *weights = c.inputs[1].as<double>();
  const double* bias = given(c, 2) ? c.inputs[2].as<double>() : nullptr;
  for_units(c, p.images * p.channels_out, [&](int64_t, int64_t unit) {
    const int64_t m = unit % p.channels_out, image = unit / p.channels_out;
    const int64_t channel = image * p.channels_in + m / p.out_group() * p.in_group();
    double* y = c.outputs[0].as<double>() + unit * w.out_size();
    for (int64_t i = 0; i < w.out_size(); ++i) y[i] = bias != nullptr ? bias[m] : 0;
    for (int64_t term = 0; term < p.terms(); ++term) {
      const double* from = x + (channel + term / w.taps()) * w.in_size();
      const double factor = weights[m * p.terms() + term];
      const int64_t kx = term % w.kernel[2], ky = term / w.kernel[2] % w.kernel[1];
      const int64_t kz = term / w.kernel[2] / w.kernel[1] % w.kernel[0];
      for (int64_t row = 0; row < w.out[0] * w.out[1]; ++row) {
        const int64_t iz = row / w.out[1] * w.stride[0] - w.before[0] + kz * w.dilation[0];
        const int64_t iy = row % w.out[1] * w.stride[1] - w.before[1] + ky * w.dilation[1];
        if (iz < 0 || iz >= w.in[0] || iy < 0 || iy >= w.in[1]) continue;
        const double* in = from + (iz * w.in[1] + iy) * w.in[2];
        for (int64_t ox = 0; ox < w.out[2]; ++ox) {
          const int64_t ix = ox * w.stride[2] - w.before[2] + kx * w.dilation[2];
          if (ix >= 0 && ix < w.in[2]) y[row * w.out[2] + ox] += factor * in[ix];
        }
      }
    }
  });
}

Status conv_run(RunContext& c) {
  Plan p;
  conv_plan(*c.attributes, c.inputs, c.n_inputs, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (!is_f32(c.inputs[0])) {
    convolve(c, p);
    return OPFORGE_STATUS_OK;
  }
  const IsaTable& isa = isa_table();
  const float *x = c.inputs[0].as<float>(), *weights = c.inputs[1].as<float>();
  const float* bias = c.n_inputs > 2 && c.inputs[2].present() ? c.inputs[2].as<float>() : nullptr;
  float* y = c.outputs[0].as<float>();
  float* panels = static_cast<float*>(c.scratch);
  float* gathered = panels + p.groups * weights_floats(p);
  const auto product = [&](int64_t group) {
    MatmulArgs g{};
    g.a = weights + group * p.out_group() * p.terms();
    g.a_row = p.terms(), g.a_column = 1;
    g.m = p.out_group(), g.k = p.terms();
    g.c_row = p.w.out_size();
    return g;
  };
  for_units(c, p.groups, [&](int64_t, int64_t group) {
    isa.pack_a(product(group), panels + group * weights_floats(p), 0, p.out_group());
  });
  const int64_t step = unit_outputs(p), units = ceil_div(p.w.out_size(), step);
  for_units(c, p.images * p.groups * units, [&](int64_t slot, int64_t unit) {
    const int64_t o0 = unit % units * step, n = lesser(step, p.w.out_size() - o0);
    const int64_t group = unit / units % p.groups, image = unit / units / p.groups;
    float* columns = gathered + slot * gathered_floats(p);
    gather(p, x + (image * p.channels_in + group * p.in_group()) * p.w.in_size(), o0, n, columns);
    MatmulArgs g = product(group);
    g.b = columns;
    g.n = n;
    g.c = y + (image * p.channels_out + group * p.out_group()) * p.w.out_size() + o0;
    isa.matmul(g, panels + group * weights_floats(p), 0, g.m, 0, n);
    for (int64_t m = 0; bias != nullptr && m < g.m; ++m)
      for (int64_t i = 0; i < n; ++i) g.c[m * g.c_row + i] += bias[group * p.out_group() + m];
  });
  return OPFORGE_STATUS_OK;
}

// ---- ConvTranspose
// The window of the convolution that this one is the transpose of: its `out` is our input, its `in` our
// output.
bool transpose_plan(const Attributes& attributes, const Tensor* in, int32_t n, Plan* p) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (x.rank < 3 || x.rank > 5 || w.rank != x.rank) return false;
  p->groups = attributes.get_int("group", 1);
  p->images = x[0], p->channels_in = x[1], p->channels_out = w[1] * p->groups;
  if (p->groups < 1 || w[0] != x[1] || x[1] % p->groups != 0 || !operands_fit(in, n, p->channels_out))
    return false;
  Window& v = p->w;
  if (!read_window(attributes, x, w.dims + 2, &v)) return false;
  const int first = 3 - v.rank;
  const int64_t *shape = nullptr, *extra = nullptr;
  int64_t shapes = 0, extras = 0;
  attributes.get_ints("output_shape", &shape, &shapes);
  attributes.get_ints("output_padding", &extra, &extras);
  const bool lower = equals(attributes.get_string("auto_pad", "NOTSET"), "SAME_LOWER");
  const bool same = lower || equals(attributes.get_string("auto_pad", "NOTSET"), "SAME_UPPER");
  if ((shape != nullptr && shapes < v.rank) || (extra != nullptr && extras != v.rank)) return false;
  for (int i = 0; i < v.rank; ++i) {
    const int d = first + i;
    if (v.kernel[d] != w[2 + i]) return false;
    const int64_t more = extra != nullptr ? extra[i] : 0;
    const int64_t full = (v.in[d] - 1) * v.stride[d] + more + (v.kernel[d] - 1) * v.dilation[d] + 1;
    v.out[d] = v.in[d];  // of the forward convolution
    if (shape != nullptr || same) {
      const int64_t wanted = shape != nullptr ? shape[shapes - v.rank + i] : v.out[d] * v.stride[d];
      const int64_t total = greater<int64_t>(0, full - wanted);
      v.before[d] = lower ? total - total / 2 : total / 2;
      if (shape != nullptr && !same) v.before[d] = total - total / 2;
      v.in[d] = wanted;
    } else {
      v.in[d] = full - v.before[d] - v.after[d];
    }
    if (v.in[d] < 0) return false;
  }
  return true;
}

Status transpose_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  Plan p;
  if (!transpose_plan(*c.attributes, c.inputs, c.n_inputs, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "ConvTranspose takes plain f32 or f64 X [N, C, ...], W [C, M/group, ...] and bias [M]");
  Shape& y = c.outputs[0].shape;
  y = c.inputs[0].shape;
  y.dims[1] = p.channels_out;
  for (int i = 0; i < p.w.rank; ++i) y.dims[2 + i] = p.w.in[3 - p.w.rank + i];
  return OPFORGE_STATUS_OK;
}

template <class T>
void scatter(RunContext& c, const Plan& p) {
  const Window& w = p.w;
  const T *x = c.inputs[0].as<T>(), *weights = c.inputs[1].as<T>();
  const T* bias = c.n_inputs > 2 && c.inputs[2].present() ? c.inputs[2].as<T>() : nullptr;
  T* y = c.outputs[0].as<T>();
  for_units(c, p.images * p.channels_out, [&](int64_t, int64_t unit) {
    const int64_t m = unit % p.channels_out, image = unit / p.channels_out, group = m / p.out_group();
    T* out = y + unit * w.in_size();
    for (int64_t i = 0; i < w.in_size(); ++i) out[i] = bias != nullptr ? bias[m] : T(0);
    for (int64_t k = 0; k < p.in_group(); ++k) {
      const int64_t channel = group * p.in_group() + k;
      const T* from = x + (image * p.channels_in + channel) * w.out_size();
      const T* tap = weights + (channel * p.out_group() + m % p.out_group()) * w.taps();
      for (int64_t kz = 0; kz < w.kernel[0]; ++kz)
        for (int64_t ky = 0; ky < w.kernel[1]; ++ky)
          for (int64_t kx = 0; kx < w.kernel[2]; ++kx, ++tap)
            for (int64_t iz = 0; iz < w.out[0]; ++iz) {
              const int64_t z = iz * w.stride[0] - w.before[0] + kz * w.dilation[0];
              if (z < 0 || z >= w.in[0]) continue;
              for (int64_t iy = 0; iy < w.out[1]; ++iy) {
                const int64_t row = iy * w.stride[1] - w.before[1] + ky * w.dilation[1];
                if (row < 0 || row >= w.in[1]) continue;
                T* to = out + (z * w.in[1] + row) * w.in[2];
                const T* in = from + (iz * w.out[1] + iy) * w.out[2];
                for (int64_t ix = 0; ix < w.out[2]; ++ix) {
                  const int64_t i = ix * w.stride[2] - w.before[2] + kx * w.dilation[2];
                  if (i >= 0 && i < w.in[2]) to[i] += in[ix] * *tap;
                }
              }
            }
    }
  });
}

Status transpose_run(RunContext& c) {
  Plan p;
  transpose_plan(*c.attributes, c.inputs, c.n_inputs, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  with_real(c.inputs[0].dtype, [&](auto* type) { scatter<std::remove_pointer_t<decltype(type)>>(c, p); });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Conv", 1, kNewest, nullptr, conv_infer, conv_run, 0, 2},
    {"", "ConvTranspose", 1, kNewest, nullptr, transpose_infer, transpose_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(conv, opforge::kRows);
