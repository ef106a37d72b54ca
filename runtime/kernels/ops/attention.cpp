// attention.cpp: opforge::Attention: softmax(Q K^T * scale + mask) V with transposes absorbed into strides. K
// and V are packed once per head; scores exist for a few query rows at a time (docs/design/runtime.md).
#include "kernels/common.h"
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

// Where (batch, head, row, column) of an operand lies, in elements.
struct View {
  int64_t batch = 0, head = 0, row = 0, column = 1, offset = 0;
};

struct AttentionState {
  int64_t heads = 0, kv_heads = 0, head_size = 0, head_size_v = 0;
  int64_t offsets[3] = {};
  char layouts[4][8] = {};  // q, k, v, output: "bhsd", "bshd", "bhds" (k only)
  float scale = 0;
  bool causal = false;
  bool onnx = false;  // heads and layouts follow from the ranks
};

bool read_layout(const Attributes& a, const char* name, bool transposed_allowed, char* to) {
  const StringView v = a.get_string(name, "bhsd");
  if (!equals(v, "bhsd") && !equals(v, "bshd") && !(transposed_allowed && equals(v, "bhds"))) return false;
  std::memcpy(to, v.data, 4);
  to[4] = 0;
  return true;
}

Status attention_load(LoadContext& c) {
  AttentionState* s = new_state<AttentionState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  s->heads = a.get_int("num_heads", 0);
  s->kv_heads = a.get_int("kv_num_heads", s->heads);
  s->head_size = a.get_int("head_size", 0);
  s->head_size_v = a.get_int("head_size_v", s->head_size);
  s->scale = static_cast<float>(a.get_float("scale", 0));
  s->causal = a.get_int("causal", 0) != 0;
  s->offsets[0] = a.get_int("q_offset", 0);
  s->offsets[1] = a.get_int("k_offset", 0);
  s->offsets[2] = a.get_int("v_offset", 0);
  if (!read_layout(a, "q_layout", false, s->layouts[0]) || !read_layout(a, "k_layout", true, s->layouts[1]) ||
      !read_layout(a, "v_layout", false, s->layouts[2]) || !read_layout(a, "o_layout", false, s->layouts[3]))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "a layout is none of bhsd, bshd, bhds (k only)");
  if (s->heads < 1 || s->kv_heads < 1 || s->heads % s->kv_heads != 0 || s->head_size < 1 ||
      s->head_size_v < 1)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "num_heads, kv_num_heads or head_size out of range");
  return OPFORGE_STATUS_OK;
}

Status onnx_load(LoadContext& c) {
  AttentionState* s = new_state<AttentionState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  s->onnx = true;
  s->heads = a.get_int("q_num_heads", 0);
  s->kv_heads = a.get_int("kv_num_heads", s->heads);
  s->scale = static_cast<float>(a.get_float("scale", 0));
  s->causal = a.get_int("is_causal", 0) != 0;
  for (int i = 4; i < c.n_inputs; ++i)
    if (c.inputs[i].present())
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED,
                    "Attention with past keys or padded lengths has no kernel");
  if (a.get_float("softcap", 0) != 0 || c.n_outputs > 1)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED,
                  "Attention with softcap or more than one output has no kernel");
  return OPFORGE_STATUS_OK;
}

// The state with the heads and layouts of this run's shapes; false when they do not fit.
bool resolve(const AttentionState& given, const Tensor* in, AttentionState* s) {
  *s = given;
  if (!given.onnx) return true;
  const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
  if (q.rank != k.rank || q.rank != v.rank || (q.rank != 3 && q.rank != 4)) return false;
  if (q.rank == 4) {
    s->heads = q[1], s->kv_heads = k[1];
    s->head_size = q[3], s->head_size_v = v[3];
  } else {
    if (s->heads < 1 || s->kv_heads < 1 || q[2] % s->heads != 0 || v[2] % s->kv_heads != 0) return false;
    s->head_size = q[2] / s->heads, s->head_size_v = v[2] / s->kv_heads;
    if (k[2] != s->kv_heads * s->head_size) return false;
  }
  for (auto& layout : s->layouts) std::memcpy(layout, q.rank == 4 ? "bhsd" : "bshd", 5);
  return s->heads >= 1 && s->kv_heads >= 1 && s->heads % s->kv_heads == 0 && s->head_size >= 1;
}

struct Sizes {
  int64_t batch, queries, keys;
  View q, k, v, out;
};

// Rank 4 tensors have the layout's dimensions; rank 3 ones ("bshd" only) are [batch, rows, width] with the
// heads beginning at `offset` of a row.
bool view_of(const Tensor& t, const char* layout, int64_t heads, int64_t depth, int64_t offset,
             int64_t* batch, int64_t* rows, View* view) {
  const Shape& s = t.shape;
  if (!is_f32(t) || !is_plain(t)) return false;
  view->offset = offset;
  if (s.rank == 3) {
    if (std::strcmp(layout, "bshd") != 0 || offset < 0 || offset + heads * depth > s[2]) return false;
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

bool sizes_of(const AttentionState& s, const Tensor* in, Sizes* z) {
  int64_t batch_k, batch_v, keys_v;
  return view_of(in[0], s.layouts[0], s.heads, s.head_size, s.offsets[0], &z->batch, &z->queries, &z->q) &&
         view_of(in[1], s.layouts[1], s.kv_heads, s.head_size, s.offsets[1], &batch_k, &z->keys, &z->k) &&
         view_of(in[2], s.layouts[2], s.kv_heads, s.head_size_v, s.offsets[2], &batch_v, &keys_v, &z->v) &&
         batch_k == z->batch && batch_v == z->batch && keys_v == z->keys;
}

// The mask broadcast to [batch, heads, queries, keys]: strides in elements, or false.
bool mask_strides(const Shape& m, const int64_t* dims, int64_t* strides) {
  if (m.rank > 4) return false;
  int64_t stride = 1;
  for (int i = 1; i <= 4; ++i) {
    const int64_t d = i <= m.rank ? m[-i] : 1;
    if (d != 1 && d != dims[4 - i]) return false;
    strides[4 - i] = d == 1 ? 0 : stride;
    stride *= d;
  }
  return true;
}

int64_t packed_k(const AttentionState& s, const Sizes& z) {
  return scratch_floats(s.head_size * padded8(z.keys));
}
int64_t packed_v(const AttentionState& s, const Sizes& z) {
  return scratch_floats(z.keys * padded8(s.head_size_v));
}
int64_t per_slot(const AttentionState& s, const Sizes& z) {
  return scratch_floats(isa_table().attention_scratch(z.keys, s.head_size, s.head_size_v));
}
bool has_mask(int32_t n, const Tensor* in) { return n > 3 && in[3].present(); }
bool bool_mask(int32_t n, const Tensor* in) { return has_mask(n, in) && in[3].dtype == DType::kBool; }

Status attention_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  AttentionState s;
  Sizes z;
  if (c.n_inputs < 3 || !resolve(*static_cast<AttentionState*>(c.state), c.inputs, &s) ||
      !sizes_of(s, c.inputs, &z))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the shapes of Q, K, V do not fit the node's heads and layouts");
  if (has_mask(c.n_inputs, c.inputs)) {
    const int64_t dims[4] = {z.batch, s.heads, z.queries, z.keys};
    int64_t strides[4];
    const bool good = is_f32(c.inputs[3]) || c.inputs[3].dtype == DType::kBool;
    if (!good || !mask_strides(c.inputs[3].shape, dims, strides))
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "the mask is not f32 or bool that broadcasts to the scores");
  }
  Shape& y = c.outputs[0].shape;
  const bool rows_first = std::strcmp(s.layouts[3], "bshd") == 0;
  if (rows_first && c.attributes->get_int("o_rank", 3) == 3) {
    y.rank = 3;
    y.dims[0] = z.batch, y.dims[1] = z.queries, y.dims[2] = s.heads * s.head_size_v;
  } else {
    y.rank = 4;
    y.dims[0] = z.batch, y.dims[3] = s.head_size_v;
    y.dims[1] = rows_first ? z.queries : s.heads;
    y.dims[2] = rows_first ? s.heads : z.queries;
  }
  int64_t floats = z.batch * s.kv_heads * (packed_k(s, z) + packed_v(s, z)) + per_slot(s, z) * c.max_threads;
  if (bool_mask(c.n_inputs, c.inputs)) floats += scratch_floats(c.inputs[3].shape.elements());
  c.scratch_bytes = 4 * floats;
  return OPFORGE_STATUS_OK;
}

Status attention_run(RunContext& c) {
  AttentionState s;
  resolve(*static_cast<AttentionState*>(c.state), c.inputs, &s);
  const IsaTable& isa = isa_table();
  Sizes z;
  sizes_of(s, c.inputs, &z);
  if (z.batch == 0 || z.queries == 0) return OPFORGE_STATUS_OK;
  if (z.keys == 0) {
    std::memset(c.outputs[0].data, 0, 4 * c.outputs[0].shape.elements());
    return OPFORGE_STATUS_OK;
  }
  const float *q = c.inputs[0].as<float>(), *k = c.inputs[1].as<float>(), *v = c.inputs[2].as<float>();
  const int64_t pairs = z.batch * s.kv_heads, k_floats = packed_k(s, z), v_floats = packed_v(s, z);
  float* k_packed = static_cast<float*>(c.scratch);
  float* v_packed = k_packed + pairs * k_floats;
  float* slots = v_packed + pairs * v_floats;
  const float* mask = has_mask(c.n_inputs, c.inputs) ? c.inputs[3].as<float>() : nullptr;
  int64_t mask_stride[4] = {};
  if (mask != nullptr) {
    const int64_t dims[4] = {z.batch, s.heads, z.queries, z.keys};
    mask_strides(c.inputs[3].shape, dims, mask_stride);
  }
  if (bool_mask(c.n_inputs, c.inputs)) {  // false = not seen
    float* additive = slots + per_slot(s, z) * c.threads;
    const uint8_t* from = c.inputs[3].as<uint8_t>();
    const int64_t n = c.inputs[3].shape.elements();
    for (int64_t i = 0; i < n; ++i) additive[i] = from[i] ? 0.0f : -__builtin_inff();
    mask = additive;
  }
  for_units(c, pairs, [&](int64_t, int64_t i) {
    const int64_t b = i / s.kv_heads, h = i % s.kv_heads;
    // K^T is [depth, keys].
    isa.pack_b(k + z.k.offset + b * z.k.batch + h * z.k.head, z.k.column, z.k.row, s.head_size, z.keys,
               k_packed + i * k_floats, 0, blocks16(z.keys));
    isa.pack_b(v + z.v.offset + b * z.v.batch + h * z.v.head, z.v.row, 1, z.keys, s.head_size_v,
               v_packed + i * v_floats, 0, blocks16(s.head_size_v));
  });
  const Shape& y = c.outputs[0].shape;
  const bool rows_first = std::strcmp(s.layouts[3], "bshd") == 0;
  const int64_t out_row = rows_first ? s.heads * s.head_size_v : s.head_size_v;
  const int64_t out_head = rows_first ? s.head_size_v : z.queries * s.head_size_v;
  const int64_t rows = isa.attention_rows(), units = ceil_div(z.queries, rows);
  for_units(c, z.batch * s.heads * units, [&](int64_t slot, int64_t unit) {
    const int64_t piece = unit % units, h = unit / units % s.heads, b = unit / units / s.heads;
    const int64_t pair = b * s.kv_heads + h / (s.heads / s.kv_heads);
    AttentionArgs a{};
    a.q = q + z.q.offset + b * z.q.batch + h * z.q.head;
    a.q_row = z.q.row;
    a.k_packed = k_packed + pair * k_floats;
    a.v_packed = v_packed + pair * v_floats;
    a.mask = mask == nullptr ? nullptr : mask + b * mask_stride[0] + h * mask_stride[1];
    a.mask_row = mask_stride[2], a.mask_column = mask_stride[3];
    a.out = c.outputs[0].as<float>() + b * (y.elements() / z.batch) + h * out_head;
    a.out_row = out_row;
    a.keys = z.keys, a.depth = s.head_size, a.depth_v = s.head_size_v;
    a.causal = s.causal, a.causal_offset = 0;
    a.scale = s.scale != 0 ? s.scale : 1.0f / __builtin_sqrtf(static_cast<float>(s.head_size));
    isa.attention(a, slots + slot * per_slot(s, z), piece * rows, lesser(z.queries, piece * rows + rows));
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "Attention", 1, 1, attention_load, attention_infer, attention_run, 0, 3},
    {"", "Attention", 23, kNewest, onnx_load, attention_infer, attention_run, 0, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(attention, opforge::kRows);
