// multiply.cuh: a CSR matrix times a dense one on the device, in two variants of which one computes.
//
// Threads form groups of 4 to 32 lanes, as many as the columns need; a lane has W neighbouring columns, 16 bytes where
// rows are aligned. A group takes the entries of a row 32 at a time into shared memory, where every lane reads all of
// them, and keeps its columns' sums in registers.
//
//   by rows   a group per row (and stretch of columns): the best where rows are alike
//   merged    a group per 256 of rows and entries together (the merge path of Merrill and Garland, SC 2016), however
//             long a row is; sums of rows that were cut are put together afterwards, in order
//
// Which it is follows from the longest row, which the device knows: both are launched, and one returns at once. In
// either, the order of additions depends on sizes and positions alone.
#pragma once

#include "csr.cuh"

namespace csr {

using opforge::cuda::compute_t;
using opforge::cuda::Pack;

constexpr int kStaged = 32;    // entries of a group in shared memory at a time
constexpr int kSegment = 256;  // rows and entries of a merged group
constexpr int kUneven = 4;     // the longest row in terms of the mean above which segments are the better variant

// As TUNING in cases.py numbers them. kLibrary adds in a fixed order, kLibraryAnyOrder in any.
enum Variant { kByDevice, kByRows, kMerged, kLibrary, kLibraryAnyOrder };

inline bool is_variant(int variant) { return variant >= kByDevice && variant <= kLibraryAnyOrder; }
inline bool is_library(int variant) { return variant >= kLibrary; }
inline int own_variant(int variant) { return is_library(variant) ? static_cast<int>(kByDevice) : variant; }
inline Status refuse_variant(Context& context, int variant) {
  return context.fail(OPFORGE_STATUS_UNSUPPORTED,
                      "there is no variant %d: 1 is by rows, 2 merged, 3 cuSPARSE, 4 cuSPARSE in any order", variant);
}

__device__ inline bool is_merged(const Facts* facts, int64_t m, int64_t entries, int variant) {
  if (variant != kByDevice) return variant == kMerged;
  const int64_t longest = static_cast<int64_t>(~facts->longest);
  return longest > kSegment && longest * m > kUneven * entries;
}

// How threads are shared out. Tasks, numbered from 0, are (row or segment, stretch of columns).
struct Shape {
  int64_t n, stretches;
  int lanes;
};
template <int W>
Shape shape_for(int64_t n) {
  int lanes = 4;
  while (lanes < 32 && static_cast<int64_t>(lanes) * W < n) lanes *= 2;
  return {n, (n + lanes * W - 1) / (lanes * W), lanes};
}

// A group of lanes: where it is, and its part of shared memory.
template <class R, class I>
struct Group {
  int lane, lanes;
  unsigned mask;  // of its lanes within the warp
  int64_t first, step;  // tasks
  R* values;
  I* columns;

  __device__ Group(const Shape& shape, unsigned char* memory) : lanes(shape.lanes) {
    const int groups = static_cast<int>(blockDim.x) / lanes, mine = static_cast<int>(threadIdx.x) / lanes;
    lane = static_cast<int>(threadIdx.x) % lanes;
    const unsigned all = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    mask = all << (static_cast<int>(threadIdx.x) % 32 / lanes * lanes);
    first = blockIdx.x * static_cast<int64_t>(groups) + mine;
    step = static_cast<int64_t>(gridDim.x) * groups;
    // One more than a group needs: groups of a warp read different banks at the same place of theirs.
    values = reinterpret_cast<R*>(memory) + mine * (kStaged + 1);
    const int before = (groups * (kStaged + 1) + 1) / 2 * 2;  // an even number: 64-bit columns may follow 32-bit values
    columns = reinterpret_cast<I*>(reinterpret_cast<R*>(memory) + before) + mine * (kStaged + 1);
  }
};
template <class R, class I>
size_t shared_bytes(const Shape& shape) {
  return static_cast<size_t>(opforge::cuda::kThreads / shape.lanes * (kStaged + 1)) * (sizeof(R) + sizeof(I));
}

// Adds entries [begin, end) times W columns from `column` on to sums. All lanes of the group come, those beyond the
// last column too.
template <int W, class T, class I, class R>
__device__ void accumulate(const Group<R, I>& group, const Matrix<T, I>& a, int64_t begin, int64_t end, const T* dense,
                           int64_t n, int64_t column, R (&sums)[W]) {
  for (int64_t p = begin; p < end; p += kStaged) {
    const int count = static_cast<int>(end - p < kStaged ? end - p : kStaged);
    for (int e = group.lane; e < count; e += group.lanes) {
      group.values[e] = static_cast<R>(opforge::cuda::widen(a.values[p + e]));
      group.columns[e] = a.columns[p + e];
    }
    __syncwarp(group.mask);
    if (column < n) {
#pragma unroll 4
      for (int e = 0; e < count; ++e) {
        const T* from = dense + static_cast<int64_t>(group.columns[e]) * n + column;
        const Pack<T, W> pack = opforge::cuda::load_pack<T, W>(from);
        const R value = group.values[e];
#pragma unroll
        for (int w = 0; w < W; ++w) {
          sums[w] = opforge::cuda::fused(value, static_cast<R>(opforge::cuda::widen(pack.element[w])), sums[w]);
        }
      }
    }
    __syncwarp(group.mask);
  }
}

template <int W, class T, class R>
__device__ void store(T* to, const R (&sums)[W]) {
  Pack<T, W> pack;
#pragma unroll
  for (int w = 0; w < W; ++w) pack.element[w] = opforge::cuda::narrow<T>(sums[w]);
  opforge::cuda::store_pack<T, W>(to, pack);
}

template <int W, class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads)
    by_rows(Matrix<T, I> a, const T* dense, T* out, Shape shape, const Facts* facts, int variant) {
  using R = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  const bool valid = is_valid(facts);
  if (valid && is_merged(facts, a.m, a.entries, variant)) return;
  const Group<R, I> group(shape, memory);
  for (int64_t task = group.first; task < a.m * shape.stretches; task += group.step) {
    const int64_t row = task / shape.stretches;
    const int64_t column = (task % shape.stretches * shape.lanes + group.lane) * W;
    R sums[W] = {};
    if (valid) {
      accumulate<W>(group, a, a.starts[row], a.starts[row + 1], dense, shape.n, column, sums);
    } else {  // what is no CSR matrix must not be followed
#pragma unroll
      for (int w = 0; w < W; ++w) sums[w] = static_cast<R>(nanf(""));
    }
    if (column < shape.n) store<W>(out + row * shape.n + column, sums);
  }
}

// Where segment s begins: how many rows and entries come before place s * kSegment of the merged list, in which a row's
// end comes after its entries.
struct Place {
  int64_t row, entry;
};
template <class I>
__device__ inline Place place_of(const I* starts, int64_t m, int64_t entries, int64_t segment) {
  const int64_t at = segment * kSegment < m + entries ? segment * kSegment : m + entries;
  int64_t low = at > entries ? at - entries : 0, high = at < m ? at : m;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (static_cast<int64_t>(starts[middle + 1]) <= at - middle - 1) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {low, at - low};
}

// `cut` holds two rows of sums per segment: of the row that began before it and ends in it, and of the one that goes on
// behind it.
template <int W, class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads)
    merged(Matrix<T, I> a, const T* dense, T* out, Shape shape, const Facts* facts, int variant, int64_t segments,
           compute_t<T>* cut) {
  using R = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  if (!is_valid(facts) || !is_merged(facts, a.m, a.entries, variant)) return;
  const Group<R, I> group(shape, memory);
  for (int64_t task = group.first; task < segments * shape.stretches; task += group.step) {
    const int64_t segment = task / shape.stretches;
    const int64_t column = (task % shape.stretches * shape.lanes + group.lane) * W;
    const Place begin = place_of(a.starts, a.m, a.entries, segment);
    const Place end = place_of(a.starts, a.m, a.entries, segment + 1);
    int64_t p = begin.entry;
    for (int64_t row = begin.row; row <= end.row && row < a.m; ++row) {
      const bool whole = row < end.row;
      const int64_t stop = whole ? static_cast<int64_t>(a.starts[row + 1]) : end.entry;
      const bool began = row > begin.row || static_cast<int64_t>(a.starts[row]) == begin.entry;
      R sums[W] = {};
      accumulate<W>(group, a, p, stop, dense, shape.n, column, sums);
      p = stop;
      if (column >= shape.n) continue;
      if (whole && began) {
        store<W>(out + row * shape.n + column, sums);
      } else {
        R* to = cut + (segment * 2 + (whole ? 0 : 1)) * shape.n + column;
#pragma unroll
        for (int w = 0; w < W; ++w) to[w] = sums[w];
      }
    }
  }
}

// Puts together the rows that segments have cut: a thread per segment in which such a row ends, and column.
template <class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads)
    join(Matrix<T, I> a, T* out, int64_t n, const Facts* facts, int variant, int64_t segments,
         const compute_t<T>* cut) {
  if (!is_valid(facts) || !is_merged(facts, a.m, a.entries, variant)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < segments * n; at += step) {
    const int64_t segment = at / n, column = at % n;
    const Place begin = place_of(a.starts, a.m, a.entries, segment);
    const Place end = place_of(a.starts, a.m, a.entries, segment + 1);
    if (begin.row >= end.row || static_cast<int64_t>(a.starts[begin.row]) == begin.entry) continue;
    // The row's first entry lies at place row + start of the merged list.
    const int64_t first = (begin.row + static_cast<int64_t>(a.starts[begin.row])) / kSegment;
    compute_t<T> sum = 0;
    for (int64_t s = first; s < segment; ++s) sum += cut[(s * 2 + 1) * n + column];
    sum += cut[segment * 2 * n + column];
    out[begin.row * n + column] = opforge::cuda::narrow<T>(sum);
  }
}

template <int W, class T, class I>
void launch_width(const Matrix<T, I>& a, const T* dense, int64_t n, T* out, const Facts* facts, int variant,
                  compute_t<T>* cut, int64_t segments, cudaStream_t stream) {
  using opforge::cuda::blocks_for;
  using R = compute_t<T>;
  const Shape shape = shape_for<W>(n);
  const size_t shared = shared_bytes<R, I>(shape);
  int64_t threads = a.m * shape.stretches * shape.lanes;
  by_rows<W, T, I>
      <<<blocks_for(threads), block_for(threads), shared, stream>>>(a, dense, out, shape, facts, variant);
  if (cut == nullptr) return;
  threads = segments * shape.stretches * shape.lanes;
  merged<W, T, I><<<blocks_for(threads), block_for(threads), shared, stream>>>(a, dense, out, shape, facts, variant,
                                                                              segments, cut);
  threads = segments * n;
  join<T, I><<<blocks_for(threads), block_for(threads), 0, stream>>>(a, out, n, facts, variant, segments, cut);
}

// out[m, n] = a dense[k, n]; NaN everywhere where a is no CSR matrix.
template <class T, class I>
void multiply(Context& context, const Matrix<T, I>& a, const T* dense, int64_t n, T* out, const Facts* facts,
              int variant) {
  // No row can be long enough for the other variant: then it is not launched.
  const bool one = variant == kByRows || (variant == kByDevice && a.entries <= kSegment) || a.entries == 0;
  const int64_t segments = (a.m + a.entries + kSegment - 1) / kSegment;
  compute_t<T>* cut = one ? nullptr : context.scratch<compute_t<T>>(segments * 2 * n);
  constexpr int kWide = opforge::cuda::kPack<T>;
  const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  if (n % kWide == 0 && aligned(dense) && aligned(out)) {
    launch_width<kWide>(a, dense, n, out, facts, one ? kByRows : variant, cut, segments, context.stream());
  } else {
    launch_width<1>(a, dense, n, out, facts, one ? kByRows : variant, cut, segments, context.stream());
  }
}

}  // namespace csr
