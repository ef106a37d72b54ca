// deconv.cpp: ONNX ConvTranspose on plain tensors: any group, dilation and one to three dimensions. Each
// input pixel times the weights is one matrix product, whose results are added to the outputs that they
// reach, taps in order. The compiler replaces the common cases of two dimensions by convolutions.
#include "kernels/move.h"
#include "kernels/plain_conv.h"

namespace opforge {
namespace {

using namespace kernels;

using Plan = PlainConv;

// The window of the convolution that this one is the transpose of: its `out` is our input, its `in` our
// output.
bool transpose_plan(const Attributes& attributes, const Tensor* in, int32_t n, Plan* p) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (x.rank < 3 || x.rank > 5 || w.rank != x.rank) return false;
  p->groups = attributes.get_int("group", 1);
  p->images = x[0], p->channels_in = x[1], p->channels_out = w[1] * p->groups;
  if (p->groups < 1 || w[0] != x[1] || x[1] % p->groups != 0 || !conv_operands_fit(in, n, p->channels_out))
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

// How the products of one image are cut: rows of the small image at a time, outputs of a unit, and lines (an
// output's tap each) of one product, so that it takes about 256 KB. Cuts depend on the sizes only.
struct Cut {
  int64_t rows, pixels, outputs, units, lines, panel, columns, products;
  explicit Cut(const Plan& p) {
    const Window& w = p.w;
    const int64_t all = greater<int64_t>(1, w.out[0] * w.out[1]), width = greater<int64_t>(1, w.out[2]);
    const int64_t taps = greater<int64_t>(1, w.taps());
    rows = lesser(all, greater<int64_t>(1, lesser<int64_t>(2048, 65536 / taps) / width));
    pixels = rows * width;
    outputs = greater<int64_t>(1, lesser(p.out_group(), 65536 / pixels / taps));  // of none, too
    units = ceil_div(p.out_group(), outputs);
    lines = greater<int64_t>(1, lesser(outputs * taps, 65536 / pixels));
    panel = scratch_floats(isa_table().matmul_panel_floats(lines, p.in_group()));
    columns = scratch_floats(p.in_group() * padded8(pixels));
    products = scratch_floats(lines * pixels);
  }
};

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
  if (is_f32(c.inputs[0])) {
    const Cut cuts(p);
    c.scratch_bytes = 4 * c.max_threads * (cuts.panel + cuts.columns + cuts.products);
  } else {
    c.scratch_bytes = 8 * c.max_threads * p.w.out_size();
  }
  return OPFORGE_STATUS_OK;
}

// to[k * step] += from[k]
template <class T>
void spread_row(T* to, const T* from, int64_t n, int64_t step) {
  if (step == 1) {
    for (int64_t k = 0; k < n; ++k) to[k] += from[k];
  } else if (step == 2) {
    for (int64_t k = 0; k < n; ++k) to[2 * k] += from[k];
  } else {
    for (int64_t k = 0; k < n; ++k) to[step * k] += from[k];
  }
}

// Adds rows [row0, row1) of the small image, times one tap, to a plane of outputs.
template <class T>
void spread_tap(const Window& w, int64_t tap, int64_t row0, int64_t row1, const T* from, T* out) {
  const int64_t kz = tap / w.kernel[2] / w.kernel[1], ky = tap / w.kernel[2] % w.kernel[1];
  const RowTap across(w, tap % w.kernel[2]);
  for (int64_t row = row0; row < row1; ++row, from += w.out[2]) {
    const int64_t z = row / w.out[1] * w.stride[0] - w.before[0] + kz * w.dilation[0];
    const int64_t y = row % w.out[1] * w.stride[1] - w.before[1] + ky * w.dilation[1];
    if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1] || across.begin == across.end) continue;
    spread_row(out + (z * w.in[1] + y) * w.in[2] + across.from, from + across.begin,
               across.end - across.begin, w.stride[2]);
  }
}

// f32: the weights, transposed, times the small image.
void multiply(RunContext& c, const Plan& p) {
  const Window& w = p.w;
  const IsaTable& isa = isa_table();
  const Cut cuts(p);
  const float *x = c.inputs[0].as<float>(), *weights = c.inputs[1].as<float>();
  const float* bias = given(c, 2) ? c.inputs[2].as<float>() : nullptr;
  float *y = c.outputs[0].as<float>(), *scratch = static_cast<float*>(c.scratch);
  const int64_t per = cuts.panel + cuts.columns + cuts.products, taps = w.taps();
  for_units(c, p.images * p.groups * cuts.units, [&](int64_t slot, int64_t unit) {
    const int64_t m0 = unit % cuts.units * cuts.outputs, m1 = lesser(p.out_group(), m0 + cuts.outputs);
    const int64_t group = unit / cuts.units % p.groups, image = unit / cuts.units / p.groups;
    float *panel = scratch + slot * per, *packed = panel + cuts.panel, *products = packed + cuts.columns;
    const float* from = x + (image * p.channels_in + group * p.in_group()) * w.out_size();
    float* out = y + (image * p.channels_out + group * p.out_group()) * w.in_size();
    for (int64_t m = m0; m < m1; ++m)
      for (int64_t i = 0; i < w.in_size(); ++i)
        out[m * w.in_size() + i] = bias != nullptr ? bias[group * p.out_group() + m] : 0.0f;
    MatmulArgs g{};
    g.a_row = 1, g.a_column = p.out_group() * taps;
    g.k = p.in_group();
    g.b = packed, g.c = products;
    const float* factors = weights + group * p.in_group() * g.a_column + m0 * taps;
    const int64_t lines = (m1 - m0) * taps;
    for (int64_t row = 0; row < w.out[0] * w.out[1]; row += cuts.rows) {
      const int64_t end = lesser(w.out[0] * w.out[1], row + cuts.rows);
      g.n = g.c_row = (end - row) * w.out[2];
      isa.pack_b(from + row * w.out[2], w.out_size(), 1, g.k, g.n, packed, 0, blocks16(g.n));
      for (int64_t line = 0; line < lines; line += cuts.lines) {
        g.a = factors + line, g.m = lesser(cuts.lines, lines - line);
        if (row == 0 || lines > cuts.lines) isa.pack_a(g, panel, 0, g.m);
        isa.matmul(g, panel, 0, g.m, 0, g.n);
        for (int64_t r = 0; r < g.m; ++r)
          spread_tap(w, (line + r) % taps, row, end, products + r * g.n,
                     out + (m0 + (line + r) / taps) * w.in_size());
      }
    }
  });
}

// Double precision, one plane of products after the other.
void scatter(RunContext& c, const Plan& p) {
  const Window& w = p.w;
  const double *x = c.inputs[0].as<double>(), *weights = c.inputs[1].as<double>();
  const double* bias = given(c, 2) ? c.inputs[2].as<double>() : nullptr;
  double *y = c.outputs[0].as<double>(), *scratch = static_cast<double*>(c.scratch);
  for_units(c, p.images * p.channels_out, [&](int64_t slot, int64_t unit) {
    const int64_t m = unit % p.channels_out, image = unit / p.channels_out, group = m / p.out_group();
    double *out = y + unit * w.in_size(), *products = scratch + slot * w.out_size();
    for (int64_t i = 0; i < w.in_size(); ++i) out[i] = bias != nullptr ? bias[m] : 0;
    for (int64_t k = 0; k < p.in_group(); ++k) {
      const int64_t channel = group * p.in_group() + k;
      const double* from = x + (image * p.channels_in + channel) * w.out_size();
      const double* factors = weights + (channel * p.out_group() + m % p.out_group()) * w.taps();
      for (int64_t tap = 0; tap < w.taps(); ++tap) {
        for (int64_t i = 0; i < w.out_size(); ++i) products[i] = from[i] * factors[tap];
        spread_tap(w, tap, 0, w.out[0] * w.out[1], products, out);
      }
    }
  });
}

Status transpose_run(RunContext& c) {
  Plan p;
  transpose_plan(*c.attributes, c.inputs, c.n_inputs, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  is_f32(c.inputs[0]) ? multiply(c, p) : scatter(c, p);
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "ConvTranspose", 1, kNewest, nullptr, transpose_infer, transpose_run, 0, 2, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(deconv, opforge::kRows);
