// elementwise.cuh: what generated CUDA includes. One formula body (the functor that opforge/detail/elementwise.h takes
// too) becomes kernels of its dtypes and the function of the kernel table that launches them.
//
// Three kernels serve a call: `dense` where all operands lie one element after the other (16 bytes per load where they
// are aligned), `strided` otherwise, and `partial` with `combine` for outputs that are summed to an input's shape: two
// passes whose cuts depend on shapes only, so that sums have the same bits in every run.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "opforge/cuda/body.cuh"
#include "opforge/cuda/space.h"

#ifndef __CUDACC_RTC__  // which compiles for the device alone
#include <cuda_runtime.h>

#include "opforge/cuda/launch.h"
#include "opforge/cuda/tuning.h"
#endif

namespace opforge {
namespace cuda {

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
    if constexpr (W % 2 == 0) {  // halves become floats, and floats halves, two at a time
#pragma unroll
      for (int k = 0; k < W; k += 2) {
        typename B::Inputs one, other;
        typename B::Outputs result, second;
        B::template unpack_pair<W>(one, other, in, k, typename B::InIndices());
        B::run(one, attributes, result);
        B::run(other, attributes, second);
        B::template pack_pair<W>(out, result, second, k, typename B::OutIndices());
      }
    } else {
      typename B::Inputs one;
      typename B::Outputs result;
      B::template unpack<W>(one, in, 0, typename B::InIndices());
      B::run(one, attributes, result);
      B::template pack<W>(out, result, 0, typename B::OutIndices());
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
// Adds the parts of each element in their order. No formula takes part, so that it is compiled once per type.
template <class S, class V, class Index>
__global__ void combine(Space space, int operand, Parts parts, const V* sums) {
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < parts.elements;
       at += step) {
    V sum = V(0);
    for (int64_t part = 0; part < parts.count; ++part) sum += sums[at * parts.count + part];
    int64_t offset = 0;
    Index rest = static_cast<Index>(at);
    for (int d = parts.kept - 1; d >= 0; --d) {
      const Index size = static_cast<Index>(space.size[d]), next = rest / size;
      offset += static_cast<int64_t>(rest - next * size) * space.stride[operand][d];
      rest = next;
    }
    reinterpret_cast<S*>(space.data[operand])[offset] = Narrow<S>::of(sum);
  }
}

#ifndef __CUDACC_RTC__
// ---- launching

// Blocks and threads for so many elements, or vectors of them.
struct Grid {
  unsigned blocks, threads;
  template <class Kernel>
  Grid(int64_t count, const opforge_choice& choice, Kernel kernel) {
    const int64_t items = choice.items > 0 ? choice.items : 1;
    threads = choice.threads > 0 ? static_cast<unsigned>(choice.threads) : static_cast<unsigned>(kThreads);
    // Found with one kernel of the formula, while another may need more registers. What no kernel takes is CUDA's to
    // refuse.
    if (choice.threads > kThreads && choice.threads <= 1024) {
      cudaFuncAttributes is = {};
      const bool fits = cudaFuncGetAttributes(&is, kernel) == cudaSuccess && choice.threads <= is.maxThreadsPerBlock;
      if (!fits) threads = static_cast<unsigned>(kThreads);
    }
    const int64_t of_block = items * threads;
    blocks = blocks_of((count + of_block - 1) / of_block);
  }
};

template <class F, class S>
void launch_values(const Space& space, uint32_t wanted, const opforge_choice& choice, cudaStream_t stream) {
  using B = Body<F, S>;
  constexpr int kWide = 16 / B::kMost;
  const bool wide = space.dense && space.alignment % 16 == 0;
  if (wide) {
    const Grid grid((space.total + kWide - 1) / kWide, choice, dense<F, S, kWide>);
    dense<F, S, kWide><<<grid.blocks, grid.threads, 0, stream>>>(space, wanted);
  } else if (space.dense) {
    const Grid grid(space.total, choice, dense<F, S, 1>);
    dense<F, S, 1><<<grid.blocks, grid.threads, 0, stream>>>(space, wanted);
  } else if (space.small) {
    const Grid grid(space.total, choice, strided<F, S, uint32_t>);
    strided<F, S, uint32_t><<<grid.blocks, grid.threads, 0, stream>>>(space, wanted);
  } else {
    const Grid grid(space.total, choice, strided<F, S, uint64_t>);
    strided<F, S, uint64_t><<<grid.blocks, grid.threads, 0, stream>>>(space, wanted);
  }
}

template <class F, class S, class Index>
void launch_sum(const Space& space, int which, const Parts& parts, void* sums, cudaStream_t stream) {
  partial<F, S, Index>
      <<<blocks_of(parts.elements * parts.count), kThreads, 0, stream>>>(space, which, parts, sums);
  using V = typename Body<F, S>::V;
  combine<S, V, Index><<<blocks_for(parts.elements), kThreads, 0, stream>>>(space, Body<F, S>::kIn + which, parts,
                                                                           static_cast<const V*>(sums));
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
  opforge_status status = bind(formula, inputs, outputs, attributes, &space, reason, sizeof reason);
  if (status != OPFORGE_STATUS_OK) return fail(context, status, reason);
  status = same_device(context, inputs, "input");
  if (status == OPFORGE_STATUS_OK) status = same_device(context, outputs, "output");
  if (status != OPFORGE_STATUS_OK) return status;
  Launch launch(context, space.work());
  if (!launch) return launch.status();
  const uint32_t summed = space.summed_outputs(), values = space.wanted & ~summed;
  if (space.total > 0 && values != 0) {
    Space flat = space;
    flat.collapse(values, B::kIn, B::kOut);
    launch_values<F, S>(flat, values, tuned(context, inputs, outputs), launch.stream());
  }
  for (int which = 0; B::sums() && which < B::kOut; ++which) {
    if ((summed >> which & 1u) == 0) continue;
    Space sorted = space;
    const Parts parts = sorted.sort_for_sum(which, B::kIn, B::kOut);
    if (parts.elements == 0) continue;
    void* sums = launch.scratch(static_cast<size_t>(parts.elements * parts.count) * sizeof(typename B::V));
    if (sums == nullptr) break;
    if constexpr (B::sums()) {
      if (sorted.small)
        launch_sum<F, S, uint32_t>(sorted, which, parts, sums, launch.stream());
      else
        launch_sum<F, S, uint64_t>(sorted, which, parts, sums, launch.stream());
    }
  }
  return launch.finish();
}

#endif  // __CUDACC_RTC__

}  // namespace cuda
}  // namespace opforge
