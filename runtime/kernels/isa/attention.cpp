// attention.cpp: softmax(Q K^T * scale + mask) V for a few query rows of one head at a time: the scores of
// these rows are the only ones in memory.
#include "kernels/isa/functions.h"
#include "kernels/isa/softmax.h"
#include "kernels/isa/tile.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

constexpr int64_t kRows = 2 * tile_rows(kWidth == 16 ? 2 : 1, false);
OPFORGE_INLINE int64_t padded_keys(int64_t keys) { return (keys + 15) / 16 * 16; }

}  // namespace

int64_t attention_rows() { return kRows; }

int64_t attention_scratch(int64_t keys, int64_t depth, int64_t depth_v) {
  (void)depth_v;
  return kRows * padded_keys(keys) + matmul_panel_floats(kRows, most(keys, depth)) + 32;
}

void attention(const AttentionArgs& a, float* scratch, int64_t row0, int64_t row1) {
  using V = Vec<kWidth>;
  const int64_t stride = padded_keys(a.keys);
  float* scores = scratch;
  float* panel = scratch + kRows * stride;
  for (int64_t r0 = row0; r0 < row1; r0 += kRows) {
    const int64_t rows = least(kRows, row1 - r0);
    // Keys that any of these rows sees.
    const int64_t seen = a.causal ? most(0, least(a.keys, r0 + rows + a.causal_offset)) : a.keys;
    MatmulArgs g{};
    g.a = a.q + r0 * a.q_row, g.a_row = a.q_row, g.a_column = 1;
    g.b = a.k_packed;
    g.c = scores, g.c_row = stride;
    g.m = rows, g.n = a.keys, g.k = a.depth;
    pack_a(g, panel, 0, rows);
    matmul(g, panel, 0, rows, 0, seen);
    for (int64_t r = 0; r < rows; ++r) {
      float* s = scores + r * stride;
      const int64_t n = a.causal ? most(0, least(a.keys, r0 + r + 1 + a.causal_offset)) : a.keys;
      const float* mask = a.mask != nullptr ? a.mask + (r0 + r) * a.mask_row : nullptr;
      const V scale = splat<kWidth>(a.scale);
      int64_t i = 0;
      if (mask == nullptr) {
        for (; i + kWidth <= n; i += kWidth) store<kWidth>(s + i, load<kWidth>(s + i) * scale);
        for (; i < n; ++i) s[i] *= a.scale;
      } else if (a.mask_column == 1) {
        for (; i + kWidth <= n; i += kWidth)
          store<kWidth>(s + i, vfma<kWidth>(load<kWidth>(s + i), scale, load<kWidth>(mask + i)));
        for (; i < n; ++i) s[i] = sfma(s[i], a.scale, mask[i]);
      } else {
        for (; i < n; ++i) s[i] = sfma(s[i], a.scale, mask[0]);
      }
      if (n > 0)
        softmax_row(s, s, n, seen);
      else
        std::memset(s, 0, sizeof(float) * seen);
    }
    g.a = scores, g.a_row = stride;
    g.b = a.v_packed;
    g.c = a.out + r0 * a.out_row, g.c_row = a.out_row;
    g.n = a.depth_v, g.k = a.keys;
    for (int64_t r = 0; seen < a.keys && r < rows; ++r)
      std::memset(scores + r * stride + seen, 0, sizeof(float) * (a.keys - seen));
    pack_a(g, panel, 0, rows);
    matmul(g, panel, 0, rows, 0, a.depth_v);
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
