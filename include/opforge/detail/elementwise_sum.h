// elementwise_sum.h: outputs that are summed to an input's shape, in the one order that
// docs/design/bytecode.md prescribes: element e of the reduced space belongs to block e / 4096 and lane e %
// 16; lanes run over e ascending, combine as a balanced tree, and blocks combine from left to right. The
// identity is -0, so that a sum of one element is that element; a sum of none is +0.
#pragma once

#include "opforge/detail/elementwise_tile.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace elementwise {

// One pass over the data sums all outputs that are reduced over the same dimensions.
struct Reduction {
  const Call* call;
  uint32_t group, summed;  // outputs that this pass computes; those of them that it sums
  uint32_t pattern;        // bit d: dimension d is reduced
  Space kept, reduced;
  int64_t blocks;
  bool across;    // tiles run along the kept dimensions instead of the reduced ones
  int64_t tile;   // kept elements per item when across
  char* partial;  // [summed output][kept][blocks] in the compute type, when blocks > 1
};

inline int tile_width(const Call& call) { return call.formula->storage == Storage::kF64 ? 8 : 4; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Lanes from `active` on hold nothing; adding the identity would not change a bit.
template <class C>
inline C combine_lanes(C* lane, int64_t stride, int64_t active) {
  for (int h = kSumLanes / 2; h > 0; h /= 2) {
    for (int l = 0; l < h && l + h < active; ++l) lane[l * stride] += lane[(l + h) * stride];
    if (active > h) active = h;
  }
  return lane[0];
}

template <class C>
struct Summing {
  static constexpr int64_t kAcrossBytes = 64 * 1024;  // lanes of all summed outputs together
  static constexpr int64_t across_tile(int n_summed) {
    const int64_t fits = kAcrossBytes / (n_summed * kSumLanes * int64_t(sizeof(C)));
    return fits < 1024 / int64_t(sizeof(C)) ? fits : 1024 / int64_t(sizeof(C));
  }
  struct Along {
    const Reduction* r;
    C lane[kMaxOutputs][kSumLanes];
  };
  struct Across {
    const Reduction* r;
    int64_t first;  // kept element of lane column 0
    int lane;
    alignas(64) C lanes[kAcrossBytes / sizeof(C)];  // [summed output][lane][kept element]
    C* sum(int k, int64_t l) { return lanes + (summed_index(*r, k) * kSumLanes + l) * r->tile; }
  };

  static void add_along(void* user, void* const* out, int64_t at, int64_t n) {
    Along& a = *static_cast<Along*>(user);
    const int n_out = a.r->call->formula->n_outputs;
    for (int k = 0; k < n_out; ++k) {
      if (!(a.r->summed >> k & 1)) continue;
      const C* x = static_cast<const C*>(out[k]);
      C* lane = a.lane[k];
      int64_t i = 0;
      for (; i < n && (at + i) % kSumLanes; ++i) lane[(at + i) % kSumLanes] += x[i];
      using V = Vec<C, 4>;
      V sum[kSumLanes / 4];
      for (int l = 0; l < kSumLanes / 4; ++l) sum[l] = load<V>(lane + 4 * l);
      for (; i + kSumLanes <= n; i += kSumLanes) {
        for (int l = 0; l < kSumLanes / 4; ++l) sum[l] = add(sum[l], load<V>(x + i + 4 * l));
      }
      for (int l = 0; l < kSumLanes / 4; ++l) store(lane + 4 * l, sum[l]);
      for (; i < n; ++i) lane[(at + i) % kSumLanes] += x[i];
    }
  }
  static void add_across(void* user, void* const* out, int64_t at, int64_t n) {
    Across& a = *static_cast<Across*>(user);
    const int n_out = a.r->call->formula->n_outputs;
    for (int k = 0; k < n_out; ++k) {
      if (!(a.r->summed >> k & 1)) continue;
      const C* x = static_cast<const C*>(out[k]);
      C* sum = a.sum(k, a.lane) + (at - a.first);
      for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
    }
  }

  static int64_t summed_index(const Reduction& r, int k) {
    return __builtin_popcount(r.summed & ((1u << k) - 1));
  }
  static C* partial_of(const Reduction& r, int k, int64_t kept) {
    return reinterpret_cast<C*>(r.partial) + (summed_index(r, k) * r.kept.total + kept) * r.blocks;
  }
  static void put(const Reduction& r, int k, int64_t kept, int64_t block, C value) {
    if (r.blocks > 1) {
      partial_of(r, k, kept)[block] = value;
    } else {
      const Operand& o = r.call->output(k);
      store_elements(o.kind, o.data + offset_of(r.kept, o, place_of(r.kept, kept)), 0,
                     reinterpret_cast<char*>(&value), 1);
    }
  }
  static void offsets(const Reduction& r, const Space& space, int64_t at, int64_t* base) {
    const Place place = place_of(space, at);
    const int n = r.call->formula->n_inputs + r.call->formula->n_outputs;
    for (int k = 0; k < n; ++k) base[k] = offset_of(space, r.call->operand[k], place);
  }

  // Items: kept element x block.
  static void run_along(void* user, int64_t begin, int64_t end) {
    const Reduction& r = *static_cast<const Reduction*>(user);
    Frame frame;
    prepare(frame, *r.call, r.reduced);
    Along a;
    a.r = &r;
    int64_t base[kMaxOperands];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t kept = item / r.blocks, block = item % r.blocks;
      offsets(r, r.kept, kept, base);
      const int64_t from = block * kSumBlock;
      const int64_t to = from + kSumBlock < r.reduced.total ? from + kSumBlock : r.reduced.total;
      for (auto& lanes : a.lane) {
        for (C& lane : lanes) lane = C(-0.0);
      }
      walk(frame, base, from, to, add_along, &a);
      for (int k = 0; k < r.call->formula->n_outputs; ++k) {
        if (r.summed >> k & 1) put(r, k, kept, block, combine_lanes(a.lane[k], 1, to - from));
      }
    }
  }
  // Items: tile of kept elements x block.
  static void run_across(void* user, int64_t begin, int64_t end) {
    const Reduction& r = *static_cast<const Reduction*>(user);
    Frame frame;
    prepare(frame, *r.call, r.kept);
    Across a;
    a.r = &r;
    int64_t base[kMaxOperands];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / r.blocks * r.tile, block = item % r.blocks;
      const int64_t last = first + r.tile < r.kept.total ? first + r.tile : r.kept.total;
      const int64_t from = block * kSumBlock;
      const int64_t to = from + kSumBlock < r.reduced.total ? from + kSumBlock : r.reduced.total;
      a.first = first;
      for (int k = 0; k < r.call->formula->n_outputs; ++k) {
        if (!(r.summed >> k & 1)) continue;
        for (int l = 0; l < kSumLanes && l < to - from; ++l) {
          for (int64_t i = 0; i < last - first; ++i) a.sum(k, l)[i] = C(-0.0);
        }
      }
      for (int64_t e = from; e < to; ++e) {
        a.lane = static_cast<int>(e % kSumLanes);
        offsets(r, r.reduced, e, base);
        walk(frame, base, first, last, add_across, &a);
      }
      for (int k = 0; k < r.call->formula->n_outputs; ++k) {
        if (!(r.summed >> k & 1)) continue;
        for (int64_t i = 0; i < last - first; ++i) {
          put(r, k, first + i, block, combine_lanes(a.sum(k, 0) + i, r.tile, to - from));
        }
      }
    }
  }
  static void join_blocks(void* user, int64_t begin, int64_t end) {
    const Reduction& r = *static_cast<const Reduction*>(user);
    for (int64_t kept = begin; kept < end; ++kept) {
      for (int k = 0; k < r.call->formula->n_outputs; ++k) {
        if (!(r.summed >> k & 1)) continue;
        const C* partial = partial_of(r, k, kept);
        C sum = partial[0];
        for (int64_t b = 1; b < r.blocks; ++b) sum += partial[b];
        const Operand& o = r.call->output(k);
        store_elements(o.kind, o.data + offset_of(r.kept, o, place_of(r.kept, kept)), 0,
                       reinterpret_cast<char*>(&sum), 1);
      }
    }
  }
};

// Fills in the pass for one pattern of reduced dimensions. Outputs that are not summed at all come with the
// first.
inline void make_reduction(Reduction& r, const Call& call, uint32_t pattern, uint32_t group,
                           uint32_t summed) {
  r.call = &call;
  r.group = group;
  r.summed = summed;
  r.pattern = pattern;
  make_space(r.kept, call, group, summed, ~pattern);
  make_space(r.reduced, call, group, summed, pattern);
  r.blocks = ceil_div(r.reduced.total, kSumBlock);
  const int last = call.rank - 1;
  const bool inner_reduced = pattern >> last & 1;
  const bool short_inner = call.size[last] < kShortRow / 2;
  r.across = short_inner ? r.kept.total > r.reduced.total : !inner_reduced;
  const int n_summed = __builtin_popcount(summed);
  r.tile =
      tile_width(call) == 8 ? Summing<double>::across_tile(n_summed) : Summing<float>::across_tile(n_summed);
  r.partial = nullptr;
}
inline int64_t partial_bytes(const Reduction& r) {
  return r.blocks > 1 ? int64_t(__builtin_popcount(r.summed)) * r.kept.total * r.blocks * tile_width(*r.call)
                      : 0;
}

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
