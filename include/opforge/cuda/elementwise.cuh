// elementwise.cuh: what generated CUDA includes. One formula body (the functor that opforge/detail/elementwise.h takes
// too) becomes kernels of its dtypes and the function of the kernel table that launches them.
//
// Three kernels serve a call: `dense` where all operands lie one element after the other (16 bytes per load where they
// are aligned), `strided` otherwise, and `partial` for outputs that are summed to an input's shape, with `combine` where
// the sums are cut. The cuts depend on shapes only, so that sums have the same bits in every run.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "opforge/cuda/body.cuh"
#include "opforge/cuda/space.h"

#ifndef __CUDACC_RTC__  // which compiles for the device alone
#include <cuda_runtime.h>

#include "opforge/cuda/formula.h"
#include "opforge/cuda/launch.h"
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

template <class Index>
OPFORGE_INLINE int64_t offset_of(const Space& space, int kept, int operand, Index at) {
  int64_t offset = 0;
  for (int d = kept - 1; d >= 0; --d) {
    const Index size = static_cast<Index>(space.size[d]), rest = at / size;
    offset += static_cast<int64_t>(at - rest * size) * space.stride[operand][d];
    at = rest;
  }
  return offset;
}

// The sum of what `lanes` threads hold, in the first of them, added up in a tree. They lie `apart` from each other; all
// threads of the block come here.
template <class V>
OPFORGE_INLINE V tree(V value, V* row, int lanes, int apart) {
  if (lanes == 1) return value;
  const int thread = static_cast<int>(threadIdx.x), lane = thread / apart % lanes;
  row[thread] = value;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) row[thread] += row[thread + half * apart];
  }
  value = row[thread];
  __syncthreads();  // what is held next is written there
  return value;
}

// Output `which` at each element of its shape, summed over parts of what is summed to it. The dimensions that are kept
// come first in the space, those that are summed last. Without `sums` a part is all of a sum, and is the output.
template <class F, class S, class Index>
__global__ void partial(Space space, int which, Parts parts, void* sums) {
  using B = Body<F, S>;
  using V = typename B::V;
  __shared__ V row[kThreads];
  typename B::Attributes attributes;
  B::attributes(attributes, space.real, space.integer, typename B::AtIndices());
  const int groups = kThreads / parts.lanes, apart = parts.along != 0 ? 1 : groups;
  const int thread = static_cast<int>(threadIdx.x), lane = thread / apart % parts.lanes;
  const int group = parts.along != 0 ? thread / parts.lanes : thread % groups;
  const int64_t cells = parts.elements * parts.count;  // parts of neighbouring elements follow each other
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * groups; first < cells;
       first += static_cast<int64_t>(gridDim.x) * groups) {
    const int64_t cell = first + group;
    const Index part = static_cast<Index>(cell) / static_cast<Index>(parts.elements);
    const Index element = static_cast<Index>(cell) - part * static_cast<Index>(parts.elements);
    V sum = V(0);
    if (cell < cells) {
      int64_t base[B::kIn + B::kOut] = {};
      offsets<Index>(space, 0, parts.kept, element, B::kIn + B::kOut, base);
      const int64_t begin = static_cast<int64_t>(part) * parts.length, cut = begin + parts.length;
      const int64_t end = cut < parts.summed ? cut : parts.summed;
      for (int64_t at = begin + lane; at < end; at += parts.lanes) {
        int64_t offset[B::kIn + B::kOut];
        for (int o = 0; o < B::kIn + B::kOut; ++o) offset[o] = base[o];
        offsets<Index>(space, parts.kept, space.rank, static_cast<Index>(at), B::kIn + B::kOut, offset);
        typename B::Inputs in;
        typename B::Outputs out;
        B::load(in, space.data, offset, typename B::InIndices());
        B::run(in, attributes, out);
        sum += B::value(out, which, typename B::OutIndices());
      }
    }
    sum = tree(sum, row, parts.lanes, apart);
    if (lane != 0 || cell >= cells) continue;
    if (sums != nullptr) {
      static_cast<V*>(sums)[cell] = sum;
    } else {
      const int64_t offset = offset_of<Index>(space, parts.kept, B::kIn + which, element);
      reinterpret_cast<S*>(space.data[B::kIn + which])[offset] = Narrow<S>::of(sum);
    }
  }
}
// Adds the parts of each element. No formula takes part, so that it is compiled once per type.
template <class S, class V, class Index>
__global__ void combine(Space space, int operand, Parts parts, const V* sums) {
  __shared__ V row[kThreads];
  const int groups = kThreads / parts.together, lane = static_cast<int>(threadIdx.x) / groups;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * groups; first < parts.elements;
       first += static_cast<int64_t>(gridDim.x) * groups) {
    const int64_t element = first + static_cast<int>(threadIdx.x) % groups;
    V sum = V(0);
    if (element < parts.elements) {
      for (int64_t part = lane; part < parts.count; part += parts.together) {
        sum += sums[part * parts.elements + element];
      }
    }
    sum = tree(sum, row, parts.together, groups);
    if (lane != 0 || element >= parts.elements) continue;
    const int64_t offset = offset_of<Index>(space, parts.kept, operand, static_cast<Index>(element));
    reinterpret_cast<S*>(space.data[operand])[offset] = Narrow<S>::of(sum);
  }
}

#ifndef __CUDACC_RTC__
// ---- launching

// The kernels of formula F with T = S, launched by their names.
template <class F, class S>
class NamedKernels : public Launch {
 public:
  using Launch::Launch;
  using B = Body<F, S>;
  static constexpr int kWidth = 16 / B::kMost;

  int most_threads(FormulaKernel which) {
    switch (which) {
      case kWide:
        return most(dense<F, S, kWidth>);
      case kDense:
        return most(dense<F, S, 1>);
      case kStrided32:
        return most(strided<F, S, uint32_t>);
      default:
        return most(strided<F, S, uint64_t>);
    }
  }
  void values(FormulaKernel which, Grid grid, const Space& space, uint32_t wanted) {
    switch (which) {
      case kWide:
        dense<F, S, kWidth><<<grid.blocks, grid.threads, 0, stream()>>>(space, wanted);
        break;
      case kDense:
        dense<F, S, 1><<<grid.blocks, grid.threads, 0, stream()>>>(space, wanted);
        break;
      case kStrided32:
        strided<F, S, uint32_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, wanted);
        break;
      default:
        strided<F, S, uint64_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, wanted);
    }
  }
  void partial(FormulaKernel which, Grid grid, const Space& space, int output, const Parts& parts, void* sums) {
    if constexpr (B::sums()) {
      if (which == kPartial32)
        cuda::partial<F, S, uint32_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, output, parts, sums);
      else
        cuda::partial<F, S, uint64_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, output, parts, sums);
    }
  }
  void combine(FormulaKernel which, Grid grid, const Space& space, int operand, const Parts& parts, const void* sums) {
    if constexpr (B::sums()) {
      using V = typename B::V;
      const V* of = static_cast<const V*>(sums);
      if (which == kCombine32)
        cuda::combine<S, V, uint32_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, operand, parts, of);
      else
        cuda::combine<S, V, uint64_t><<<grid.blocks, grid.threads, 0, stream()>>>(space, operand, parts, of);
    }
  }

 private:
  template <class Kernel>
  static int most(Kernel kernel) {
    cudaFuncAttributes is = {};
    return cudaFuncGetAttributes(&is, kernel) == cudaSuccess ? is.maxThreadsPerBlock : 0;
  }
};

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
  const Formula formula = {{B::kIn, B::kAt, B::kOut, DtypesOf<S, typename F::Inputs>::kRow,
                            DtypesOf<S, typename F::Outputs>::kRow, F::kSumTo},
                           B::kMost,
                           sizeof(typename B::V)};
  return run_formula<NamedKernels<F, S>>(formula, context, inputs, outputs, attributes);
}

#endif  // __CUDACC_RTC__

}  // namespace cuda
}  // namespace opforge
