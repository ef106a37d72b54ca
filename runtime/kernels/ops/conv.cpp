// conv.cpp: ONNX Conv on plain tensors: any group, dilation and one to three dimensions. The inputs of 16
// neighbouring outputs are gathered into matmul16 blocks and multiplied; narrow groups and doubles go tap by
// tap. The compiler replaces the common cases of two dimensions by opforge::Conv.
#include "kernels/move.h"
#include "kernels/plain_conv.h"

namespace opforge {
namespace {

using namespace kernels;

using Plan = PlainConv;

bool conv_plan(const Attributes& attributes, const Tensor* in, int32_t n, Plan* p) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (x.rank < 3 || w.rank != x.rank) return false;
  p->images = x[0], p->channels_in = x[1], p->channels_out = w[0];
  p->groups = attributes.get_int("group", 1);
  return p->groups >= 1 && x[1] % p->groups == 0 && w[0] % p->groups == 0 && w[1] == x[1] / p->groups &&
         read_window(attributes, x, w.dims + 2, &p->w) &&
         p->terms() == w[1] * (w.elements() / greater<int64_t>(1, w[0] * w[1])) &&
         conv_operands_fit(in, n, w[0]);
}

// Groups of so few outputs would leave a product's tile empty.
bool tap_by_tap(const Plan& p) { return p.out_group() <= 2; }

// Outputs of a unit: a multiple of 16 whose gathered inputs take about 256 KB.
int64_t unit_outputs(const Plan& p) {
  const int64_t fit = 65536 / greater<int64_t>(p.terms(), 1) / 16 * 16;
  return greater<int64_t>(16, lesser<int64_t>(fit, (p.w.out_size() + 15) / 16 * 16));  // of none, too
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
  if (is_f32(c.inputs[0]) && !tap_by_tap(p))
    c.scratch_bytes = 4 * (p.groups * weights_floats(p) + c.max_threads * gathered_floats(p));
  return OPFORGE_STATUS_OK;
}

// Neighbouring outputs of one row: lanes [lane, lane + n) of a block, and where the first one's window
// begins.
struct Run {
  int64_t lane, n, z, y, x;
};

// Elements of outputs that a run has, at tap `kx` of the row (null = padding).
void gather_run(const Window& w, const Run& r, const float* row, int64_t kx, float* to) {
  const int64_t x = r.x + kx * w.dilation[2], step = w.stride[2];
  to += r.lane;
  if (row != nullptr && x >= 0 && x + (r.n - 1) * step < w.in[2]) {
    if (step == 1 && r.n == 16) {
      std::memcpy(to, row + x, 16 * sizeof(float));
    } else {
      for (int64_t l = 0; l < r.n; ++l) to[l] = row[x + l * step];
    }
    return;
  }
  for (int64_t l = 0; l < r.n; ++l) {
    const int64_t at = x + l * step;
    to[l] = row != nullptr && at >= 0 && at < w.in[2] ? row[at] : 0.0f;
  }
}

// The inputs of outputs [o0, o0 + n) as blocks [16 outputs][terms][16|8].
void gather(const Plan& p, const float* x, int64_t o0, int64_t n, float* to) {
  const Window& w = p.w;
  for (int64_t block = 0; block < n; block += 16) {
    const int64_t lanes = n - block <= 8 ? 8 : 16, real = lesser(lanes, n - block);
    Run runs[16];
    int count = 0;
    for (int64_t lane = 0; lane < real;) {
      const int64_t o = o0 + block + lane, ox = o % w.out[2], row = o / w.out[2];
      const int64_t here = lesser(real - lane, w.out[2] - ox);
      runs[count++] = {lane, here, row / w.out[1] * w.stride[0] - w.before[0],
                       row % w.out[1] * w.stride[1] - w.before[1], ox * w.stride[2] - w.before[2]};
      lane += here;
    }
    for (int64_t c = 0; c < p.in_group(); ++c) {
      const float* plane = x + c * w.in_size();
      for (int64_t kz = 0; kz < w.kernel[0]; ++kz)
        for (int64_t ky = 0; ky < w.kernel[1]; ++ky) {
          const float* rows[16];
          for (int i = 0; i < count; ++i) {
            const int64_t z = runs[i].z + kz * w.dilation[0], y = runs[i].y + ky * w.dilation[1];
            const bool inside = z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1];
            rows[i] = inside ? plane + (z * w.in[1] + y) * w.in[2] : nullptr;
          }
          for (int64_t kx = 0; kx < w.kernel[2]; ++kx, to += lanes) {
            for (int i = 0; i < count; ++i) gather_run(w, runs[i], rows[i], kx, to);
            for (int64_t l = real; l < lanes; ++l) to[l] = 0;
          }
        }
    }
  }
}

// y += factor * x over one row; the usual steps are constants, so that the loop becomes vectors.
template <class T>
void add_row(T* y, const T* x, int64_t n, int64_t step, T factor) {
  if (step == 1) {
    for (int64_t k = 0; k < n; ++k) y[k] += factor * x[k];
  } else if (step == 2) {
    for (int64_t k = 0; k < n; ++k) y[k] += factor * x[2 * k];
  } else {
    for (int64_t k = 0; k < n; ++k) y[k] += factor * x[step * k];
  }
}

// A row of outputs at a time, tap by tap.
template <class T>
void convolve(RunContext& c, const Plan& p) {
  const Window& w = p.w;
  const T *x = c.inputs[0].as<T>(), *weights = c.inputs[1].as<T>();
  const T* bias = given(c, 2) ? c.inputs[2].as<T>() : nullptr;
  const RowTaps taps(w);
  for_units(c, p.images * p.channels_out, [&](int64_t, int64_t unit) {
    const int64_t m = unit % p.channels_out, image = unit / p.channels_out;
    const T* from = x + (image * p.channels_in + m / p.out_group() * p.in_group()) * w.in_size();
    T* y = c.outputs[0].as<T>() + unit * w.out_size();
    for (int64_t row = 0; row < w.out[0] * w.out[1]; ++row, y += w.out[2]) {
      for (int64_t i = 0; i < w.out[2]; ++i) y[i] = bias != nullptr ? bias[m] : T(0);
      const T* factor = weights + m * p.terms();
      const int64_t z0 = row / w.out[1] * w.stride[0] - w.before[0];
      const int64_t y0 = row % w.out[1] * w.stride[1] - w.before[1];
      for (int64_t k = 0; k < p.in_group(); ++k)
        for (int64_t kz = 0; kz < w.kernel[0]; ++kz)
          for (int64_t ky = 0; ky < w.kernel[1]; ++ky, factor += w.kernel[2]) {
            const int64_t iz = z0 + kz * w.dilation[0], iy = y0 + ky * w.dilation[1];
            if (iz < 0 || iz >= w.in[0] || iy < 0 || iy >= w.in[1]) continue;
            const T* in = from + ((k * w.in[0] + iz) * w.in[1] + iy) * w.in[2];
            for (int64_t kx = taps.begin; kx < taps.end; ++kx) {
              const RowTap tap(w, kx);
              add_row(y + tap.begin, in + tap.from, tap.end - tap.begin, w.stride[2], factor[kx]);
            }
          }
    }
  });
}

Status conv_run(RunContext& c) {
  Plan p;
  conv_plan(*c.attributes, c.inputs, c.n_inputs, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (!is_f32(c.inputs[0]) || tap_by_tap(p)) {
    with_real(c.inputs[0].dtype, [&](auto* type) { convolve<std::remove_pointer_t<decltype(type)>>(c, p); });
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

const OpKernel kRows[] = {
    {"", "Conv", 1, kNewest, nullptr, conv_infer, conv_run, 0, 2, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(conv, opforge::kRows);
