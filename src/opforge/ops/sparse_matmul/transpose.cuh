// transpose.cuh: a CSR matrix by columns: its entries sorted by column, those of a column in the order of rows. A radix
// sort of 8 bits per pass that keeps the order of equals, so that the result is the same in every run.
//
//   count     entries of each digit in each tile of 8,192
//   add_up    where each tile's entries of each digit go
//   place     there they go, 256 at a time: rank among the equals of the warp, of the warps before, of what is placed
#pragma once

#include "csr.cuh"

namespace csr {

constexpr int kDigits = 256;
constexpr int kSorters = 256;  // threads; one per digit where digits are added up
constexpr int64_t kTile = 8192;
constexpr int kAdders = 256;
constexpr int kAdded = 8;  // counts of a thread at a time

// `order` is null in the first pass: entries are where they were.
template <class I>
__global__ void __launch_bounds__(kSorters)
    count_digits(const I* keys, int64_t n, int shift, int64_t tiles, int64_t* counts, const Facts* facts) {
  __shared__ int found[kDigits];
  if (!is_valid(facts)) return;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    found[threadIdx.x] = 0;
    __syncthreads();
    const int64_t end = (tile + 1) * kTile < n ? (tile + 1) * kTile : n;
    for (int64_t p = tile * kTile + threadIdx.x; p < end; p += kSorters)
      atomicAdd(&found[static_cast<uint64_t>(keys[p]) >> shift & (kDigits - 1)], 1);
    __syncthreads();
    counts[threadIdx.x * tiles + tile] = found[threadIdx.x];  // by digit, then by tile: the order of the result
    __syncthreads();
  }
}

// Each count becomes the sum of those before it. One block.
template <class I>
__global__ void __launch_bounds__(kAdders) add_up(int64_t* counts, int64_t n, const Facts* facts) {
  __shared__ int64_t row[kAdders];
  if (!is_valid(facts)) return;
  int64_t before = 0;
  const int me = static_cast<int>(threadIdx.x);
  for (int64_t start = 0; start < n; start += kAdders * kAdded) {
    const int64_t first = start + me * kAdded;
    int64_t mine = 0;
    for (int64_t at = first; at < n && at < first + kAdded; ++at) mine += counts[at];
    row[me] = mine;
    __syncthreads();
    for (int reach = 1; reach < kAdders; reach *= 2) {
      const int64_t other = me >= reach ? row[me - reach] : 0;
      __syncthreads();
      row[me] += other;
      __syncthreads();
    }
    int64_t sum = before + row[me] - mine;
    for (int64_t at = first; at < n && at < first + kAdded; ++at) {
      const int64_t count = counts[at];
      counts[at] = sum;
      sum += count;
    }
    before += row[kAdders - 1];
    __syncthreads();
  }
}

template <class I>
__global__ void __launch_bounds__(kSorters)
    place_digits(const I* keys, const I* order, int64_t n, int shift, int64_t tiles, const int64_t* counts, I* to_keys,
                 I* to_order, const Facts* facts) {
  constexpr int kWarps = kSorters / 32;
  __shared__ int64_t next[kDigits];          // where the next entry of a digit goes
  __shared__ int64_t places[kWarps][kDigits];  // where a warp's first one goes
  __shared__ int counted[kWarps][kDigits];
  if (!is_valid(facts)) return;
  const int me = static_cast<int>(threadIdx.x), warp = me / 32, lane = me % 32;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    next[me] = counts[me * tiles + tile];
    const int64_t end = (tile + 1) * kTile < n ? (tile + 1) * kTile : n;
    for (int64_t start = tile * kTile; start < end; start += kSorters) {
      for (int w = 0; w < kWarps; ++w) counted[w][me] = 0;
      __syncthreads();
      const bool inside = start + me < end;
      const I key = inside ? keys[start + me] : I(0);
      const int digit = inside ? static_cast<int>(static_cast<uint64_t>(key) >> shift & (kDigits - 1)) : kDigits;
      const unsigned equals = __match_any_sync(0xffffffffu, digit);
      const int rank = __popc(equals & ((1u << lane) - 1u));
      if (inside && rank == 0) counted[warp][digit] = __popc(equals);
      __syncthreads();
      int64_t at = next[me];
      for (int w = 0; w < kWarps; ++w) {
        places[w][me] = at;
        at += counted[w][me];
      }
      next[me] = at;
      __syncthreads();
      if (inside) {
        const int64_t to = places[warp][digit] + rank;
        to_keys[to] = key;
        to_order[to] = order != nullptr ? order[start + me] : static_cast<I>(start + me);
      }
      __syncthreads();
    }
  }
}

// From the sorted keys and the order: rows and values of the entries, and where each column's begin.
template <class T, class I>
__global__ void gather(Matrix<T, I> a, const I* keys, const I* order, T* values, I* rows, I* starts,
                       const Facts* facts) {
  if (!is_valid(facts)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  for (int64_t q = first; q < a.entries; q += step) {
    const int64_t p = order[q];
    values[q] = a.values[p];
    rows[q] = static_cast<I>(row_of(a.starts, a.m, p));
  }
  for (int64_t column = first; column <= a.k; column += step) {
    int64_t low = 0, high = a.entries;  // the first key that is not below `column`
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (static_cast<int64_t>(keys[middle]) < column) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    starts[column] = static_cast<I>(low);
  }
}

// The longest row of the transposed matrix, in place of that of the matrix itself.
template <class I>
__global__ void measure_rows(const I* starts, int64_t m, Facts* facts) {
  if (!is_valid(facts)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned long long longest = ~0ull;
  for (int64_t r = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; r < m; r += step) {
    const unsigned long long inverse = ~static_cast<unsigned long long>(starts[r + 1] - starts[r]);
    longest = inverse < longest ? inverse : longest;
  }
  if (longest != ~0ull) atomicMin(&facts->longest, longest);
}

template <class T, class I>
Matrix<T, I> transposed(Context& context, opforge::cuda::Launch& launch, const Matrix<T, I>& a, Facts* facts) {
  using opforge::cuda::blocks_for;
  using opforge::cuda::blocks_of;
  const cudaStream_t stream = launch.stream();
  const int64_t n = a.entries, tiles = (n + kTile - 1) / kTile;
  T* values = context.scratch<T>(n);
  I* rows = context.scratch<I>(n);
  I* starts = context.scratch<I>(a.k + 1);
  I* keys[2] = {context.scratch<I>(n), context.scratch<I>(n)};
  I* order[2] = {context.scratch<I>(n), context.scratch<I>(n)};
  int64_t* counts = context.scratch<int64_t>(tiles * kDigits);
  const I* sorted = a.columns;
  const I* positions = nullptr;
  for (int pass = 0; n > 0 && (pass == 0 || static_cast<uint64_t>(a.k - 1) >> (8 * pass) != 0); ++pass) {
    I *to_keys = keys[pass % 2], *to_order = order[pass % 2];
    count_digits<I><<<blocks_of(tiles), kSorters, 0, stream>>>(sorted, n, 8 * pass, tiles, counts, facts);
    add_up<I><<<1, kAdders, 0, stream>>>(counts, tiles * kDigits, facts);
    place_digits<I><<<blocks_of(tiles), kSorters, 0, stream>>>(sorted, positions, n, 8 * pass, tiles, counts, to_keys,
                                                               to_order, facts);
    sorted = to_keys;
    positions = to_order;
    if (8 * (pass + 1) >= static_cast<int>(8 * sizeof(I))) break;
  }
  const int64_t most = n > a.k + 1 ? n : a.k + 1;
  gather<T, I><<<blocks_for(most), block_for(most), 0, stream>>>(a, sorted, positions, values, rows, starts,
                                                                        facts);
  launch.ok(cudaMemsetAsync(&facts->longest, 0xff, sizeof facts->longest, stream));
  measure_rows<I><<<blocks_for(a.k), block_for(a.k), 0, stream>>>(starts, a.k, facts);
  return {values, rows, starts, a.k, a.m, n};
}

}  // namespace csr
