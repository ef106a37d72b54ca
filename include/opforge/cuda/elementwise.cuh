// elementwise.cuh: what generated CUDA includes. One formula body (the functor that opforge/detail/elementwise.h takes
// too) becomes kernels of its dtypes and the function of the kernel table that launches them.
//
// Three kernels serve a call: `dense` where all operands lie one element after the other (16 bytes per load where they
// are aligned), `strided` otherwise, and `partial` with `combine` for outputs that are summed to an input's shape: two
// passes whose cuts depend on shapes only, so that sums have the same bits in every run.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "opforge/cuda/functions.cuh"
#include "opforge/cuda/space.h"

namespace opforge {
namespace cuda {

// ---- elements

template <class S>
struct ComputeOf {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
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

OPFORGE_INLINE float widen(__half x) { return __half2float(x); }
OPFORGE_INLINE float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class E>
OPFORGE_INLINE E widen(E x) {
  return x;
}
template <class S>
struct Narrow {
  template <class V>
  OPFORGE_INLINE static S of(V x) {
    return static_cast<S>(x);
  }
};
template <>
struct Narrow<__half> {
  OPFORGE_INLINE static __half of(float x) { return __float2half_rn(x); }
};
template <>
struct Narrow<__nv_bfloat16> {
  OPFORGE_INLINE static __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
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

// ---- one element of a formula

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

// W elements that are loaded and stored as one.
template <class E, int W>
struct alignas(sizeof(E) * W) Pack {
  E element[W];
};

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

// ---- kernels. `Space` is passed by value: it lies in constant memory.

// W elements at a time: 16 bytes of the widest type. Operands step by 1 element, or by 0: those are read once.
template <class F, class S, int W>
__global__ void dense(Space space, uint32_t wanted) {
  using B = Body<F, S>;
  typename B::Attributes attributes;
  B::attributes(attributes, space.real, space.integer, typename B::AtIndices());
  const int64_t n = space.size[0], vectors = n / W, step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  for (int64_t at = first; at < vectors; at += step) {
    typename B::template InputPacks<W> in;
    typename B::template OutputPacks<W> out;
    B::template load_packs<W>(in, space, at, typename B::InIndices());
#pragma unroll
    for (int k = 0; k < W; ++k) {
      typename B::Inputs one;
      typename B::Outputs result;
      B::template unpack<W>(one, in, k, typename B::InIndices());
      B::run(one, attributes, result);
      B::template pack<W>(out, result, k, typename B::OutIndices());
    }
    B::template store_packs<W>(out, space, at, wanted, typename B::OutIndices());
  }
  const int64_t at = vectors * W + first;  // the last ones, fewer than W
  if (W > 1 && at < n) {
    int64_t offset[B::kIn + B::kOut];
    for (int o = 0; o < B::kIn + B::kOut; ++o) offset[o] = at * space.stride[o][0];
    typename B::Inputs in;
    typename B::Outputs out;
    B::load(in, space.data, offset, typename B::InIndices());
    B::run(in, attributes, out);
    B::store(out, space.data, offset, wanted, typename B::OutIndices());
  }
}

template <class Index>
OPFORGE_INLINE void offsets(const Space& space, int first, int last, Index at, int operands, int64_t* offset) {
  for (int d = last - 1; d >= first; --d) {
    const Index size = static_cast<Index>(space.size[d]), rest = at / size;
    const int64_t index = static_cast<int64_t>(at - rest * size);
    at = rest;
    for (int o = 0; o < operands; ++o) offset[o] += index * space.stride[o][d];
  }
}

template <class F, class S, class Index>
__global__ void strided(Space space, uint32_t wanted) {
  using B = Body<F, S>;
  typename B::Attributes attributes;
  B::attributes(attributes, space.real, space.integer, typename B::AtIndices());
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < space.total; at += step) {
    int64_t offset[B::kIn + B::kOut] = {};
    offsets<Index>(space, 0, space.rank, static_cast<Index>(at), B::kIn + B::kOut, offset);
    typename B::Inputs in;
    typename B::Outputs out;
    B::load(in, space.data, offset, typename B::InIndices());
    B::run(in, attributes, out);
    B::store(out, space.data, offset, wanted, typename B::OutIndices());
  }
}

// Output `which` at one element of its shape, summed over a part of what is summed to it. The dimensions that are kept
// come first in the space, those that are summed last. A block per element and part; parts of one element follow.
template <class F, class S, class Index>
__global__ void partial(Space space, int which, Parts parts, void* sums) {
  using B = Body<F, S>;
  using V = typename B::V;
  __shared__ V row[kThreads];
  typename B::Attributes attributes;
  B::attributes(attributes, space.real, space.integer, typename B::AtIndices());
  for (int64_t block = blockIdx.x; block < parts.elements * parts.count; block += gridDim.x) {
    const int64_t element = block / parts.count, part = block % parts.count;
    int64_t base[B::kIn + B::kOut] = {};
    offsets<Index>(space, 0, parts.kept, static_cast<Index>(element), B::kIn + B::kOut, base);
    const int64_t begin = part * parts.length, cut = begin + parts.length;
    const int64_t end = cut < parts.summed ? cut : parts.summed;
    V sum = V(0);
    for (int64_t at = begin + threadIdx.x; at < end; at += kThreads) {
      int64_t offset[B::kIn + B::kOut];
      for (int o = 0; o < B::kIn + B::kOut; ++o) offset[o] = base[o];
      offsets<Index>(space, parts.kept, space.rank, static_cast<Index>(at), B::kIn + B::kOut, offset);
      typename B::Inputs in;
      typename B::Outputs out;
      B::load(in, space.data, offset, typename B::InIndices());
      B::run(in, attributes, out);
      sum += B::value(out, which, typename B::OutIndices());
    }
    row[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (static_cast<int>(threadIdx.x) < half) row[threadIdx.x] += row[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) static_cast<V*>(sums)[block] = row[0];
    __syncthreads();
  }
}
template <class F, class S, class Index>
__global__ void combine(Space space, int which, Parts parts, const void* sums) {
  using B = Body<F, S>;
  using V = typename B::V;
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < parts.elements;
       at += step) {
    V sum = V(0);
    for (int64_t part = 0; part < parts.count; ++part)
      sum += static_cast<const V*>(sums)[at * parts.count + part];
    int64_t offset[B::kIn + B::kOut] = {};
    offsets<Index>(space, 0, parts.kept, static_cast<Index>(at), B::kIn + B::kOut, offset);
    reinterpret_cast<S*>(space.data[B::kIn + which])[offset[B::kIn + which]] = Narrow<S>::of(sum);
  }
}

// ---- launching

inline opforge_status launched(opforge_context* context) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return OPFORGE_STATUS_OK;
  const char* text = cudaGetErrorString(error);
  return context->error != nullptr ? context->error(context, OPFORGE_STATUS_INTERNAL, text) : OPFORGE_STATUS_INTERNAL;
}

template <class F, class S>
void launch_values(const Space& space, uint32_t wanted, cudaStream_t stream) {
  using B = Body<F, S>;
  constexpr int kWide = 16 / B::kMost;
  if (space.dense && space.alignment % 16 == 0) {
    dense<F, S, kWide><<<blocks_for((space.total + kWide - 1) / kWide), kThreads, 0, stream>>>(space, wanted);
  } else if (space.dense) {
    dense<F, S, 1><<<blocks_for(space.total), kThreads, 0, stream>>>(space, wanted);
  } else if (space.small) {
    strided<F, S, uint32_t><<<blocks_for(space.total), kThreads, 0, stream>>>(space, wanted);
  } else {
    strided<F, S, uint64_t><<<blocks_for(space.total), kThreads, 0, stream>>>(space, wanted);
  }
}

template <class F, class S, class Index>
void launch_sum(const Space& space, int which, const Parts& parts, void* sums, cudaStream_t stream) {
  partial<F, S, Index>
      <<<blocks_of(parts.elements * parts.count), kThreads, 0, stream>>>(space, which, parts, sums);
  combine<F, S, Index><<<blocks_for(parts.elements), kThreads, 0, stream>>>(space, which, parts, sums);
}

template <class E>
struct TypeOf;
#define OPFORGE_TYPE_OF(type, code, width) \
  template <>                              \
  struct TypeOf<type> {                    \
    static constexpr opforge_dtype kDtype = {code, width, 1}; \
  };
OPFORGE_TYPE_OF(bool, OPFORGE_CODE_BOOL, 8)
OPFORGE_TYPE_OF(int8_t, OPFORGE_CODE_INT, 8)
OPFORGE_TYPE_OF(uint8_t, OPFORGE_CODE_UINT, 8)
OPFORGE_TYPE_OF(int32_t, OPFORGE_CODE_INT, 32)
OPFORGE_TYPE_OF(int64_t, OPFORGE_CODE_INT, 64)
OPFORGE_TYPE_OF(float, OPFORGE_CODE_FLOAT, 32)
OPFORGE_TYPE_OF(double, OPFORGE_CODE_FLOAT, 64)
OPFORGE_TYPE_OF(__half, OPFORGE_CODE_FLOAT, 16)
OPFORGE_TYPE_OF(__nv_bfloat16, OPFORGE_CODE_BFLOAT, 16)
#undef OPFORGE_TYPE_OF

template <class S, class List>
struct DtypesOf;
template <class S, class... E>
struct DtypesOf<S, fn::Types<E...>> {
  static constexpr opforge_dtype kRow[sizeof...(E) + 1] = {TypeOf<typename StoredOf<E, S>::Type>::kDtype..., {}};
};

// opforge_kernel.run of formula F with T = S on the context's stream.
template <class F, class S>
opforge_status elementwise(opforge_context* context, const opforge_arguments* inputs, const opforge_arguments* outputs,
                           const opforge_attribute* attributes) {
  using B = Body<F, S>;
  Space space;
  const FormulaShape formula = {B::kIn, B::kAt, B::kOut, DtypesOf<S, typename F::Inputs>::kRow,
                                DtypesOf<S, typename F::Outputs>::kRow, F::kSumTo};
  char reason[200];
  const opforge_status status = bind(formula, inputs, outputs, attributes, &space, reason, sizeof reason);
  if (status != OPFORGE_STATUS_OK) return context->error != nullptr ? context->error(context, status, reason) : status;
  const cudaStream_t stream = static_cast<cudaStream_t>(context->stream);
  const uint32_t summed = space.summed_outputs(), values = space.wanted & ~summed;
  if (space.total > 0 && values != 0) {
    Space flat = space;
    flat.collapse(values, B::kIn, B::kOut);
    launch_values<F, S>(flat, values, stream);
  }
  for (int which = 0; B::sums() && which < B::kOut; ++which) {
    if ((summed >> which & 1u) == 0) continue;
    Space sorted = space;
    const Parts parts = sorted.sort_for_sum(which, B::kIn, B::kOut);
    if (parts.elements == 0) continue;
    const size_t bytes = static_cast<size_t>(parts.elements * parts.count) * sizeof(typename B::V);
    void* sums = context->scratch != nullptr ? context->scratch(context, bytes, 16) : nullptr;
    if (sums == nullptr) {
      const char* text = "no memory for the partial sums";
      return context->error != nullptr ? context->error(context, OPFORGE_STATUS_OUT_OF_MEMORY, text)
                                       : OPFORGE_STATUS_OUT_OF_MEMORY;
    }
    if constexpr (B::sums()) {
      if (sorted.small)
        launch_sum<F, S, uint32_t>(sorted, which, parts, sums, stream);
      else
        launch_sum<F, S, uint64_t>(sorted, which, parts, sums, stream);
    }
  }
  return launched(context);
}

}  // namespace cuda
}  // namespace opforge
