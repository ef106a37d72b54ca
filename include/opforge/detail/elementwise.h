// elementwise.h: what generated C++ includes. One formula body becomes the kernels of its dtypes.
//
// Generated code looks like this (one struct per operator, gradient operators included):
//
//   #include "opforge/detail/elementwise.h"
//   namespace vm = opforge::vm;
//
//   struct ClipSigmoid {
//     using Inputs = vm::Types<vm::T>;              // vm::T, or bool, int32_t, int64_t, float, double,
//     uint8_t, int8_t using Attributes = vm::Types<vm::T, vm::T>;   // in the signature's order; numeric
//     scalars only using Outputs = vm::Types<vm::T>; static constexpr int kSumTo[] = {-1};         // per
//     output: -1, or the input whose shape it is summed to static constexpr bool kRoundsHalf = false;    //
//     true when the body calls vm::round_half template <class V, class S>                   // V: Vec<float,
//     N> or Vec<double, N>; S: the storage type OPFORGE_INLINE static void body(V i0, V a0, V a1, V& o0) { //
//     inputs, attributes, outputs
//       const V v3 = vm::sigmoid(i0);
//       o0 = vm::clip(v3, a0, a1);
//     }
//   };
//   // Functions for the kernel table: opforge_kernel.run = opforge::elementwise<ClipSigmoid, float>, and so
//   on
//   // with double, opforge::f16, opforge::bf16 (opforge/half.h).
//
// In a body:
//   vm::NAME(a, ...)        for every NAME of opcodes.def; cast is vm::cast<E>(a) with E = typename
//   V::Element for T,
//                           bool, int32_t, int64_t, float, double, uint8_t, int8_t; round_half is
//                           vm::round_half<S>(a)
//   vm::splat<V>(0.5)       a constant of type T (a double, rounded once)
//   vm::splat<vm::Rebind<V, int32_t>>(3)    a constant of another type; bool: vm::splat<vm::Rebind<V,
//   bool>>(1) vm::Rebind<V, E>        the vector of as many elements of type E: a bool input is vm::Rebind<V,
//   bool> i0 comparisons give vm::Rebind<V, bool>; vm::select(condition, a, b); vm::logical_and(a, b) ...
//
// Outputs with kSumTo >= 0 must have type vm::T.
//
// The kernels take any strides (set OPFORGE_KERNEL_STRIDED), broadcast as NumPy does, accept zero sizes, skip
// outputs with count 0, use context->parallel_for, and give the bits of the bytecode interpreter.
#pragma once

#include <utility>

#include "opforge/detail/elementwise_run.h"

namespace opforge {
namespace vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace elementwise {

template <class E>
constexpr Type kTypeOf = std::is_same_v<E, T>         ? Type::kT
                         : std::is_same_v<E, bool>    ? Type::kBool
                         : std::is_same_v<E, int32_t> ? Type::kI32
                         : std::is_same_v<E, int64_t> ? Type::kI64
                         : std::is_same_v<E, float>   ? Type::kF32
                         : std::is_same_v<E, double>  ? Type::kF64
                         : std::is_same_v<E, uint8_t> ? Type::kU8
                                                      : Type::kI8;
template <class S>
constexpr Storage kStorageOf = std::is_same_v<S, double> ? Storage::kF64
                               : std::is_same_v<S, f16>  ? Storage::kF16
                               : std::is_same_v<S, bf16> ? Storage::kBF16
                                                         : Storage::kF32;
template <class V, class E>
using VectorOf = Rebind<V, std::conditional_t<std::is_same_v<E, T>, typename V::Element, E>>;

template <class List>
struct ListOf;
template <class... E>
struct ListOf<Types<E...>> {
  static constexpr int kCount = sizeof...(E);
  static constexpr Type kTypes[sizeof...(E) + 1] = {kTypeOf<E>..., Type::kT};
};

// A tuple of vectors, one per index.
template <size_t I, class V>
struct Slot {
  V value;
};
template <class Indices, class... V>
struct Slots;
template <size_t... I, class... V>
struct Slots<std::index_sequence<I...>, V...> : Slot<I, V>... {};
template <size_t I, class V>
OPFORGE_INLINE V& slot(Slot<I, V>& s) {
  return s.value;
}

// Loads and stores a pair's vectors one by one, `step` bytes apart: 0 for a scalar, of which one vector's
// copies exist.
template <class V>
constexpr int kParts = 1;
template <class V>
constexpr int kParts<Pair<V>> = 2 * kParts<V>;
template <class V>
OPFORGE_INLINE V load_parts(const char* p, int64_t step) {
  if constexpr (kIsPair<V>) {
    using Half = decltype(V::lo);
    return {load_parts<Half>(p, step), load_parts<Half>(p + kParts<Half> * step, step)};
  } else {
    return load<V>(p);
  }
}
template <class V>
OPFORGE_INLINE void store_parts(char* p, int64_t step, const V& x) {
  if constexpr (kIsPair<V>) {
    store_parts(p, step, x.lo);
    store_parts(p + kParts<decltype(V::lo)> * step, step, x.hi);
  } else {
    store(p, x);
  }
}

// The loop of formula F over vectors V; S is the storage type.
template <class F, class V, class S, class In, class Attributes, class Out>
struct Loop;
template <class F, class V, class S, class... In, class... At, class... Out>
struct Loop<F, V, S, Types<In...>, Types<At...>, Types<Out...>> {
  static constexpr int N = V::kSize, kIn = sizeof...(In), kOut = sizeof...(Out), kSets = kParts<V>;
  template <class E>
  static constexpr int64_t kBytes = N / kSets * int64_t(sizeof(typename VectorOf<V, E>::Element));

  template <size_t... I, size_t... A, size_t... O>
  static OPFORGE_INLINE void vectors(const Block& b, int64_t n, std::index_sequence<I...>,
                                     std::index_sequence<A...> a, std::index_sequence<O...> o) {
    const char* in[kIn + 1] = {static_cast<const char*>(b.in[I])..., nullptr};
    char* out[kOut] = {static_cast<char*>(b.out[O])...};
    const int64_t in_step[kIn + 1] = {b.in_step[I] * kBytes<In>..., 0},
                                out_step[kOut] = {b.out_step[O] * kBytes<Out>...};
    [[maybe_unused]] Slots<decltype(a), VectorOf<V, At>...> attributes;
    ((slot<A>(attributes) = load_parts<VectorOf<V, At>>(static_cast<const char*>(b.in[kIn + A]), 0)), ...);
    for (int64_t i = 0; i < n; i += kSets) {
      Slots<decltype(o), VectorOf<V, Out>...> results;
      F::template body<V, S>(load_parts<VectorOf<V, In>>(in[I] + i * in_step[I], in_step[I])...,
                             slot<A>(attributes)..., slot<O>(results)...);
      (store_parts(out[O] + i * out_step[O], out_step[O], slot<O>(results)), ...);
    }
  }
  // n vectors, a multiple of kSets.
  static OPFORGE_NOINLINE void run(const Block& b, int64_t n) {
    vectors(b, n, std::index_sequence_for<In...>(), std::index_sequence_for<At...>(),
            std::index_sequence_for<Out...>());
  }
};

// Four vectors at a time, then single ones, then the last elements through buffers of one vector.
template <class F, class V, class S>
using LoopOf = Loop<F, V, S, typename F::Inputs, typename F::Attributes, typename F::Outputs>;
template <class F, class V, class S>
struct Driver {
  using Single = LoopOf<F, V, S>;
  using Many = LoopOf<F, std::conditional_t<kIsFloat<V>, Pair<Pair<V>>, V>, S>;
  static constexpr int N = V::kSize, kIn = Single::kIn, kAll = kIn + ListOf<typename F::Attributes>::kCount,
                       kOut = Single::kOut;

  static void run(const void*, const Block& b) {
    const int64_t vectors = b.n / N, many = vectors / Many::kSets * Many::kSets;
    if (many) Many::run(b, many);
    if (b.n > many * N) rest(b, many, vectors - many, b.n % N);
  }
  static OPFORGE_NOINLINE void rest(const Block& b, int64_t done, int64_t vectors, int64_t last) {
    int64_t in_bytes[kAll + 1], out_bytes[kOut];
    const void* in[kAll + 1];
    void* out[kOut];
    for (int k = 0; k < kAll; ++k) {
      in_bytes[k] =
          k < kIn ? b.in_step[k] * kind_of(ListOf<typename F::Inputs>::kTypes[k], kStorageOf<S>).tile_width
                  : 0;
      in[k] = static_cast<const char*>(b.in[k]) + done * N * in_bytes[k];
    }
    for (int k = 0; k < kOut; ++k) {
      out_bytes[k] =
          b.out_step[k] * kind_of(ListOf<typename F::Outputs>::kTypes[k], kStorageOf<S>).tile_width;
      out[k] = static_cast<char*>(b.out[k]) + done * N * out_bytes[k];
    }
    if (vectors) Single::run({in, b.in_step, out, b.out_step, 0}, vectors);
    if (!last) return;
    alignas(64) char in_buffer[kIn + 1][N * 8], out_buffer[kOut][N * 8];
    void* to[kOut];
    for (int k = 0; k < kIn; ++k) {
      if (!in_bytes[k]) continue;
      memset(in_buffer[k], 0, sizeof in_buffer[k]);
      memcpy(in_buffer[k], static_cast<const char*>(in[k]) + vectors * N * in_bytes[k],
             static_cast<size_t>(last * in_bytes[k]));
      in[k] = in_buffer[k];
    }
    for (int k = 0; k < kOut; ++k) {
      to[k] = static_cast<char*>(out[k]) + vectors * N * out_bytes[k];
      out[k] = out_buffer[k];
    }
    Single::run({in, b.in_step, out, b.out_step, 0}, 1);
    for (int k = 0; k < kOut; ++k) memcpy(to[k], out_buffer[k], static_cast<size_t>(last * out_bytes[k]));
  }
};

// Half types and f32 share one loop over floats, unless the body itself rounds to the storage type.
template <class F, class S>
using DriverFor = Driver<F,
                         std::conditional_t<std::is_same_v<S, double>,
                                            Vec<double, (kLanes > 4 ? kLanes / 2 : 4)>, Vec<float, kLanes>>,
                         std::conditional_t<F::kRoundsHalf || std::is_same_v<S, double>, S, float>>;

template <class F, class S>
constexpr Formula kFormulaOf = {
    ListOf<typename F::Inputs>::kCount,
    ListOf<typename F::Attributes>::kCount,
    ListOf<typename F::Outputs>::kCount,
    ListOf<typename F::Inputs>::kTypes,
    ListOf<typename F::Attributes>::kTypes,
    ListOf<typename F::Outputs>::kTypes,
    F::kSumTo,
    kStorageOf<S>,
    &DriverFor<F, S>::run,
    nullptr,
};

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace vm

// opforge_kernel.run of formula F with T = S (float, double, f16, bf16).
template <class F, class S>
opforge_status elementwise(opforge_context* context, const opforge_arguments* inputs,
                           const opforge_arguments* outputs, const opforge_attribute* attributes) {
  return vm::elementwise::run_kernel(vm::elementwise::kFormulaOf<F, S>, context, inputs, outputs, attributes);
}

}  // namespace opforge
