// recurrent.cpp: reading the nodes of recurrent networks.
#include "kernels/recurrent.h"

#include <initializer_list>
#include <limits>

namespace opforge::kernels {
namespace {

constexpr int64_t kMostHidden = int64_t{1} << 20, kMostElements = int64_t{1} << 44;

struct FunctionRow {
  const char* name;
  GateKind kind;
  int32_t arguments;  // alpha, then beta
  float alpha, beta;
};
constexpr FunctionRow kFunctions[] = {
    {"sigmoid", GateKind::kSigmoid, 0, 0, 0},
    {"tanh", GateKind::kTanh, 0, 0, 0},
    {"relu", GateKind::kRelu, 0, 0, 0},
    {"affine", GateKind::kAffine, 2, 1, 0},
    {"leakyrelu", GateKind::kLeakyRelu, 1, 0.01f, 0},
    {"thresholdedrelu", GateKind::kThresholdedRelu, 1, 1, 0},
    {"scaledtanh", GateKind::kScaledTanh, 2, 1, 1},
    {"hardsigmoid", GateKind::kHardSigmoid, 2, 0.2f, 0.5f},
    {"elu", GateKind::kElu, 1, 1, 0},
    {"softsign", GateKind::kSoftsign, 0, 0, 0},
    {"softplus", GateKind::kSoftplus, 0, 0, 0},
};

// Names are compared without regard to case.
const FunctionRow* function_of(StringView name) {
  for (const FunctionRow& row : kFunctions) {
    if (static_cast<int64_t>(std::strlen(row.name)) != name.size) continue;
    bool same = true;
    for (int64_t i = 0; i < name.size && same; ++i)
      same = (name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] + 32 : name.data[i]) == row.name[i];
    if (same) return &row;
  }
  return nullptr;
}

bool read_functions(const Attributes& a, RecurrentState* s) {
  const int32_t per = s->kind == RecurrentKind::kLstm ? 3 : s->kind == RecurrentKind::kGru ? 2 : 1;
  const float *alphas = nullptr, *betas = nullptr;
  int64_t n_alphas = 0, n_betas = 0, next_alpha = 0, next_beta = 0;
  if (!a.get_floats("activation_alpha", &alphas, &n_alphas)) n_alphas = 0;
  if (!a.get_floats("activation_beta", &betas, &n_betas)) n_betas = 0;
  for (int32_t i = 0; i < per * s->directions; ++i) {
    const int32_t position = i % per;
    const bool sigmoid = position == 0 && s->kind != RecurrentKind::kRnn;
    const FunctionRow* row = &kFunctions[sigmoid ? 0 : 1];
    const StringView name = a.get_text("activations", i);
    if (name.data != nullptr) row = function_of(name);
    if (row == nullptr || (name.data == nullptr && a.get_text("activations", 0).data != nullptr))
      return false;
    GateFunction f;
    f.kind = row->kind;
    f.alpha = row->arguments > 0 && next_alpha < n_alphas ? alphas[next_alpha++] : row->alpha;
    f.beta = row->arguments > 1 && next_beta < n_betas ? betas[next_beta++] : row->beta;
    (position == 0 ? s->f : position == 1 ? s->g : s->h)[i / per] = f;
  }
  for (int32_t d = 0; s->kind != RecurrentKind::kLstm && d < 2; ++d) s->h[d].kind = GateKind::kTanh;
  for (int32_t d = 0; s->kind == RecurrentKind::kRnn && d < 2; ++d) s->g[d].kind = GateKind::kTanh;
  return a.get_text("activations", per * s->directions).data == nullptr;
}

}  // namespace

Status load_recurrent(LoadContext& c, RecurrentKind kind, const RecurrentInputs& at) {
  RecurrentState* s = new_state<RecurrentState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  s->kind = kind;
  s->at = at;
  s->hidden = a.get_int("hidden_size", 0);
  const StringView direction = a.get_string("direction", "forward");
  s->directions = equals(direction, "bidirectional") ? 2 : 1;
  s->reverse = equals(direction, "reverse");
  if (s->directions == 1 && !s->reverse && !equals(direction, "forward"))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "direction is not forward, reverse or bidirectional");
  if (s->hidden < (at.packed < 0 ? 0 : 1) || s->hidden > kMostHidden)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "hidden_size is not 1 to 2^20");
  s->batch_first = a.get_int("layout", 0) != 0;
  s->input_forget = a.get_int("input_forget", 0) != 0;
  s->linear_before_reset = a.get_int("linear_before_reset", 0) != 0;
  s->clip = a.get_float("clip", 0);
  if (!(s->clip > 0)) s->clip = std::numeric_limits<double>::infinity();
  if (!read_functions(a, s))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED,
                  "activations are not functions of ONNX's list, as many as the directions need");
  return OPFORGE_STATUS_OK;
}

RecurrentState resolve_recurrent(const void* state, const Tensor* inputs) {
  RecurrentState s = *static_cast<const RecurrentState*>(state);
  if (s.hidden == 0) s.hidden = inputs[s.at.r].shape[2];
  return s;
}

namespace {

bool has_shape(const Tensor* t, DType dtype, std::initializer_list<int64_t> dims) {
  if (t == nullptr) return true;
  if (t->dtype != dtype || !is_plain(*t) || t->shape.rank != static_cast<int>(dims.size())) return false;
  int axis = 0;
  for (const int64_t d : dims)
    if (t->shape[axis++] != d) return false;
  return true;
}

}  // namespace

Status infer_recurrent(InferContext& c, RecurrentState* state, RecurrentSizes* sizes) {
  const auto input = [&](int32_t which) { return optional_input(c.inputs, c.n_inputs, which); };
  const auto wrong = [&](const char* what) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "%s does not have the shape or dtype that ONNX asks for", what);
  };
  RecurrentState& s = *state;
  s = *static_cast<const RecurrentState*>(c.state);
  const Tensor& x = c.inputs[0];
  if (Status bad = check_outputs(c, x.dtype)) return bad;
  if (x.shape.rank != 3 || !is_plain(x) || (x.dtype != DType::kF32 && x.dtype != DType::kF64))
    return wrong("X");
  const bool packed = s.at.packed >= 0;
  if (!packed) {
    const Tensor &w = c.inputs[s.at.w], &r = c.inputs[s.at.r];
    if (r.shape.rank != 3 || (s.hidden != 0 && s.hidden != r.shape[2])) return wrong("R");
    s.hidden = r.shape[2];
    const int64_t d = s.directions, rows = s.gates() * s.hidden;
    if (s.hidden < 1 || s.hidden > kMostHidden || !has_shape(&r, x.dtype, {d, rows, s.hidden}))
      return wrong("R");
    if (!has_shape(&w, x.dtype, {d, rows, x.shape[2]})) return wrong("W");
    if (!has_shape(input(s.at.b), x.dtype, {d, 2 * rows})) return wrong("B");
    if (!has_shape(input(s.at.p), x.dtype, {d, 3 * s.hidden})) return wrong("P");
  }
  *sizes = recurrent_sizes(s, x.shape);
  const RecurrentSizes& z = *sizes;
  const int64_t d = s.directions, h = s.hidden;
  if (greater<int64_t>(1, z.steps) > kMostElements / greater<int64_t>(1, z.batch) / (4 * (h + 16)))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the gates of all steps have more than 2^44 elements");
  if (!has_shape(input(s.at.lengths), DType::kI32, {z.batch})) return wrong("sequence_lens");
  for (const int32_t which : {s.at.h, s.at.c}) {
    const bool good = s.batch_first ? has_shape(input(which), x.dtype, {z.batch, d, h})
                                    : has_shape(input(which), x.dtype, {d, z.batch, h});
    if (!good) return wrong(which == s.at.h ? "initial_h" : "initial_c");
  }
  for (int32_t k = 0; k < c.n_outputs; ++k) {
    Shape& y = c.outputs[k].shape;
    y.rank = 0;
    const auto add = [&](int64_t size) { y.dims[y.rank++] = size; };
    if (k == 0 && !s.batch_first) add(z.steps);
    if (s.batch_first) add(z.batch);
    if (k == 0 && s.batch_first) add(z.steps);
    add(d);
    if (!s.batch_first) add(z.batch);
    add(h);
  }
  return OPFORGE_STATUS_OK;
}

RecurrentSizes recurrent_sizes(const RecurrentState& s, const Shape& x) {
  RecurrentSizes z;
  z.steps = x[s.batch_first ? 1 : 0], z.batch = x[s.batch_first ? 0 : 1], z.inputs = x[2];
  const int64_t d = s.directions, h = s.hidden;
  if (s.batch_first) {
    z.x_step = 1, z.x_row = z.steps;
    z.y_step = d * h, z.y_row = z.steps * d * h, z.y_direction = h;
    z.h_row = d * h, z.h_direction = h;
  } else {
    z.x_step = z.batch, z.x_row = 1;
    z.y_step = d * z.batch * h, z.y_row = h, z.y_direction = z.batch * h;
    z.h_row = h, z.h_direction = z.batch * h;
  }
  return z;
}

Status read_lengths(RunContext& c, const RecurrentState& s, const RecurrentSizes& z, Lengths* lengths) {
  const Tensor* given = optional_input(c.inputs, c.n_inputs, s.at.lengths);
  *lengths = {given == nullptr ? nullptr : given->as<int32_t>(), z.steps};
  for (int64_t n = 0; given != nullptr && n < z.batch; ++n)
    if (lengths->of(n) < 0 || lengths->of(n) > z.steps)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "sequence_lens[%lld] is %d, the sequences have %lld steps", static_cast<long long>(n),
                    lengths->values[n], static_cast<long long>(z.steps));
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::kernels
