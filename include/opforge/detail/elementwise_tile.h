// elementwise_tile.h: walking a space of elements. Rows are handed to the formula in place where memory
// allows, and through tiles in L1 where it does not: half types, strides other than 1, rows too short to be
// worth a call.
#pragma once

#include "opforge/detail/elementwise_shape.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace elementwise {

constexpr int64_t kShortRow = 64;

// ---- between memory and tiles ----
template <class E>
inline void copy_strided(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) memcpy(to + i * to_stride, from + i * from_stride, sizeof(E));
}
OPFORGE_NOINLINE inline void copy_elements(int width, char* to, int64_t to_stride, const char* from,
                                           int64_t from_stride, int64_t n) {
  if (to_stride == width && from_stride == width) {
    memcpy(to, from, static_cast<size_t>(n * width));
  } else if (width == 4) {
    copy_strided<uint32_t>(to, to_stride, from, from_stride, n);
  } else if (width == 2) {
    copy_strided<uint16_t>(to, to_stride, from, from_stride, n);
  } else if (width == 8) {
    copy_strided<uint64_t>(to, to_stride, from, from_stride, n);
  } else {
    copy_strided<uint8_t>(to, to_stride, from, from_stride, n);
  }
}
template <int kHalf>
OPFORGE_NOINLINE inline void widen(float* to, const uint16_t* from, int64_t n) {
  constexpr int N = kLanes;
  for (int64_t i = 0; i < n; i += N) {
    raw::Half<N> h = {};
    const int64_t rest = n - i;
    memcpy(&h, from + i, rest < N ? static_cast<size_t>(rest) * 2 : sizeof h);
    const raw::Floats<N> v = kHalf == 1 ? raw::f16_to_float<N>(h) : raw::bf16_to_float<N>(h);
    memcpy(to + i, &v, rest < N ? static_cast<size_t>(rest) * 4 : sizeof v);
  }
}
template <int kHalf>
OPFORGE_NOINLINE inline void narrow(uint16_t* to, const float* from, int64_t n) {
  constexpr int N = kLanes;
  for (int64_t i = 0; i < n; i += N) {
    raw::Floats<N> v = {};
    const int64_t rest = n - i;
    memcpy(&v, from + i, rest < N ? static_cast<size_t>(rest) * 4 : sizeof v);
    const raw::Half<N> h = kHalf == 1 ? raw::float_to_f16<N>(v) : raw::float_to_bf16<N>(v);
    memcpy(to + i, &h, rest < N ? static_cast<size_t>(rest) * 2 : sizeof h);
  }
}
OPFORGE_NOINLINE inline void load_elements(Kind kind, char* tile, const char* from, int64_t stride,
                                           int64_t n) {
  if (!kind.half) return copy_elements(kind.width, tile, kind.width, from, stride, n);
  uint16_t gathered[kTile];
  const uint16_t* half = reinterpret_cast<const uint16_t*>(from);
  if (stride != 2) {
    copy_elements(2, reinterpret_cast<char*>(gathered), 2, from, stride, n);
    half = gathered;
  }
  (kind.half == 1 ? widen<1> : widen<2>)(reinterpret_cast<float*>(tile), half, n);
}
OPFORGE_NOINLINE inline void store_elements(Kind kind, char* to, int64_t stride, const char* tile,
                                            int64_t n) {
  if (!kind.half) return copy_elements(kind.width, to, stride, tile, kind.width, n);
  const auto narrowing = kind.half == 1 ? narrow<1> : narrow<2>;
  if (stride == 2) return narrowing(reinterpret_cast<uint16_t*>(to), reinterpret_cast<const float*>(tile), n);
  uint16_t packed[kTile];
  narrowing(packed, reinterpret_cast<const float*>(tile), n);
  copy_elements(2, to, stride, reinterpret_cast<const char*>(packed), 2, n);
}
inline void load_splat(Kind kind, char* splat, const char* from) {
  load_elements(kind, splat, from, 0, kSplat);
}

// ---- a space: some of the call's dimensions ----
enum class Mode : uint8_t {
  kDirect,    // in place
  kConstant,  // one value in the whole space
  kScalar,    // one value per row
  kStaged,    // through a tile
  kSummed,    // an output that goes to a tile and from there to the sum
  kUnwanted,
};
struct Space {
  int rank;
  int64_t size[kMaxRank];
  int dim[kMaxRank];  // dimension of the call
  int64_t total;
  bool packed;  // rows are short: tiles hold several rows
  bool staged;  // some operand needs tiles
  Mode mode[kMaxOperands];
};

inline bool dense_in(const Space& s, const Operand& o) {
  int64_t expected = o.kind.width;
  for (int d = s.rank - 1; d >= 0; --d) {
    if (o.stride[s.dim[d]] != expected) return false;
    expected *= s.size[d];
  }
  return true;
}
// dims: bit d = the space contains dimension d of the call. group: outputs that are computed; summed: of
// these, the ones that are summed.
OPFORGE_NOINLINE inline void make_space(Space& s, const Call& call, uint32_t group, uint32_t summed,
                                        uint32_t dims) {
  s.rank = 0;
  s.total = 1;
  for (int d = 0; d < call.rank; ++d) {
    if (!(dims >> d & 1)) continue;
    s.size[s.rank] = call.size[d];
    s.dim[s.rank++] = d;
    s.total *= call.size[d];
  }
  if (s.rank == 0) {  // one element: any dimension that every operand stands still in would do
    s.rank = 1;
    s.size[0] = 1;
    s.dim[0] = 0;
  }
  s.packed = s.rank > 1 && s.size[s.rank - 1] < kShortRow;
  s.staged = false;
  const int n_inputs = call.formula->n_inputs;
  for (int k = 0; k < n_inputs + call.formula->n_outputs; ++k) {
    const Operand& o = call.operand[k];
    const int64_t inner = s.size[s.rank - 1] == 1 ? 0 : o.stride[s.dim[s.rank - 1]];
    bool constant = true;
    for (int d = 0; d < s.rank; ++d) constant &= s.size[d] == 1 || o.stride[s.dim[d]] == 0;
    Mode mode;
    if (k >= n_inputs) {
      const uint32_t bit = 1u << (k - n_inputs);
      const bool in_place = s.packed ? dense_in(s, o) : inner == o.kind.width;
      mode = !(group & bit)   ? Mode::kUnwanted
             : (summed & bit) ? Mode::kSummed
                              : (in_place && !o.kind.half ? Mode::kDirect : Mode::kStaged);
    } else if (constant) {
      mode = Mode::kConstant;
    } else if (s.packed) {
      mode = !o.kind.half && dense_in(s, o) ? Mode::kDirect : Mode::kStaged;
    } else if (inner == 0) {
      mode = Mode::kScalar;
    } else {
      mode = !o.kind.half && inner == o.kind.width ? Mode::kDirect : Mode::kStaged;
    }
    s.mode[k] = mode;
    s.staged |= mode == Mode::kStaged || mode == Mode::kSummed;
  }
}

// Called after each tile: elements [at, at + n) of the space lie in the tiles of the summed outputs.
using TileHook = void (*)(void* user, void* const* out, int64_t at, int64_t n);

// One thread's working memory. Prepared once, then used for any number of ranges of its space.
struct Frame {
  const Call* call;
  const Space* space;
  const void* in[kMaxInputs + kMaxAttributes];
  int32_t in_step[kMaxInputs + kMaxAttributes];
  void* out[kMaxOutputs];
  int32_t out_step[kMaxOutputs];
  char* tile[kMaxOperands];
  const char* splat_of[kMaxInputs];  // what the splat holds now
  int64_t capacity;                  // elements per tile
  alignas(64) char splat[kMaxInputs][kSplat * 8];
  alignas(64) char dump[kSplat * 8];
  alignas(64) char staging[kStagingBytes];
};

OPFORGE_NOINLINE inline void prepare(Frame& f, const Call& call, const Space& space) {
  f.call = &call;
  f.space = &space;
  const Formula& formula = *call.formula;
  const int n_in = formula.n_inputs, n = n_in + formula.n_outputs;
  int64_t per_element = 0;
  for (int k = 0; k < n; ++k) {
    if (space.mode[k] == Mode::kStaged || space.mode[k] == Mode::kSummed)
      per_element += call.operand[k].kind.tile_width;
  }
  // A multiple of 16 elements keeps tiles on cache lines; 80 operands of 8 bytes still leave 64.
  f.capacity = kTile;
  if (per_element * kTile > static_cast<int64_t>(kStagingBytes))
    f.capacity = kStagingBytes / per_element / 16 * 16;
  char* next = f.staging;
  for (int k = 0; k < n; ++k) {
    f.tile[k] = next;
    if (space.mode[k] == Mode::kStaged || space.mode[k] == Mode::kSummed)
      next += f.capacity * call.operand[k].kind.tile_width;
    if (k < n_in) {
      f.splat_of[k] = nullptr;
      const bool scalar = space.mode[k] == Mode::kConstant || space.mode[k] == Mode::kScalar;
      f.in_step[k] = !scalar;
      f.in[k] = scalar ? f.splat[k] : f.tile[k];
    } else {
      f.out_step[k - n_in] = space.mode[k] != Mode::kUnwanted;
      f.out[k - n_in] = space.mode[k] == Mode::kUnwanted ? f.dump : f.tile[k];
    }
  }
  for (int k = 0; k < formula.n_attributes; ++k) {
    f.in[n_in + k] = call.attribute[k];
    f.in_step[n_in + k] = 0;
  }
}
inline void run_block(const Frame& f, int64_t n) {
  f.call->formula->block(f.call->formula->self, {f.in, f.in_step, f.out, f.out_step, n});
}
inline void set_splat(Frame& f, int k, const char* from) {
  if (f.splat_of[k] == from) return;
  f.splat_of[k] = from;
  load_splat(f.call->operand[k].kind, f.splat[k], from);
}

// Where element `at` of the space begins a row: index per dimension.
struct Place {
  int64_t index[kMaxRank];
};
inline Place place_of(const Space& s, int64_t at) {
  Place p;
  for (int d = s.rank - 1; d >= 0; --d) {
    p.index[d] = at % s.size[d];
    at /= s.size[d];
  }
  return p;
}
inline void next_row(const Space& s, Place& p) {
  p.index[s.rank - 1] = 0;
  for (int d = s.rank - 2; d >= 0; --d) {
    if (++p.index[d] < s.size[d]) return;
    p.index[d] = 0;
  }
}
inline int64_t offset_of(const Space& s, const Operand& o, const Place& p) {
  int64_t offset = 0;
  for (int d = 0; d < s.rank; ++d) offset += p.index[d] * o.stride[s.dim[d]];
  return offset;
}

// Elements [begin, end) of the space, base[k] = offset of operand k from its data. Rows one at a time.
OPFORGE_NOINLINE inline void walk_rows(Frame& f, const int64_t* base, int64_t begin, int64_t end,
                                       TileHook hook, void* user) {
  const Space& s = *f.space;
  const Call& call = *f.call;
  const int n_in = call.formula->n_inputs, n = n_in + call.formula->n_outputs, last = s.rank - 1;
  Place place = place_of(s, begin);
  char* row[kMaxOperands];
  while (begin < end) {
    const int64_t in_row = s.size[last] - place.index[last];
    const int64_t count = in_row < end - begin ? in_row : end - begin;
    for (int k = 0; k < n; ++k) {
      const Operand& o = call.operand[k];
      row[k] = o.data + base[k] + offset_of(s, o, place);
      if (k < n_in && f.in_step[k] == 0) set_splat(f, k, row[k]);
    }
    const int64_t step = s.staged ? f.capacity : count;
    for (int64_t j = 0; j < count; j += step) {
      const int64_t m = count - j < step ? count - j : step;
      for (int k = 0; k < n; ++k) {
        const Operand& o = call.operand[k];
        if (s.mode[k] == Mode::kDirect) {
          (k < n_in ? const_cast<void*&>(f.in[k]) : f.out[k - n_in]) = row[k] + j * o.kind.width;
        } else if (s.mode[k] == Mode::kStaged && k < n_in) {
          const int64_t stride = o.stride[s.dim[last]];
          load_elements(o.kind, f.tile[k], row[k] + j * stride, stride, m);
        }
      }
      run_block(f, m);
      for (int k = n_in; k < n; ++k) {
        const Operand& o = call.operand[k];
        if (s.mode[k] != Mode::kStaged) continue;
        const int64_t stride = o.stride[s.dim[last]];
        store_elements(o.kind, row[k] + j * stride, stride, f.tile[k], m);
      }
      if (hook) hook(user, f.out, begin + j, m);
    }
    begin += count;
    next_row(s, place);
  }
}

// The same for short rows: a tile collects several of them.
OPFORGE_NOINLINE inline void walk_packed(Frame& f, const int64_t* base, int64_t begin, int64_t end,
                                         TileHook hook, void* user) {
  const Space& s = *f.space;
  const Call& call = *f.call;
  const int n_in = call.formula->n_inputs, n = n_in + call.formula->n_outputs, last = s.rank - 1;
  const int64_t row_size = s.size[last];
  const auto each_row = [&](int64_t at, int64_t count, const Operand& o, auto&& use) {
    Place place = place_of(s, at);
    for (int64_t done = 0; done < count;) {
      const int64_t in_row = row_size - place.index[last];
      const int64_t m = in_row < count - done ? in_row : count - done;
      use(done, offset_of(s, o, place), m);
      done += m;
      next_row(s, place);
    }
  };
  while (begin < end) {
    const int64_t count = end - begin < f.capacity ? end - begin : f.capacity;
    for (int k = 0; k < n; ++k) {
      const Operand& o = call.operand[k];
      if (k < n_in && f.in_step[k] == 0) {
        set_splat(f, k, o.data + base[k]);
      } else if (s.mode[k] == Mode::kDirect) {
        (k < n_in ? const_cast<void*&>(f.in[k]) : f.out[k - n_in]) = o.data + base[k] + begin * o.kind.width;
      } else if (k < n_in) {
        const int64_t stride = o.stride[s.dim[last]];
        uint16_t halves[kTile];
        char* to = o.kind.half ? reinterpret_cast<char*>(halves) : f.tile[k];
        each_row(begin, count, o, [&](int64_t done, int64_t offset, int64_t m) {
          copy_elements(o.kind.width, to + done * o.kind.width, o.kind.width, o.data + base[k] + offset,
                        stride, m);
        });
        if (o.kind.half) load_elements(o.kind, f.tile[k], to, 2, count);
      }
    }
    run_block(f, count);
    for (int k = n_in; k < n; ++k) {
      const Operand& o = call.operand[k];
      if (s.mode[k] != Mode::kStaged) continue;
      const int64_t stride = o.stride[s.dim[last]];
      uint16_t halves[kTile];
      const char* from = f.tile[k];
      if (o.kind.half) {
        store_elements(o.kind, reinterpret_cast<char*>(halves), 2, f.tile[k], count);
        from = reinterpret_cast<const char*>(halves);
      }
      each_row(begin, count, o, [&](int64_t done, int64_t offset, int64_t m) {
        copy_elements(o.kind.width, o.data + base[k] + offset, stride, from + done * o.kind.width,
                      o.kind.width, m);
      });
    }
    if (hook) hook(user, f.out, begin, count);
    begin += count;
  }
}
inline void walk(Frame& f, const int64_t* base, int64_t begin, int64_t end, TileHook hook, void* user) {
  (f.space->packed ? walk_packed : walk_rows)(f, base, begin, end, hook, user);
}

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
