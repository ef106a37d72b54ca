// csr.cuh: what the kernels of SparseMatMul know of their sparse matrix, found on the device: whether it is one, and
// how uneven its rows are. The launches that follow read it there, so that nothing waits for it.
#pragma once

#include <cstdlib>

#include "opforge/cuda/kernel.cuh"

namespace csr {

using opforge::Status;
using opforge::cuda::Context;
using opforge::cuda::View;

// Rows of the matrix, columns, and entries; `starts` has rows + 1 positions.
template <class T, class I>
struct Matrix {
  const T* values;
  const I* columns;
  const I* starts;
  int64_t m, k, entries;
};

// A block for so many threads: smaller than usual where one is enough.
inline unsigned block_for(int64_t threads) {
  const int64_t whole = (threads + 31) / 32 * 32;
  return static_cast<unsigned>(whole < opforge::cuda::kThreads ? whole : opforge::cuda::kThreads);
}

enum Fault { kFirst, kDecreases, kLast, kColumn };  // in the order in which the kernel of the CPU looks for them
constexpr unsigned long long kNoFault = ~0ull;

// All bits are set before: minima are formed of it.
struct Facts {
  unsigned long long fault;    // kNoFault, or the kind in the upper 4 bits and its position below
  unsigned long long longest;  // ~entries of the longest row
  long long words[3];          // of the fault, for people: two numbers and a row
};

__device__ inline bool is_valid(const Facts* facts) { return facts->fault == kNoFault; }

template <class T, class I>
__global__ void measure(Matrix<T, I> a, Facts* facts) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  unsigned long long fault = kNoFault, longest = ~0ull;
  const auto found = [&fault](Fault kind, int64_t position) {
    const unsigned long long code = static_cast<unsigned long long>(kind) << 60 | static_cast<uint64_t>(position);
    fault = code < fault ? code : fault;
  };
  for (int64_t r = first; r <= a.m; r += step) {
    const int64_t begin = a.starts[r], end = r < a.m ? static_cast<int64_t>(a.starts[r + 1]) : begin;
    if (r == 0 && begin != 0) found(kFirst, 0);
    if (end < begin) found(kDecreases, r);
    if (r == a.m && begin != a.entries) found(kLast, r);
    const unsigned long long inverse = ~static_cast<unsigned long long>(end - begin);
    if (end > begin && inverse < longest) longest = inverse;
  }
  for (int64_t p = first; p < a.entries; p += step) {
    const int64_t column = a.columns[p];
    if (column < 0 || column >= a.k) found(kColumn, p);
  }
  if (fault != kNoFault) atomicMin(&facts->fault, fault);
  // One atomic per warp: all its lanes are here.
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, longest, lanes);
    longest = other < longest ? other : longest;
  }
  if (threadIdx.x % 32 == 0 && longest != ~0ull) atomicMin(&facts->longest, longest);
}

// The row that holds entry p: rows that end before it are empty or earlier.
template <class I>
__device__ inline int64_t row_of(const I* starts, int64_t m, int64_t p) {
  int64_t low = 0, high = m - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (static_cast<int64_t>(starts[middle + 1]) <= p) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class T, class I>
__global__ void explain(Matrix<T, I> a, Facts* facts) {
  const int64_t at = static_cast<int64_t>(facts->fault & ~(15ull << 60));
  if (facts->fault >> 60 == kColumn) {
    facts->words[0] = a.columns[at];
    facts->words[2] = row_of(a.starts, a.m, at);
  } else if (facts->fault != kNoFault) {
    facts->words[0] = a.starts[at];
    if (facts->fault >> 60 == kDecreases) facts->words[1] = a.starts[at + 1];
  }
}

// Whether launchers wait for the device and refuse what is no CSR matrix, in the CPU's words. Otherwise results are NaN
// then. The emulator has nothing to wait for.
inline bool is_checked() {
#ifdef OPFORGE_CUDA_EMULATED
  return true;
#else
  static const bool asked = [] {
    const char* value = std::getenv("OPFORGE_CUDA_CHECK");
    return value != nullptr && value[0] != 0 && value[0] != '0';
  }();
  return asked;
#endif
}

inline Status refuse(Context& context, const Facts& facts, int64_t m, int64_t k, int64_t entries) {
  const long long at = static_cast<long long>(facts.fault & ~(15ull << 60));
  switch (static_cast<Fault>(facts.fault >> 60)) {
    case kFirst:
      return context.fail("indptr[0] is %lld, expected 0", facts.words[0]);
    case kDecreases:
      return context.fail("indptr decreases at row %lld: indptr[%lld] is %lld, indptr[%lld] is %lld", at, at,
                          facts.words[0], at + 1, facts.words[1]);
    case kLast:
      return context.fail("indptr[%lld] is %lld, expected the number of entries, %lld", static_cast<long long>(m),
                          facts.words[0], static_cast<long long>(entries));
    default:
      return context.fail("indices[%lld] (row %lld) is %lld, expected 0 <= index < %lld", at, facts.words[2],
                          facts.words[0], static_cast<long long>(k));
  }
}

// Launches what finds the facts; `facts` is null where that failed, and the status says why.
template <class T, class I>
Status find_facts(Context& context, opforge::cuda::Launch& launch, const Matrix<T, I>& a, Facts** facts) {
  *facts = context.scratch<Facts>(1);
  const cudaStream_t stream = launch.stream();
  if (!launch.ok(cudaMemsetAsync(*facts, 0xff, sizeof(Facts), stream))) return launch.status();
  const int64_t most = a.m + 1 > a.entries ? a.m + 1 : a.entries;
  measure<T, I><<<opforge::cuda::blocks_for((most + 3) / 4), block_for((most + 3) / 4), 0, stream>>>(a, *facts);
  if (!is_checked()) return launch.finish();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone) {
    static_cast<void>(cudaGetLastError());  // a stream that records cannot be waited for
    return launch.finish();
  }
  explain<T, I><<<1, 1, 0, stream>>>(a, *facts);
  Facts found;
  if (!launch.ok(cudaMemcpyAsync(&found, *facts, sizeof found, cudaMemcpyDeviceToHost, stream)) ||
      !launch.ok(cudaStreamSynchronize(stream)))
    return launch.status();
  return found.fault == kNoFault ? launch.finish() : refuse(context, found, a.m, a.k, a.entries);
}

template <class T>
__device__ inline T not_a_number() {
  return opforge::cuda::narrow<T>(static_cast<opforge::cuda::compute_t<T>>(nanf("")));
}

}  // namespace csr
