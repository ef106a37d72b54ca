// recurrent.cpp: LSTM, GRU and RNN in f32. The input's products of all steps are one product; a step is the
// product of the state and one pass of the cell. Weights lie as matmul16 with the gates of 16 units side by
// side: column (unit/16 * gates + gate) * 16 + unit % 16.
#include "kernels/recurrent.h"
#include "kernels/move.h"
#include "threads/crew.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr RecurrentInputs kOnnx = {1, 2, 3, 4, 5, 6, 7, -1}, kOnnxNoCell = {1, 2, 3, 4, 5, -1, -1, -1};
constexpr RecurrentInputs kPacked = {-1, -1, -1, 1, 2, 3, -1, 4};

// Weights of one direction. extra: LSTM's peepholes [3][width]; of a GRU the product for its last gate, or,
// linear before reset, the bias that stands in the reset [columns].
struct Weights {
  const void *w, *r;
  const float *bias, *extra;
  WeightKind w_kind = WeightKind::kF32, r_kind = WeightKind::kF32, extra_kind = WeightKind::kF32;
};

int64_t width_of(const RecurrentState& s) { return blocks16(s.hidden) * 16; }
int64_t columns_of(const RecurrentState& s) { return width_of(s) * s.gates(); }
int64_t state_columns_of(const RecurrentState& s) { return width_of(s) * s.state_gates(); }
bool has_extra(const RecurrentState& s) { return s.kind != RecurrentKind::kRnn; }
int64_t extra_floats(const RecurrentState& s) {
  if (s.kind == RecurrentKind::kLstm) return 3 * width_of(s);
  return s.split() ? s.hidden * width_of(s) : columns_of(s);
}

// Blocks of 16 units whose columns fill whole tiles of 128: narrower tiles wait for their chains of
// additions.
int64_t piece_blocks(int64_t gates) { return gates == 4 ? 2 : gates == 2 ? 4 : 8; }

// In how many shares a step is cut: each reads at least 256 KB of weights, or as much in products.
int64_t shares_of(const RecurrentState& s, const RecurrentSizes& z, int32_t threads) {
  const int64_t work = s.hidden * state_columns_of(s) * ceil_div(z.batch, 4);
  const int64_t most = lesser<int64_t>(Crew::kMost, lesser<int64_t>(threads, work / 65536));
  return greater<int64_t>(1, lesser(most, ceil_div(width_of(s) / 16, piece_blocks(s.state_gates()))));
}

// Where things lie in one direction's scratch, in floats.
struct Places {
  int64_t weights = 0, product = 0, r = 0, states = 0, panel = 0, panels = 0, columns = 0, total = 0;
  Places(const RecurrentState& s, const RecurrentSizes& z, int32_t threads, const Tensor* inputs) {
    WeightKind w_kind = WeightKind::kF32;
    for (int32_t d = 0; s.at.packed >= 0 && d < s.directions; ++d) {
      const Tensor* t = inputs + kPacked.packed + 4 * d;
      if (!is_f32(t[0])) weight_kind(t[0], &w_kind);
      if (z.batch > 1 && !(is_f32(t[1]) && (!s.split() || is_f32(t[3]))))
        weights = scratch_floats(s.hidden * state_columns_of(s)) + scratch_floats(extra_floats(s));
    }
    if (s.at.packed < 0)
      weights = scratch_floats(z.inputs * columns_of(s)) + scratch_floats(s.hidden * state_columns_of(s)) +
                scratch_floats(columns_of(s)) + scratch_floats(extra_floats(s));
    product = scratch_floats(z.steps * z.batch * columns_of(s));
    r = scratch_floats(z.batch * columns_of(s));
    states = scratch_floats(z.batch * width_of(s));
    panel = scratch_floats(isa_table().matmul_panel_floats(z.batch, s.hidden));
    panels = panel * shares_of(s, z, threads);
    columns = ProductPlan(z.steps * z.batch, columns_of(s), z.inputs, w_kind).scratch(threads);
    total = weights + product + r + 4 * states + panels + scratch_floats(columns);
  }
};

Status check_packed(LoadContext& c) {
  const RecurrentState& s = *static_cast<RecurrentState*>(c.state);
  const auto packed = [&](const Tensor& t, int64_t columns) {
    WeightKind kind;
    return t.data != nullptr && weight_kind(t, &kind) && t.packing == Packing::kMatmul16 &&
           t.shape.rank == 2 && t.shape[1] == columns;
  };
  const auto vector = [&](const Tensor& t, int64_t n) {
    return t.data != nullptr && is_f32(t) && t.packing == Packing::kNone && is_plain(t) &&
           t.shape.elements() == n;
  };
  for (int32_t d = 0; d < s.directions; ++d) {
    const int32_t first = kPacked.packed + 4 * d;
    const auto given = [&](int32_t k) { return first + k < c.n_inputs && c.inputs[first + k].present(); };
    const Tensor* t = c.inputs + first;
    bool good = given(0) && given(1) && packed(t[0], columns_of(s)) && packed(t[1], state_columns_of(s)) &&
                t[1].shape[0] == s.hidden && (!given(2) || vector(t[2], columns_of(s)));
    if (s.split())
      good = good && given(3) && packed(t[3], width_of(s)) && t[3].shape[0] == s.hidden;
    else
      good = good && (!given(3) || (has_extra(s) && vector(t[3], extra_floats(s))));
    if (!good) return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the weights are not constants packed for the node");
  }
  return OPFORGE_STATUS_OK;
}

template <RecurrentKind kKind>
Status load_onnx(LoadContext& c) {
  return load_recurrent(c, kKind, kKind == RecurrentKind::kLstm ? kOnnx : kOnnxNoCell);
}
template <RecurrentKind kKind>
Status load_packed(LoadContext& c) {
  if (Status bad = load_recurrent(c, kKind, kPacked)) return bad;
  return check_packed(c);
}

Status infer(InferContext& c) {
  RecurrentState s;
  RecurrentSizes z;
  if (Status bad = infer_recurrent(c, &s, &z)) return bad;
  if (c.inputs[0].dtype == DType::kF64 && s.at.packed < 0) {
    c.scratch_bytes = 8 * recurrent_double_scratch(s, z);
    return OPFORGE_STATUS_OK;
  }
  for (int32_t d = 0; s.at.packed >= 0 && d < s.directions; ++d)
    if (!is_f32(c.inputs[0]) || c.inputs[kPacked.packed + 4 * d].shape[0] != z.inputs)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "X is not f32 with as many columns as the weights have");
  c.scratch_bytes = 4 * s.directions * Places(s, z, c.max_threads, c.inputs).total;
  return OPFORGE_STATUS_OK;
}

// Rows [gate*hidden + unit][k] of an ONNX weight into matmul16, `to` gates of them side by side.
void pack(const float* from, const RecurrentState& s, int64_t k, int64_t first, int64_t to, float* packed) {
  const int64_t h = s.hidden;
  for (int64_t u = 0; u < h; u += 16)
    for (int64_t gate = 0; gate < to; ++gate) {
      const float* rows = from + ((first + gate) * h + u) * k;
      float* block = packed + (u / 16 * to + gate) * 16 * k;
      if (h - u >= 16) {
        isa_table().pack_b(rows, 1, k, k, 16, block, 0, 1);
        continue;
      }
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < 16; ++j) block[i * 16 + j] = u + j < h ? rows[j * k + i] : 0.0f;
    }
}

float* take(float** memory, int64_t floats) {
  float* at = *memory;
  *memory += scratch_floats(floats);
  return at;
}

Weights pack_weights(RunContext& c, const RecurrentState& s, const RecurrentSizes& z, int64_t d,
                     float* memory) {
  const int64_t h = s.hidden, gates = s.gates(), rows = gates * h, width = width_of(s);
  const float* w = c.inputs[s.at.w].as<float>() + d * rows * z.inputs;
  const float* r = c.inputs[s.at.r].as<float>() + d * rows * h;
  const Tensor* b = optional_input(c.inputs, c.n_inputs, s.at.b);
  const Tensor* p = optional_input(c.inputs, c.n_inputs, s.at.p);
  float* w_packed = take(&memory, z.inputs * columns_of(s));
  float* r_packed = take(&memory, h * state_columns_of(s));
  float* bias = take(&memory, columns_of(s));
  float* extra = take(&memory, extra_floats(s));
  pack(w, s, z.inputs, 0, gates, w_packed);
  pack(r, s, h, 0, s.state_gates(), r_packed);
  if (s.split()) pack(r, s, h, 2, 1, extra);
  if (b != nullptr) {
    const float* from = b->as<float>() + d * 2 * rows;
    std::memset(bias, 0, sizeof(float) * columns_of(s));
    if (s.linear_before_reset) std::memset(extra, 0, sizeof(float) * columns_of(s));
    for (int64_t gate = 0; gate < gates; ++gate)
      for (int64_t u = 0; u < h; ++u) {
        const int64_t at = (u / 16 * gates + gate) * 16 + u % 16;
        const bool apart = s.kind == RecurrentKind::kGru && s.linear_before_reset && gate == 2;
        bias[at] = apart ? from[gate * h + u] : from[gate * h + u] + from[rows + gate * h + u];
        if (apart) extra[at] = from[rows + gate * h + u];
      }
  }
  for (int64_t k = 0; p != nullptr && k < 3; ++k) {
    std::memset(extra + k * width, 0, sizeof(float) * width);
    std::memcpy(extra + k * width, p->as<float>() + (d * 3 + k) * h, sizeof(float) * h);
  }
  const bool used = s.kind == RecurrentKind::kLstm ? p != nullptr : s.split() || b != nullptr;
  return {w_packed, r_packed, b == nullptr ? nullptr : bias, has_extra(s) && used ? extra : nullptr};
}

// One direction of one run.
struct Direction {
  RunContext& c;
  const RecurrentState& s;
  const RecurrentSizes& z;
  const Lengths& lengths;
  int64_t d;
  Weights weights{};
  int64_t width = width_of(s), columns = columns_of(s);
  float *x = nullptr, *r = nullptr, *h = nullptr, *next = nullptr, *reset = nullptr, *cell = nullptr,
        *panels = nullptr;
  int64_t panel = 0;  // floats of one share's

  void run(float* memory, const Places& places) {
    if (s.at.packed >= 0) {
      const Tensor* t = c.inputs + kPacked.packed + 4 * d;
      const auto data = [&](int32_t k) {
        return kPacked.packed + 4 * d + k < c.n_inputs && t[k].present() ? t[k].as<float>() : nullptr;
      };
      weights = {t[0].data, t[1].data, data(2), data(3)};
      weight_kind(t[0], &weights.w_kind);
      // Half weights of the state, which every step reads: of one row they are widened in registers, of more
      // once.
      float* to = memory;
      const auto widened = [&](const Tensor& from, WeightKind* kind, const void* otherwise) -> const void* {
        weight_kind(from, kind);
        if (*kind == WeightKind::kF32 || z.batch == 1) return otherwise;
        const int64_t n = s.hidden * from.shape[1];
        float* wide = take(&to, n);
        isa_table().widen(*kind, from.data, wide, n);
        *kind = WeightKind::kF32;
        return wide;
      };
      weights.r = widened(t[1], &weights.r_kind, weights.r);
      if (s.split())
        weights.extra = static_cast<const float*>(widened(t[3], &weights.extra_kind, weights.extra));
    } else {
      weights = pack_weights(c, s, z, d, memory);
    }
    memory += places.weights;
    x = memory, memory += places.product;
    r = memory, memory += places.r;
    h = memory, next = h + places.states, reset = next + places.states, cell = reset + places.states;
    memory += 4 * places.states;
    panels = memory, panel = places.panel, memory += places.panels;
    read_state(s.at.h, h);
    if (s.kind == RecurrentKind::kLstm) read_state(s.at.c, cell);
    MatmulArgs g{};
    g.a = c.inputs[0].as<float>(), g.a_row = z.inputs, g.a_column = 1;
    g.b = weights.w, g.b_kind = weights.w_kind, g.bias = weights.bias;
    g.c = x, g.c_row = columns;
    g.m = z.steps * z.batch, g.n = columns, g.k = z.inputs;
    run_product(c, g, ProductPlan(g.m, g.n, g.k, g.b_kind), memory);
    // One region for all steps: to call threads together anew in each would take as long as the step.
    Crew crew(shares_of(s, z, c.threads));
    c.parallel(crew.shares(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        if (share != 0) {
          crew.help(share);
          continue;
        }
        for (int64_t step = 0; step < z.steps; ++step) one_step(&crew, step);
        crew.dismiss();
      }
    });
    write_state(1, h);
    if (s.kind == RecurrentKind::kLstm) write_state(2, cell);
  }

  void one_step(Crew* crew, int64_t step) {
    const bool linear = s.kind == RecurrentKind::kGru && s.linear_before_reset;
    const CellKind kind = s.kind == RecurrentKind::kLstm  ? CellKind::kLstm
                          : s.kind == RecurrentKind::kRnn ? CellKind::kRnn
                          : linear                        ? CellKind::kGruLinear
                                                          : CellKind::kGruReset;
    part(crew, step, kind, h, weights.r, weights.r_kind, linear ? weights.extra : nullptr, s.state_gates());
    if (s.split())
      part(crew, step, CellKind::kGruUpdate, reset, weights.extra, weights.extra_kind, nullptr, 1);
    float* done = next;
    next = h, h = done;
  }

  // The product of `state` with packed weights of `gates` gates, then the cell.
  void part(Crew* crew, int64_t step, CellKind kind, const float* state, const void* packed,
            WeightKind packed_kind, const float* bias, int64_t gates) {
    const IsaTable& isa = isa_table();
    MatmulArgs g{};
    g.a = state, g.a_row = width, g.a_column = 1;
    g.b = packed, g.b_kind = packed_kind, g.bias = bias;
    g.c = r, g.c_row = width * gates;
    g.m = z.batch, g.n = width * gates, g.k = s.hidden;
    const int64_t blocks = width / 16, whole = piece_blocks(gates), pieces = ceil_div(blocks, whole);
    crew->together([&](int64_t share) {
      const int64_t b0 = lesser(blocks, cut(pieces, crew->shares(), share) * whole),
                    b1 = lesser(blocks, cut(pieces, crew->shares(), share + 1) * whole);
      if (b0 == b1) return;
      float* own = panels + share * panel;
      isa.pack_a(g, own, 0, g.m);
      isa.matmul(g, own, 0, g.m, b0 * gates * 16, b1 * gates * 16);
      for (int64_t n = 0; n < z.batch; ++n) row(isa, step, n, kind, g.c_row, b0, b1);
    });
  }

  void row(const IsaTable& isa, int64_t step, int64_t n, CellKind kind, int64_t r_row, int64_t b0,
           int64_t b1) {
    const int64_t length = lengths.of(n), u0 = b0 * 16, units = lesser(s.hidden, b1 * 16) - u0;
    float* y =
        c.n_outputs > 0 && c.outputs[0].present() ? c.outputs[0].as<float>() + d * z.y_direction : nullptr;
    if (step >= length) {  // padding: the state stays, the output is 0
      if (kind == CellKind::kGruReset) return;
      std::memcpy(next + n * width + u0, h + n * width + u0, sizeof(float) * (b1 - b0) * 16);
      if (y != nullptr) std::memset(y + step * z.y_step + n * z.y_row + u0, 0, sizeof(float) * units);
      return;
    }
    const int64_t t = s.reversed(d) ? length - 1 - step : step;
    CellArgs a{};
    a.kind = kind;
    a.f = s.f[d], a.g = s.g[d], a.h = s.h[d];
    a.clip = static_cast<float>(s.clip);
    a.input_forget = s.input_forget;
    a.x = x + (t * z.x_step + n * z.x_row) * columns;
    a.r = r + n * r_row;
    a.h_in = h + n * width;
    a.h_out = (kind == CellKind::kGruReset ? reset : next) + n * width;
    a.c = cell + n * width;
    a.peepholes = s.kind == RecurrentKind::kLstm ? weights.extra : nullptr;
    a.width = width;
    isa.cell(a, b0, b1);
    if (y != nullptr && kind != CellKind::kGruReset)
      std::memcpy(y + t * z.y_step + n * z.y_row + u0, a.h_out + u0, sizeof(float) * units);
  }

  void read_state(int32_t which, float* to) {
    const Tensor* given = optional_input(c.inputs, c.n_inputs, which);
    std::memset(to, 0, sizeof(float) * z.batch * width);
    for (int64_t n = 0; given != nullptr && n < z.batch; ++n)
      std::memcpy(to + n * width, given->as<float>() + n * z.h_row + d * z.h_direction,
                  sizeof(float) * s.hidden);
  }
  void write_state(int32_t output, const float* from) {
    if (output >= c.n_outputs || !c.outputs[output].present()) return;
    for (int64_t n = 0; n < z.batch; ++n)
      std::memcpy(c.outputs[output].as<float>() + n * z.h_row + d * z.h_direction, from + n * width,
                  sizeof(float) * s.hidden);
  }
};

Status run(RunContext& c) {
  const RecurrentState s = resolve_recurrent(c.state, c.inputs);
  if (c.inputs[0].dtype == DType::kF64) return run_recurrent_double(c);
  const RecurrentSizes z = recurrent_sizes(s, c.inputs[0].shape);
  Lengths lengths{};
  if (Status bad = read_lengths(c, s, z, &lengths)) return bad;
  if (z.batch == 0) return OPFORGE_STATUS_OK;
  const Places places(s, z, c.threads, c.inputs);
  const auto one = [&](int64_t d) {
    Direction direction{c, s, z, lengths, d};
    direction.run(static_cast<float*>(c.scratch) + d * places.total, places);
  };
  if (s.directions == 1)
    one(0);
  else  // two directions are two threads' work; regions inside then run where they are
    for_units(c, 2, [&](int64_t, int64_t d) { one(d); });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "LSTM", 1, 1, load_packed<RecurrentKind::kLstm>, infer, run, kAnyOutput, 1, kMany, 3},
    {"opforge", "GRU", 1, 1, load_packed<RecurrentKind::kGru>, infer, run, kAnyOutput, 1, kMany, 2},
    {"opforge", "RNN", 1, 1, load_packed<RecurrentKind::kRnn>, infer, run, kAnyOutput, 1, kMany, 2},
    {"", "LSTM", 7, kNewest, load_onnx<RecurrentKind::kLstm>, infer, run, kAnyOutput, 3, 8, 3},
    {"", "GRU", 7, kNewest, load_onnx<RecurrentKind::kGru>, infer, run, kAnyOutput, 3, 6, 2},
    {"", "RNN", 7, kNewest, load_onnx<RecurrentKind::kRnn>, infer, run, kAnyOutput, 3, 6, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(recurrent, opforge::kRows);
