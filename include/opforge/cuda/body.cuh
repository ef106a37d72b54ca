// body.cuh: one element of a formula: how its operands lie in memory, how the body holds them, and how they get there
// and back, singly or in packs that are loaded as one.
#pragma once

#include <stdint.h>

#include "opforge/cuda/element.cuh"
#include "opforge/cuda/functions.cuh"
#include "opforge/cuda/space.h"

namespace opforge {
namespace cuda {

template <class E, class S>
struct StoredOf {  // how an element of a body's type lies in memory
  using Type = E;
};
template <class S>
struct StoredOf<fn::T, S> {
  using Type = S;
};
template <class E, class V>
struct HeldOf {  // and how the body holds it
  using Type = E;
};
template <class V>
struct HeldOf<fn::T, V> {
  using Type = V;
};

namespace fn {
template <class S, class V>
OPFORGE_INLINE V round_half(V x) {
  return static_cast<V>(widen(Narrow<S>::of(x)));
}
OPFORGE_INLINE float round_f16(float x) { return widen(Narrow<__half>::of(x)); }
OPFORGE_INLINE double round_f16(double x) { return x; }
OPFORGE_INLINE float round_bf16(float x) { return widen(Narrow<__nv_bfloat16>::of(x)); }
OPFORGE_INLINE double round_bf16(double x) { return x; }
}  // namespace fn

// Values of a row of types, by index.
template <int I, class E>
struct Held {
  E value;
};
template <int I, class... E>
struct HeldRow {};
template <int I, class E, class... Rest>
struct HeldRow<I, E, Rest...> : Held<I, E>, HeldRow<I + 1, Rest...> {};
template <int I, class E>
OPFORGE_INLINE E& held(Held<I, E>& row) {
  return row.value;
}

template <int... I>
struct Indices {};
template <int N, int... I>
struct IndicesOf : IndicesOf<N - 1, N - 1, I...> {};
template <int... I>
struct IndicesOf<0, I...> {
  using Type = Indices<I...>;
};

template <class F, class S, class In = typename F::Inputs, class At = typename F::Attributes,
          class Out = typename F::Outputs>
struct Body;
template <class F, class S, class... In, class... At, class... Out>
struct Body<F, S, fn::Types<In...>, fn::Types<At...>, fn::Types<Out...>> {
  using V = typename ComputeOf<S>::Type;
  static constexpr int kIn = sizeof...(In), kAt = sizeof...(At), kOut = sizeof...(Out);
  using Inputs = HeldRow<0, typename HeldOf<In, V>::Type...>;
  using Attributes = HeldRow<0, typename HeldOf<At, V>::Type...>;
  using Outputs = HeldRow<0, typename HeldOf<Out, V>::Type...>;
  using InIndices = typename IndicesOf<kIn>::Type;
  using AtIndices = typename IndicesOf<kAt>::Type;
  using OutIndices = typename IndicesOf<kOut>::Type;
  static constexpr int kMost = most(most(0, static_cast<int>(sizeof(typename StoredOf<In, S>::Type))...),
                                    static_cast<int>(sizeof(typename StoredOf<Out, S>::Type))...);

  static constexpr bool sums() {
    for (int k = 0; k < kOut; ++k) {
      if (F::kSumTo[k] >= 0) return true;
    }
    return false;
  }

  template <int... I, int... A, int... O>
  OPFORGE_INLINE static void run(Inputs& in, Attributes& at, Outputs& out, Indices<I...>, Indices<A...>,
                                 Indices<O...>) {
    F::template body<V, S>(held<I>(in)..., held<A>(at)..., held<O>(out)...);
  }
  OPFORGE_INLINE static void run(Inputs& in, Attributes& at, Outputs& out) {
    run(in, at, out, InIndices(), AtIndices(), OutIndices());
  }

  template <class E>
  OPFORGE_INLINE static typename StoredOf<E, S>::Type* as(char* data) {
    return reinterpret_cast<typename StoredOf<E, S>::Type*>(data);
  }
  template <int... I>
  OPFORGE_INLINE static void load(Inputs& in, char* const* data, const int64_t* at, Indices<I...>) {
    ((held<I>(in) = widen(as<In>(data[I])[at[I]])), ...);
  }
  template <int... A>
  OPFORGE_INLINE static void attributes(Attributes& row, const double* reals, const int64_t* integers, Indices<A...>) {
    ((held<A>(row) = attribute<typename HeldOf<At, V>::Type>(reals[A], integers[A])), ...);
  }
  template <class E>
  OPFORGE_INLINE static E attribute(double real, int64_t integer) {
    return E(0.5) == E(0) ? static_cast<E>(integer) : static_cast<E>(real);
  }
  // Outputs that are wanted and not summed.
  template <int... O>
  OPFORGE_INLINE static void store(Outputs& out, char* const* data, const int64_t* at, uint32_t wanted, Indices<O...>) {
    ((wanted >> O & 1u
          ? static_cast<void>(as<Out>(data[kIn + O])[at[kIn + O]] =
                                  Narrow<typename StoredOf<Out, S>::Type>::of(held<O>(out)))
          : static_cast<void>(0)),
     ...);
  }
  template <int W>
  using InputPacks = HeldRow<0, Pack<typename StoredOf<In, S>::Type, W>...>;
  template <int W>
  using OutputPacks = HeldRow<0, Pack<typename StoredOf<Out, S>::Type, W>...>;

  template <int W, class E>
  OPFORGE_INLINE static void load_pack(Pack<E, W>& pack, const char* data, int64_t at, int64_t stride) {
    if (stride != 0) {
      pack = reinterpret_cast<const Pack<E, W>*>(data)[at];
    } else {
      for (int k = 0; k < W; ++k) pack.element[k] = *reinterpret_cast<const E*>(data);
    }
  }
  template <int W, int... I>
  OPFORGE_INLINE static void load_packs(InputPacks<W>& packs, const Space& space, int64_t at, Indices<I...>) {
    (load_pack<W>(held<I>(packs), space.data[I], at, space.stride[I][0]), ...);
  }
  template <int W, int... I>
  OPFORGE_INLINE static void unpack(Inputs& in, InputPacks<W>& packs, int k, Indices<I...>) {
    ((held<I>(in) = widen(held<I>(packs).element[k])), ...);
  }
  template <int W, int... O>
  OPFORGE_INLINE static void pack(OutputPacks<W>& packs, Outputs& out, int k, Indices<O...>) {
    ((held<O>(packs).element[k] = Narrow<typename StoredOf<Out, S>::Type>::of(held<O>(out))), ...);
  }
  template <int W, int... I>
  OPFORGE_INLINE static void unpack_pair(Inputs& first, Inputs& second, InputPacks<W>& packs, int k, Indices<I...>) {
    (widen_pair(held<I>(packs).element + k, &held<I>(first), &held<I>(second)), ...);
  }
  template <int W, int... O>
  OPFORGE_INLINE static void pack_pair(OutputPacks<W>& packs, Outputs& first, Outputs& second, int k, Indices<O...>) {
    (narrow_pair(held<O>(packs).element + k, held<O>(first), held<O>(second)), ...);
  }
  template <class P>
  OPFORGE_INLINE static void store_pack(char* data, int64_t at, const P& pack, bool wanted) {
    if (wanted) reinterpret_cast<P*>(data)[at] = pack;
  }
  template <int W, int... O>
  OPFORGE_INLINE static void store_packs(OutputPacks<W>& packs, const Space& space, int64_t at, uint32_t wanted,
                                         Indices<O...>) {
    (store_pack(space.data[kIn + O], at, held<O>(packs), (wanted >> O & 1u) != 0), ...);
  }

  template <int... O>
  OPFORGE_INLINE static V value(Outputs& out, int which, Indices<O...>) {
    V found = V(0);
    ((O == which ? static_cast<void>(found = static_cast<V>(held<O>(out))) : static_cast<void>(0)), ...);
    return found;
  }
};

}  // namespace cuda
}  // namespace opforge
