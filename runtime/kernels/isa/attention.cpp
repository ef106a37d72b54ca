// attention.cpp: softmax(Q K^T * scale + mask) V for a few query rows at a time: the scores of these rows are
// the only ones in memory. Two forms: many rows of one head against K and V packed for products, and the few
// rows of a decoder's step (with all heads that share K and V) against K and V as they lie.
#include "kernels/isa/functions.h"
#include "kernels/isa/softmax.h"
#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

using V = Vec<kWidth>;

constexpr int64_t kRows = 2 * tile_rows(kWidth == 16 ? 2 : 1, false);
constexpr int64_t kStepKeys = 32;  // keys that stay in the first cache while all rows read them
OPFORGE_INLINE int64_t padded_keys(int64_t keys) { return (keys + 15) / 16 * 16; }

// Row r of the arguments: query r % queries of head r / queries.
struct Row {
  int64_t head, query;
  int64_t first, end;  // keys that it sees, but for the mask
  Row(const AttentionArgs& a, int64_t r) : head(r / a.queries), query(r % a.queries) {
    const int64_t at = query + a.offset;
    end = most(0, least(a.seen, a.right >= 0 ? at + a.right + 1 : a.seen));
    first = a.left >= 0 ? least(end, most(0, at - a.left)) : 0;
  }
};

template <class F>
OPFORGE_INLINE void each(float* s, int64_t begin, int64_t end, F&& f) {
  int64_t i = begin;
  for (; i + kWidth <= end; i += kWidth) store<kWidth>(s + i, f(load<kWidth>(s + i), i));
  if (i < end) {
    float t[kWidth] = {};
    for (int64_t k = i; k < end; ++k) t[k - i] = s[k];
    store<kWidth>(t, f(load<kWidth>(t), i));
    for (int64_t k = i; k < end; ++k) s[k] = t[k - i];
  }
}

void add_mask(const AttentionArgs& a, const Row& row, float* s, bool scaled) {
  const int64_t at = row.head * a.mask_head + row.query * a.mask_row;
  const float scale = scaled ? 1.0f : a.scale;
  if (a.mask_bits != nullptr) {
    const uint8_t* mask = a.mask_bits + at;
    for (int64_t i = row.first; i < row.end; ++i)
      s[i] = mask[i * a.mask_column] != 0 ? s[i] * scale : -__builtin_inff();
    return;
  }
  const float* mask = a.mask + at;
  int64_t i = row.first;
  if (a.mask_column == 1)
    for (; i + kWidth <= row.end; i += kWidth)
      store<kWidth>(s + i, vfma<kWidth>(load<kWidth>(s + i), splat<kWidth>(scale), load<kWidth>(mask + i)));
  for (; i < row.end; ++i) s[i] = sfma(s[i], scale, mask[i * a.mask_column]);
}

// Whether the mask alone hides every key: then the row is 0 whatever its scores are.
bool hidden(const AttentionArgs& a, const Row& row) {
  const int64_t at = row.head * a.mask_head + row.query * a.mask_row;
  if (a.mask == nullptr && a.mask_bits == nullptr) return false;
  for (int64_t i = row.first; i < row.end; ++i)
    if (a.mask_bits != nullptr ? a.mask_bits[at + i * a.mask_column] != 0
                               : a.mask[at + i * a.mask_column] != -__builtin_inff())
      return false;
  return true;
}

void copy_scores(const AttentionArgs& a, const Row& row, const float* s) {
  std::memcpy(a.scores + row.head * a.scores_head + row.query * a.scores_row, s, sizeof(float) * a.keys);
}

// A row whose keys are all masked is 0, not NaN, unless that is asked for.
void probabilities(const AttentionArgs& a, const Row& row, float* s, int64_t n) {
  const float top = greatest(s, n);
  bool nothing = top == -__builtin_inff();
  for (int64_t i = 0; nothing && i < n; ++i) nothing = s[i] == s[i];
  if (a.nan_rows != 0) nothing = false;
  if (!nothing && (softmax_row(s, s, n, n, top) > 0 || a.nan_rows != 0 || !hidden(a, row))) return;
  std::memset(s, 0, sizeof(float) * n);
}

// Products to probabilities in place. [begin, end) has the columns that the next product reads.
void finish_row(const AttentionArgs& a, int64_t r, float* s, int64_t begin, int64_t end) {
  const Row row(a, r);
  const int64_t n = row.end - row.first;
  const bool masked = a.mask != nullptr || a.mask_bits != nullptr;
  const V scale = splat<kWidth>(a.scale);
  const int mode = a.scores != nullptr ? a.scores_mode : -1;
  const bool scaled = !masked || a.softcap != 0 || mode == 0 || mode == 1;
  if (scaled)
    each(s, mode >= 0 ? 0 : row.first, mode >= 0 ? a.keys : row.end,
         [&](V x, int64_t) { return V(x * scale); });
  if (mode == 0) copy_scores(a, row, s);
  if (a.softcap != 0) {
    const V cap = splat<kWidth>(a.softcap);
    each(s, mode >= 0 ? 0 : row.first, mode >= 0 ? a.keys : row.end,
         [&](V x, int64_t) { return V(cap * vm::raw::tanh(V(x / cap))); });
  }
  if (mode == 1) copy_scores(a, row, s);
  if (masked) add_mask(a, row, s, scaled);
  if (mode == 2) {
    for (int64_t i = 0; i < a.keys; ++i) s[i] = i < row.first || i >= row.end ? -__builtin_inff() : s[i];
    copy_scores(a, row, s);
  }
  if (n > 0) probabilities(a, row, s + row.first, n);
  if (mode == 3) begin = 0, end = a.keys;
  if (begin < row.first) std::memset(s + begin, 0, sizeof(float) * (row.first - begin));
  if (row.end < end) std::memset(s + row.end, 0, sizeof(float) * (end - row.end));
  if (mode == 3) copy_scores(a, row, s);
}

// The sum of sixteen lanes: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
template <int L>
OPFORGE_INLINE float sum_lanes(const Vec<L>* v) {
  Vec<4> four;
  if constexpr (L == 4) {
    four = (v[0] + v[2]) + (v[1] + v[3]);
  } else {
    Vec<8> eight;
    if constexpr (L == 16)
      eight = __builtin_shufflevector(v[0], v[0], 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(v[0], v[0], 8, 9, 10, 11, 12, 13, 14, 15);
    else
      eight = v[0] + v[1];
    four =
        __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  }
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Scores of neighbouring keys for one query row: dot products in sixteen lanes.
void dots(const float* q, const float* k, int64_t k_row, int64_t keys, int64_t depth, float* s) {
  for (int64_t j = 0; j < keys; ++j) {
    Lanes sum{};
    const float* row = k + j * k_row;
    const auto add = [&](const Lanes& a, const Lanes& b) {
      OPFORGE_UNROLL
      for (int p = 0; p < kParts; ++p) sum.v[p] = vfma<kWidth>(a.v[p], b.v[p], sum.v[p]);
    };
    int64_t i = 0;
    for (; i + 16 <= depth; i += 16) add(load16(q + i), load16(row + i));
    if (i < depth) add(load_some(q + i, depth - i, 0), load_some(row + i, depth - i, 0));
    s[j] = sum_lanes<kWidth>(sum.v);
  }
}

// out[d] += sum over keys of p[j] * v[j][d] for a few vectors of columns: one chain per element over all
// calls.
template <int kVectors>
OPFORGE_INLINE void weigh(const float* p, const float* v, int64_t v_row, int64_t keys, float* out) {
  V sum[kVectors];
  OPFORGE_UNROLL
  for (int i = 0; i < kVectors; ++i) sum[i] = load<kWidth>(out + i * kWidth);
  for (int64_t j = 0; j < keys; ++j) {
    const V x = splat<kWidth>(p[j]);
    OPFORGE_UNROLL
    for (int i = 0; i < kVectors; ++i)
      sum[i] = vfma<kWidth>(x, load<kWidth>(v + j * v_row + i * kWidth), sum[i]);
  }
  OPFORGE_UNROLL
  for (int i = 0; i < kVectors; ++i) store<kWidth>(out + i * kWidth, sum[i]);
}

}  // namespace

int64_t attention_rows() { return kRows; }

int64_t attention_scratch(int64_t keys, int64_t depth, int64_t depth_v) {
  (void)depth_v;
  return kRows * padded_keys(keys) + matmul_panel_floats(kRows, most(keys, depth)) + 32;
}

void attention(const AttentionArgs& a, float* scratch, int64_t row0, int64_t row1) {
  const int64_t stride = padded_keys(a.keys);
  float* scores = scratch;
  float* panel = scratch + kRows * stride;
  for (int64_t r0 = row0; r0 < row1; r0 += kRows) {
    const int64_t rows = least(kRows, row1 - r0);
    const Row first(a, r0), last(a, r0 + rows - 1);
    const bool all = a.scores != nullptr;  // the scores are a result as well
    const int64_t begin = all ? 0 : least(first.first, last.first) / 16 * 16, end = all ? a.keys : last.end;
    MatmulArgs g{};
    g.a = a.q + first.head * a.q_head + first.query * a.q_row, g.a_row = a.q_row, g.a_column = 1;
    g.b = a.k_packed;
    g.c = scores, g.c_row = stride;
    g.m = rows, g.n = a.keys, g.k = a.depth;
    pack_a(g, panel, 0, rows);
    matmul(g, panel, 0, rows, begin, end);
    for (int64_t r = 0; r < rows; ++r) finish_row(a, r0 + r, scores + r * stride, begin, end);
    g.a = scores + begin, g.a_row = stride;
    g.b = a.v_packed, g.b_rows = a.keys, g.b_first = begin;
    g.c = a.out + first.head * a.out_head + first.query * a.out_row, g.c_row = a.out_row;
    g.n = a.depth_v, g.k = most(0, end - begin);
    pack_a(g, panel, 0, rows);
    matmul(g, panel, 0, rows, 0, a.depth_v);
  }
}

void attention_step(const AttentionArgs& a, float* scratch, int64_t rows) {
  const int64_t stride = padded_keys(a.keys);
  int64_t begin = a.keys, end = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(a, r);
    begin = least(begin, row.first), end = most(end, row.end);
  }
  if (a.scores != nullptr) begin = 0, end = a.keys;
  for (int64_t j = begin; j < end; j += kStepKeys)
    for (int64_t r = 0; r < rows; ++r) {
      const Row row(a, r);
      dots(a.q + row.head * a.q_head + row.query * a.q_row, a.k + j * a.k_row, a.k_row,
           least(kStepKeys, end - j), a.depth, scratch + r * stride + j);
    }
  for (int64_t r = 0; r < rows; ++r) finish_row(a, r, scratch + r * stride, begin, most(begin, end));
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(a, r);
    std::memset(a.out + row.head * a.out_head + row.query * a.out_row, 0, sizeof(float) * a.depth_v);
  }
  constexpr int kMany = 64 / kWidth;
  for (int64_t j = begin; j < end; j += kStepKeys) {
    const int64_t keys = least(kStepKeys, end - j);
    const float* v = a.v + j * a.v_row;
    for (int64_t r = 0; r < rows; ++r) {
      const Row row(a, r);
      const float* p = scratch + r * stride + j;
      float* out = a.out + row.head * a.out_head + row.query * a.out_row;
      int64_t d = 0;
      for (; d + 64 <= a.depth_v; d += 64) weigh<kMany>(p, v + d, a.v_row, keys, out + d);
      for (; d + kWidth <= a.depth_v; d += kWidth) weigh<1>(p, v + d, a.v_row, keys, out + d);
      for (; d < a.depth_v; ++d)
        for (int64_t i = 0; i < keys; ++i) out[d] = sfma(p[i], v[i * a.v_row + d], out[d]);
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
