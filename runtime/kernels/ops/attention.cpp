// attention.cpp: opforge::Attention and ONNX's Attention: softmax(cap(Q K^T * scale) + mask) V with
// transposes absorbed into strides, caches, windows and padding. Scores exist for a few query rows at a time;
// where few rows share K and V (a decoder's step) these are read as they lie, else packed once per head
// (docs/design/runtime.md).
#include "kernels/common.h"
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

enum : int32_t { kQ = 0, kK, kV, kMask, kPastK, kPastV, kLengths };
enum : int32_t { kY = 0, kPresentK, kPresentV, kScores };
constexpr int64_t kStepRows = 8;  // rows up to which packing K costs more than it saves

// Where (batch, head, row, column) of an operand lies, in elements.
struct View {
  int64_t batch = 0, head = 0, row = 0, column = 1, offset = 0;
};

struct AttentionState {
  int64_t heads = 0, kv_heads = 0, head_size = 0, head_size_v = 0;
  int64_t offsets[3] = {};
  char layouts[4][8] = {};  // q, k, v, output: "bhsd", "bshd", "bhds" (k only)
  float scale = 0, softcap = 0;
  int64_t left = -1, right = -1;  // window around the query; -1 = open
  int32_t scores_mode = 0;
  int64_t output_rank = 3;  // of "bshd"
  bool nan_rows = false;    // rows whose keys are all masked are NaN, as in a softmax
  bool onnx = false;        // heads and layouts follow from the ranks
};

bool read_layout(const Attributes& a, const char* name, bool transposed_allowed, char* to) {
  const StringView v = a.get_string(name, "bhsd");
  if (!equals(v, "bhsd") && !equals(v, "bshd") && !(transposed_allowed && equals(v, "bhds"))) return false;
  std::memcpy(to, v.data, 4);
  to[4] = 0;
  return true;
}

// What both forms of the node say in the same way.
void read_common(const Attributes& a, const char* causal, AttentionState* s) {
  s->scale = static_cast<float>(a.get_float("scale", 0));
  s->softcap = static_cast<float>(a.get_float("softcap", 0));
  constexpr int64_t kFar = int64_t{1} << 46;
  s->left = greater<int64_t>(-1, lesser(kFar, a.get_int("left_window_size", -1)));
  s->right = greater<int64_t>(-1, lesser(kFar, a.get_int("right_window_size", -1)));
  if (a.get_int(causal, 0) != 0) s->right = 0;
  s->nan_rows = a.get_int("nan_rows", 0) != 0;
  const int64_t mode = a.get_int("qk_matmul_output_mode", 0);
  s->scores_mode = mode >= 0 && mode <= 3 ? static_cast<int32_t>(mode) : 0;
}

Status attention_load(LoadContext& c) {
  AttentionState* s = new_state<AttentionState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  s->heads = a.get_int("num_heads", 0);
  s->kv_heads = a.get_int("kv_num_heads", s->heads);
  s->head_size = a.get_int("head_size", 0);
  s->head_size_v = a.get_int("head_size_v", s->head_size);
  s->output_rank = a.get_int("o_rank", 3);
  read_common(a, "causal", s);
  s->offsets[0] = a.get_int("q_offset", 0);
  s->offsets[1] = a.get_int("k_offset", 0);
  s->offsets[2] = a.get_int("v_offset", 0);
  if (!read_layout(a, "q_layout", false, s->layouts[0]) || !read_layout(a, "k_layout", true, s->layouts[1]) ||
      !read_layout(a, "v_layout", false, s->layouts[2]) || !read_layout(a, "o_layout", false, s->layouts[3]))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "a layout is none of bhsd, bshd, bhds (k only)");
  // Offsets and products of heads and sizes stay below 2^63.
  const auto in_range = [](int64_t v, int64_t least) { return v >= least && v <= int64_t{1} << 30; };
  if (!in_range(s->heads, 1) || !in_range(s->kv_heads, 1) || s->heads % s->kv_heads != 0 ||
      !in_range(s->head_size, 1) || !in_range(s->head_size_v, 1) || !in_range(s->offsets[0], 0) ||
      !in_range(s->offsets[1], 0) || !in_range(s->offsets[2], 0))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "num_heads, kv_num_heads, head_size or an offset out of range");
  return OPFORGE_STATUS_OK;
}

Status onnx_load(LoadContext& c) {
  AttentionState* s = new_state<AttentionState>(c);
  if (s == nullptr) return no_memory(c);
  s->onnx = true;
  s->heads = c.attributes->get_int("q_num_heads", 0);
  s->kv_heads = c.attributes->get_int("kv_num_heads", s->heads);
  read_common(*c.attributes, "is_causal", s);
  return OPFORGE_STATUS_OK;
}

// The state with the heads and layouts of this run's shapes; false when they do not fit.
bool resolve(const AttentionState& given, const Tensor* in, AttentionState* s) {
  *s = given;
  if (!given.onnx) return true;
  const Shape &q = in[kQ].shape, &k = in[kK].shape, &v = in[kV].shape;
  if (q.rank != k.rank || q.rank != v.rank || (q.rank != 3 && q.rank != 4)) return false;
  if (q.rank == 4) {
    s->heads = q[1], s->kv_heads = k[1];
    s->head_size = q[3], s->head_size_v = v[3];
  } else {
    if (s->heads < 1 || s->kv_heads < 1 || q[2] % s->heads != 0 || v[2] % s->kv_heads != 0) return false;
    s->head_size = q[2] / s->heads, s->head_size_v = v[2] / s->kv_heads;
    if (k[2] % s->kv_heads != 0 || k[2] / s->kv_heads != s->head_size) return false;
  }
  for (auto& layout : s->layouts) std::memcpy(layout, q.rank == 4 ? "bhsd" : "bshd", 5);
  return s->heads >= 1 && s->kv_heads >= 1 && s->heads % s->kv_heads == 0 && s->head_size >= 1;
}

// Rank 4 tensors have the layout's dimensions; rank 3 ones ("bshd" only) are [batch, rows, width] with the
// heads beginning at `offset` of a row.
bool view_of(const Tensor& t, const char* layout, int64_t heads, int64_t depth, int64_t offset,
             int64_t* batch, int64_t* rows, View* view) {
  const Shape& s = t.shape;
  if (!is_f32(t) || !is_plain(t)) return false;
  view->offset = offset;
  if (s.rank == 3) {
    if (std::strcmp(layout, "bshd") != 0 || offset < 0 || offset > s[2] || heads * depth > s[2] - offset)
      return false;
    *batch = s[0], *rows = s[1];
    view->batch = s[1] * s[2], view->row = s[2], view->head = depth;
    return true;
  }
  if (s.rank != 4 || offset != 0) return false;
  *batch = s[0];
  view->batch = s[1] * s[2] * s[3];
  if (std::strcmp(layout, "bhsd") == 0) {
    *rows = s[2];
    view->head = s[2] * s[3], view->row = s[3];
    return s[1] == heads && s[3] == depth;
  }
  if (std::strcmp(layout, "bshd") == 0) {
    *rows = s[1];
    view->row = s[2] * s[3], view->head = s[3];
    return s[2] == heads && s[3] == depth;
  }
  *rows = s[3];
  view->head = s[2] * s[3], view->row = 1, view->column = s[3];
  return s[1] == heads && s[2] == depth;
}

// Everything that follows from the shapes.
struct Sizes {
  AttentionState s;
  int64_t batch = 0, queries = 0, fresh = 0, past = 0, keys = 0;  // keys = past + fresh
  View q, k, v;
  int64_t mask_keys = 0, mask[4] = {};  // columns of the mask; strides of batch, head, query, key
  bool joined_k = false,
       joined_v = false;  // K and V are copied into one piece: [batch, kv_heads, keys, depth]
  bool step = false;      // few rows share K and V
  int64_t group() const { return s.heads / s.kv_heads; }
  int64_t packed_k() const { return step ? 0 : scratch_floats(s.head_size * padded8(keys)); }
  int64_t packed_v() const { return step ? 0 : scratch_floats(keys * padded8(s.head_size_v)); }
  int64_t cache_k() const { return batch * s.kv_heads * keys * s.head_size; }
  int64_t cache_v() const { return batch * s.kv_heads * keys * s.head_size_v; }
  int64_t per_slot() const {
    if (step) return scratch_floats(group() * queries * (keys + 32));
    return scratch_floats(isa_table().attention_scratch(keys, s.head_size, s.head_size_v));
  }
};

const Tensor* given(const Tensor* t, int32_t n, int32_t k) {
  return k < n && t[k].present() ? &t[k] : nullptr;
}

bool past_fits(const Tensor* t, const Sizes& z, int64_t depth, int64_t* rows) {
  if (t == nullptr) return true;
  *rows = t->shape.rank == 4 ? t->shape[2] : 0;
  return is_f32(*t) && is_plain(*t) && t->shape.rank == 4 && t->shape[0] == z.batch &&
         t->shape[1] == z.s.kv_heads && t->shape[3] == depth;
}

// Null, or what is wrong.
const char* sizes_of(const AttentionState& state, const Tensor* in, int32_t n_in, const Tensor* out,
                     int32_t n_out, Sizes* z) {
  int64_t batch_k = 0, batch_v = 0, fresh_v = 0, past_v = 0;
  AttentionState& s = z->s;
  if (!resolve(state, in, &s) ||
      !view_of(in[kQ], s.layouts[0], s.heads, s.head_size, s.offsets[0], &z->batch, &z->queries, &z->q) ||
      !view_of(in[kK], s.layouts[1], s.kv_heads, s.head_size, s.offsets[1], &batch_k, &z->fresh, &z->k) ||
      !view_of(in[kV], s.layouts[2], s.kv_heads, s.head_size_v, s.offsets[2], &batch_v, &fresh_v, &z->v) ||
      batch_k != z->batch || batch_v != z->batch || fresh_v != z->fresh)
    return "the shapes of Q, K, V do not fit the node's heads and layouts";
  const Tensor *past_k = given(in, n_in, kPastK), *past_value = given(in, n_in, kPastV);
  if ((past_k == nullptr) != (past_value == nullptr) || !past_fits(past_k, *z, s.head_size, &z->past) ||
      !past_fits(past_value, *z, s.head_size_v, &past_v) || past_v != z->past)
    return "past_key and past_value are not f32 [batch, kv heads, past, depth] of the same past";
  z->keys = z->past + z->fresh;
  z->joined_k = past_k != nullptr || given(out, n_out, kPresentK) != nullptr;
  z->joined_v = past_k != nullptr || given(out, n_out, kPresentV) != nullptr;
  if (z->joined_k && z->k.column != 1) return "transposed keys cannot be added to a cache";
  z->step = z->batch > 0 && z->group() * z->queries <= kStepRows && (z->joined_k || z->k.column == 1);
  z->mask_keys = z->keys;
  if (const Tensor* m = given(in, n_in, kMask)) {
    const int64_t dims[4] = {z->batch, s.heads, z->queries, 0};
    const char* wrong = "the mask is not f32 or bool that broadcasts to the scores";
    const Shape& shape = m->shape;
    if ((!is_f32(*m) && m->dtype != DType::kBool) || !is_plain(*m) || shape.rank < 1 || shape.rank > 4)
      return wrong;
    int64_t stride = shape[-1];
    z->mask_keys = shape[-1];
    if (z->mask_keys > z->keys) return wrong;
    z->mask[3] = 1;
    for (int i = 2; i <= shape.rank; ++i) {
      const int64_t d = shape[-i];
      if (d != 1 && d != dims[4 - i]) return wrong;
      z->mask[4 - i] = d == 1 ? 0 : stride;
      stride *= d;
    }
  }
  if (const Tensor* lengths = given(in, n_in, kLengths))
    if ((lengths->dtype != DType::kI64 && lengths->dtype != DType::kI32) ||
        lengths->shape.elements() != z->batch || !is_plain(*lengths) || past_k != nullptr)
      return "nonpad_kv_seqlen is not an integer vector [batch] beside K and V without past";
  return nullptr;
}

void set_shape(Shape* y, int64_t a, int64_t b, int64_t c, int64_t d) {
  y->rank = 4;
  y->dims[0] = a, y->dims[1] = b, y->dims[2] = c, y->dims[3] = d;
}

Status attention_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  Sizes z;
  const char* problem =
      sizes_of(*static_cast<AttentionState*>(c.state), c.inputs, c.n_inputs, c.outputs, c.n_outputs, &z);
  if (problem != nullptr) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "%s", problem);
  const AttentionState& s = z.s;
  Shape& y = c.outputs[kY].shape;
  if (std::strcmp(s.layouts[3], "bshd") != 0) {
    set_shape(&y, z.batch, s.heads, z.queries, s.head_size_v);
  } else {
    set_shape(&y, z.batch, z.queries, s.heads, s.head_size_v);
    if (s.output_rank == 3) y.rank = 3, y.dims[2] = s.heads * s.head_size_v;
  }
  if (c.n_outputs > kPresentK)
    set_shape(&c.outputs[kPresentK].shape, z.batch, s.kv_heads, z.keys, s.head_size);
  if (c.n_outputs > kPresentV)
    set_shape(&c.outputs[kPresentV].shape, z.batch, s.kv_heads, z.keys, s.head_size_v);
  if (c.n_outputs > kScores) set_shape(&c.outputs[kScores].shape, z.batch, s.heads, z.queries, z.keys);
  if (z.batch == 0) return OPFORGE_STATUS_OK;
  int64_t floats = 0;  // sizes multiply without overflow where all dimensions of Q and K are there
  if (z.queries > 0 && z.keys > 0)
    floats = z.batch * s.kv_heads * (z.packed_k() + z.packed_v()) + z.per_slot() * c.max_threads;
  if (z.joined_k && given(c.outputs, c.n_outputs, kPresentK) == nullptr)
    floats += scratch_floats(z.cache_k());
  if (z.joined_v && given(c.outputs, c.n_outputs, kPresentV) == nullptr)
    floats += scratch_floats(z.cache_v());
  c.scratch_bytes = 4 * floats;
  return OPFORGE_STATUS_OK;
}

// Past rows, then fresh ones, of every head; `view` becomes that of the result.
const float* join(RunContext& c, const Sizes& z, const Tensor* past, const float* fresh, int64_t depth,
                  float* to, View* view) {
  const View from = *view;
  if (z.keys == 0 || depth == 0) return to;
  const int64_t pairs = z.batch * z.s.kv_heads;
  c.parallel(pairs, greater<int64_t>(1, 65536 / greater<int64_t>(1, z.keys * depth)),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 float* rows = to + i * z.keys * depth;
                 if (z.past > 0)
                   std::memcpy(rows, past->as<float>() + i * z.past * depth, sizeof(float) * z.past * depth);
                 const float* x =
                     fresh + from.offset + i / z.s.kv_heads * from.batch + i % z.s.kv_heads * from.head;
                 for (int64_t r = 0; r < z.fresh; ++r)
                   std::memcpy(rows + (z.past + r) * depth, x + r * from.row, sizeof(float) * depth);
               }
             });
  view->batch = z.s.kv_heads * z.keys * depth, view->head = z.keys * depth;
  view->row = depth, view->column = 1, view->offset = 0;
  return to;
}

// Keys that batch b has at all.
int64_t length_of(const Tensor* lengths, const Sizes& z, int64_t b) {
  if (lengths == nullptr) return z.keys;
  const int64_t n = lengths->dtype == DType::kI64 ? lengths->as<int64_t>()[b] : lengths->as<int32_t>()[b];
  return greater<int64_t>(0, lesser(z.keys, n));
}

// Arguments for the head h of batch b; with the strides of heads, the heads from h on as well.
AttentionArgs arguments(RunContext& c, const Sizes& z, int64_t b, int64_t h) {
  const AttentionState& s = z.s;
  AttentionArgs a{};
  a.queries = z.queries;
  a.q = c.inputs[kQ].as<float>() + z.q.offset + b * z.q.batch + h * z.q.head;
  a.q_row = z.q.row, a.q_head = z.q.head;
  if (const Tensor* mask = given(c.inputs, c.n_inputs, kMask)) {
    const int64_t at = b * z.mask[0] + h * z.mask[1];
    if (is_f32(*mask))
      a.mask = mask->as<float>() + at;
    else
      a.mask_bits = mask->as<uint8_t>() + at;
    a.mask_head = z.mask[1], a.mask_row = z.mask[2], a.mask_column = z.mask[3];
  }
  const bool rows_first = std::strcmp(s.layouts[3], "bshd") == 0;
  a.out_row = rows_first ? s.heads * s.head_size_v : s.head_size_v;
  a.out_head = rows_first ? s.head_size_v : z.queries * s.head_size_v;
  a.out = c.outputs[kY].as<float>() + b * s.heads * z.queries * s.head_size_v + h * a.out_head;
  if (const Tensor* scores = given(c.outputs, c.n_outputs, kScores)) {
    a.scores_head = z.queries * z.keys, a.scores_row = z.keys;
    a.scores = scores->as<float>() + (b * s.heads + h) * a.scores_head;
    a.scores_mode = s.scores_mode;
  }
  const Tensor* lengths = given(c.inputs, c.n_inputs, kLengths);
  const int64_t length = length_of(lengths, z, b);
  a.keys = z.keys, a.depth = s.head_size, a.depth_v = s.head_size_v;
  a.seen = lesser(length, z.mask_keys);
  a.offset = lengths != nullptr ? length - z.queries : z.past;
  a.left = s.left, a.right = s.right;
  a.scale = s.scale != 0 ? s.scale : 1.0f / __builtin_sqrtf(static_cast<float>(s.head_size));
  a.softcap = s.softcap;
  a.nan_rows = s.nan_rows;
  return a;
}

Status attention_run(RunContext& c) {
  Sizes z;
  sizes_of(*static_cast<AttentionState*>(c.state), c.inputs, c.n_inputs, c.outputs, c.n_outputs, &z);
  const AttentionState& s = z.s;
  const IsaTable& isa = isa_table();
  float* memory = static_cast<float*>(c.scratch);
  const auto take = [&](int64_t floats) {
    float* at = memory;
    memory += scratch_floats(floats);
    return at;
  };
  const auto present = [&](int32_t k, int64_t floats) {
    const Tensor* t = given(c.outputs, c.n_outputs, k);
    return t != nullptr ? t->as<float>() : take(floats);
  };
  const float *k = c.inputs[kK].as<float>(), *v = c.inputs[kV].as<float>();
  if (z.batch == 0) return OPFORGE_STATUS_OK;
  if (z.joined_k)
    k = join(c, z, given(c.inputs, c.n_inputs, kPastK), k, s.head_size, present(kPresentK, z.cache_k()),
             &z.k);
  if (z.joined_v)
    v = join(c, z, given(c.inputs, c.n_inputs, kPastV), v, s.head_size_v, present(kPresentV, z.cache_v()),
             &z.v);
  if (z.queries == 0) return OPFORGE_STATUS_OK;
  if (z.keys == 0) {
    std::memset(c.outputs[kY].data, 0, sizeof(float) * c.outputs[kY].shape.elements());
    return OPFORGE_STATUS_OK;
  }
  const int64_t pairs = z.batch * s.kv_heads;
  const auto k_of = [&](int64_t pair) {
    return k + z.k.offset + pair / s.kv_heads * z.k.batch + pair % s.kv_heads * z.k.head;
  };
  const auto v_of = [&](int64_t pair) {
    return v + z.v.offset + pair / s.kv_heads * z.v.batch + pair % s.kv_heads * z.v.head;
  };
  if (z.step) {
    float* slots = memory;
    for_units(c, pairs, [&](int64_t slot, int64_t pair) {
      AttentionArgs a = arguments(c, z, pair / s.kv_heads, pair % s.kv_heads * z.group());
      a.k = k_of(pair), a.k_row = z.k.row;
      a.v = v_of(pair), a.v_row = z.v.row;
      isa.attention_step(a, slots + slot * z.per_slot(), z.group() * z.queries);
    });
    return OPFORGE_STATUS_OK;
  }
  const int64_t k_floats = z.packed_k(), v_floats = z.packed_v();
  float* k_packed = memory;
  float* v_packed = k_packed + pairs * k_floats;
  float* slots = v_packed + pairs * v_floats;
  for_units(c, pairs, [&](int64_t, int64_t i) {  // K^T is [depth, keys]
    isa.pack_b(k_of(i), z.k.column, z.k.row, s.head_size, z.keys, k_packed + i * k_floats, 0,
               blocks16(z.keys));
    isa.pack_b(v_of(i), z.v.row, 1, z.keys, s.head_size_v, v_packed + i * v_floats, 0,
               blocks16(s.head_size_v));
  });
  const int64_t rows = isa.attention_rows(), units = ceil_div(z.queries, rows);
  for_units(c, z.batch * s.heads * units, [&](int64_t slot, int64_t unit) {
    const int64_t piece = unit % units, h = unit / units % s.heads, b = unit / units / s.heads;
    const int64_t pair = b * s.kv_heads + h / z.group();
    AttentionArgs a = arguments(c, z, b, h);
    a.k_packed = k_packed + pair * k_floats;
    a.v_packed = v_packed + pair * v_floats;
    isa.attention(a, slots + slot * z.per_slot(), piece * rows, lesser(z.queries, piece * rows + rows));
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "Attention", 1, 1, attention_load, attention_infer, attention_run, 0, 3, kMany, 4},
    {"", "Attention", 23, kNewest, onnx_load, attention_infer, attention_run, 0, 3, 7, 4},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(attention, opforge::kRows);
