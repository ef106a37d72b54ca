// recurrent_double.cpp: LSTM, GRU and RNN in f64, one sample after the other, straight from ONNX's equations.
// It is built once, so its profile is the strict one on every processor.
#ifndef OPFORGE_PROFILE_STRICT
#define OPFORGE_PROFILE_STRICT 1
#endif
#include <cmath>

#include "kernels/recurrent.h"
#include "opforge/vector_math.h"

namespace opforge::kernels {
namespace {

// The functions of formulas, whose bits are the same on every processor, of one number.
using Two = vm::Vec<double, 2>;
#define FUNCTION(name) \
  double name(double x) { return vm::name(vm::splat<Two>(x)).v[0]; }
FUNCTION(expm1)
FUNCTION(sigmoid)
FUNCTION(softplus)
FUNCTION(tanh)
#undef FUNCTION

double apply(const GateFunction& f, double clip, double x) {
  const double a = f.alpha, b = f.beta;
  x = x < -clip ? -clip : x > clip ? clip : x;
  switch (f.kind) {
    case GateKind::kSigmoid:
      return sigmoid(x);
    case GateKind::kTanh:
      return tanh(x);
    case GateKind::kRelu:
      return x < 0 ? 0 : x;
    case GateKind::kAffine:
      return a * x + b;
    case GateKind::kLeakyRelu:
      return x < 0 ? a * x : x;
    case GateKind::kThresholdedRelu:
      return x >= a ? x : 0;
    case GateKind::kScaledTanh:
      return a * tanh(b * x);
    case GateKind::kHardSigmoid: {
      const double y = a * x + b;
      return y < 0 ? 0 : y > 1 ? 1 : y;
    }
    case GateKind::kElu:
      return x < 0 ? a * expm1(x) : x;
    case GateKind::kSoftsign:
      return x / (1 + std::fabs(x));
    case GateKind::kSoftplus:
      return softplus(x);
  }
  return x;
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The weights of one direction and the state of one sample.
struct Sample {
  const RecurrentState& s;
  int64_t direction, inputs;
  const double *w, *r, *b, *p;  // b and p may be null
  double *h, *next, *c, *reset, *gates;

  double bias(int64_t gate, int64_t u, bool of_state) const {
    return b == nullptr ? 0 : b[((of_state ? s.gates() : 0) + gate) * s.hidden + u];
  }
  double input(const double* x, int64_t gate, int64_t u) const {
    return dot(x, w + (gate * s.hidden + u) * inputs, inputs) + bias(gate, u, false);
  }
  double state(const double* from, int64_t gate, int64_t u) const {
    return dot(from, r + (gate * s.hidden + u) * s.hidden, s.hidden) + bias(gate, u, true);
  }
  double f(double v) const { return apply(s.f[direction], s.clip, v); }
  double g(double v) const { return apply(s.g[direction], s.clip, v); }

  void step(const double* x) {
    const int64_t n = s.hidden;
    for (int64_t u = 0; u < n; ++u) {
      if (s.kind == RecurrentKind::kRnn) next[u] = f(input(x, 0, u) + state(h, 0, u));
      if (s.kind == RecurrentKind::kLstm) lstm(x, u);
      if (s.kind != RecurrentKind::kGru) continue;
      gates[u] = f(input(x, 0, u) + state(h, 0, u));
      reset[u] = f(input(x, 1, u) + state(h, 1, u));
      if (s.linear_before_reset)
        reset[u] = reset[u] * state(h, 2, u);
      else
        reset[u] *= h[u];
    }
    for (int64_t u = 0; s.kind == RecurrentKind::kGru && u < n; ++u) {
      const double v = g(input(x, 2, u) + (s.linear_before_reset ? reset[u] : state(reset, 2, u)));
      next[u] = (1 - gates[u]) * v + gates[u] * h[u];
    }
    double* done = next;
    next = h, h = done;
  }

  void lstm(const double* x, int64_t u) {
    const auto peephole = [&](int64_t k, double cell) {
      return p == nullptr ? 0 : p[k * s.hidden + u] * cell;
    };
    const double i = f(input(x, 0, u) + state(h, 0, u) + peephole(0, c[u]));
    const double forget = s.input_forget ? 1 - i : f(input(x, 2, u) + state(h, 2, u) + peephole(2, c[u]));
    c[u] = forget * c[u] + i * g(input(x, 3, u) + state(h, 3, u));
    const double o = f(input(x, 1, u) + state(h, 1, u) + peephole(1, c[u]));
    next[u] = o * apply(s.h[direction], s.clip, c[u]);
  }
};

constexpr int64_t kBuffers = 5;

}  // namespace

int64_t recurrent_double_scratch(const RecurrentState& s, const RecurrentSizes& z) {
  return s.directions * z.batch * kBuffers * s.hidden;
}

Status run_recurrent_double(RunContext& c) {
  const RecurrentState s = resolve_recurrent(c.state, c.inputs);
  const RecurrentSizes z = recurrent_sizes(s, c.inputs[0].shape);
  Lengths lengths{};
  if (Status bad = read_lengths(c, s, z, &lengths)) return bad;
  const auto data = [&](int32_t which) {
    const Tensor* t = optional_input(c.inputs, c.n_inputs, which);
    return t == nullptr ? nullptr : t->as<double>();
  };
  const auto result = [&](int32_t k) {
    return k < c.n_outputs && c.outputs[k].present() ? c.outputs[k].as<double>() : nullptr;
  };
  const int64_t n = s.hidden, rows = s.gates() * n;
  c.parallel(s.directions * z.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t d = unit / z.batch, sample = unit % z.batch, length = lengths.of(sample);
      const int64_t at = d * z.h_direction + sample * z.h_row;
      double* memory = static_cast<double*>(c.scratch) + unit * kBuffers * n;
      const double *b = data(s.at.b), *p = data(s.at.p), *first[2] = {data(s.at.h), data(s.at.c)};
      Sample one{s,
                 d,
                 z.inputs,
                 data(s.at.w) + d * rows * z.inputs,
                 data(s.at.r) + d * rows * n,
                 b == nullptr ? nullptr : b + d * 2 * rows,
                 p == nullptr ? nullptr : p + d * 3 * n,
                 memory,
                 memory + n,
                 memory + 2 * n,
                 memory + 3 * n,
                 memory + 4 * n};
      for (int64_t u = 0; u < n; ++u) {
        one.h[u] = first[0] == nullptr ? 0 : first[0][at + u];
        one.c[u] = first[1] == nullptr ? 0 : first[1][at + u];
      }
      for (int64_t step = 0; step < z.steps; ++step) {
        const bool padding = step >= length;
        const int64_t t = padding || !s.reversed(d) ? step : length - 1 - step;
        if (!padding) one.step(c.inputs[0].as<double>() + (t * z.x_step + sample * z.x_row) * z.inputs);
        double* y = result(0);
        for (int64_t u = 0; y != nullptr && u < n; ++u)
          y[t * z.y_step + sample * z.y_row + d * z.y_direction + u] = padding ? 0 : one.h[u];
      }
      for (int64_t u = 0; u < n; ++u) {
        if (result(1) != nullptr) result(1)[at + u] = one.h[u];
        if (result(2) != nullptr) result(2)[at + u] = one.c[u];
      }
    }
  });
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::kernels
