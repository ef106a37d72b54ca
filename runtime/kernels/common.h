// common.h: what node kernels share: c16 views, activations, padded biases, work distribution.
#pragma once

#include <cstring>
#include <new>

#include "kernels/isa/table.h"
#include "program/kernel_api.h"
#include "threads/claims.h"

namespace opforge::kernels {

inline bool is_f32(const Tensor& t) { return t.dtype == DType::kF32; }
inline bool is_plain(const Tensor& t) { return t.layout.kind == LayoutKind::kPlain; }
inline bool is_c16(const Tensor& t) { return t.layout.kind == LayoutKind::kC16; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t padded8(int64_t channels) { return (channels + 7) / 8 * 8; }
inline int64_t blocks16(int64_t channels) { return (channels + 15) / 16; }
template <class T>
T lesser(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T greater(T a, T b) {
  return a > b ? a : b;
}
inline bool equals(StringView a, const char* b) {
  return a.size == static_cast<int64_t>(std::strlen(b)) && std::memcmp(a.data, b, a.size) == 0;
}

// How weights of f32, f16 or bf16 are stored; false for other dtypes.
bool weight_kind(const Tensor& weights, WeightKind* kind);
inline int64_t weight_bytes(WeightKind kind) { return kind == WeightKind::kF32 ? 4 : 2; }

// The view of a c16 tensor, or of a plain NCHW one (row = width, plane = height * width).
Image image_of(const Tensor& t);

// Refuses outputs of another dtype than the kernel writes: files of strangers may say anything. `others` is
// that of the outputs after the first, where it differs.
Status check_outputs(InferContext& context, DType first, DType others = DType::kUndefined);

// An input that may be absent, or null.
inline const Tensor* optional_input(const Tensor* inputs, int32_t n, int32_t which) {
  return which >= 0 && which < n && inputs[which].present() ? &inputs[which] : nullptr;
}

// `axis` counted from the front, or -1 when it is out of range.
inline int axis_of(int64_t axis, int rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  return a >= 0 && a < rank ? static_cast<int>(a) : -1;
}

// Attributes activation, lo, hi, s, o, t; false when the name is unknown.
bool read_activation(const Attributes& attributes, Activation* activation);

// n floats followed by zeros up to whole blocks of 16, in session memory; zeros only when `bias` is absent.
// Null when there is no memory.
const float* padded_bias(LoadContext& context, const Tensor* bias, int64_t n);

// At least `n` values of an integer list attribute, or the defaults.
void read_ints(const Attributes& attributes, const char* name, int n, int64_t otherwise, int32_t* values);

// Calls f(slot, unit) for every unit. A slot is used by one thread at a time, so it can own a piece of
// scratch; there are at most context.threads of them. Which slot gets a unit may vary: results must not
// depend on it.
template <class F>
void for_units(RunContext& context, int64_t units, F&& f) {
  const int64_t slots = lesser<int64_t>(units, context.threads);
  if (slots <= 1) {
    for (int64_t u = 0; u < units; ++u) f(int64_t{0}, u);
    return;
  }
  Claims claims(units, slots);
  context.parallel(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      for (int64_t first = 0, last = 0; claims.next(slot == 0 ? last : -1, &first, &last);)
        for (int64_t u = first; u < last; ++u) f(slot, u);
    }
  });
}

// Piece `i` of [0, n) cut into `pieces` even ranges.
inline int64_t cut(int64_t n, int64_t pieces, int64_t i) { return n * i / pieces; }

// So many strips of rows that several threads get some each, unless rows are fewer.
inline int64_t strips_for(int32_t threads, int64_t height, int64_t strips) {
  if (threads > 1) strips = greater<int64_t>(strips, 2 * int64_t{threads});
  return greater<int64_t>(1, lesser(strips, height));
}

// Calls f(image, block, y0, y1) for strips of rows of every channel block. The blocks of a strip are
// neighbours, so that a thread gets the rows that it wrote in the node before, and has them in its cache.
template <class F>
void for_strips(RunContext& context, int64_t images, int64_t blocks, int64_t height, int64_t strips, F&& f) {
  strips = strips_for(context.threads, height, strips);
  for_units(context, images * strips * blocks, [&](int64_t, int64_t unit) {
    const int64_t strip = unit / blocks % strips;
    f(unit / blocks / strips, unit % blocks, cut(height, strips, strip), cut(height, strips, strip + 1));
  });
}

// Scratch floats rounded up so that neighbours do not share cache lines.
inline int64_t scratch_floats(int64_t n) { return (n + 31) / 16 * 16; }

template <class T>
T* new_state(LoadContext& context) {
  void* memory = context.allocate(&context, sizeof(T));
  if (memory == nullptr) return nullptr;
  T* state = new (memory) T();
  context.state = state;
  return state;
}
inline Status no_memory(LoadContext& context) {
  return context.fail(&context, OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for the kernel's state");
}

}  // namespace opforge::kernels
