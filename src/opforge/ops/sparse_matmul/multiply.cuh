// multiply.cuh: a CSR matrix times a dense one on the device, in two variants of which one computes.
//
// Threads form groups of 4 to 32 lanes, as many as the columns need; a lane has W neighbouring columns, 16 bytes where
// rows are aligned. A group takes the entries of a row 32 at a time into shared memory, where every lane reads all of
// them, and keeps its columns' sums in registers. Up to 4 columns are computed across instead: a group's 2 to 32 lanes,
// about as many as a row has entries, share out the entries, and add up their sums in a tree.
//
//   by rows   a group per row (and stretch of columns): the best where rows are alike
//   merged    a group per segment of rows and entries together (the merge path of Merrill and Garland, SC 2016),
//             however long a row is; sums of rows that were cut are put together afterwards, in order
//
// Which it is follows from the number of rows and the longest one, which the device knows: both are launched, and one returns at once. In
// either, the order of additions depends on sizes and positions alone.
#pragma once

#include "csr.cuh"

namespace csr {

using opforge::cuda::compute_t;
using opforge::cuda::Pack;

constexpr int kStaged = 32;    // entries of a group in shared memory at a time
constexpr int kUneven = 4;     // the longest row in terms of the mean above which segments are the better variant
constexpr int kFew = 256;      // rows, times stretches of 128 columns, below which segments are the better variant too
constexpr int kAcross = 4;     // columns that are computed across
constexpr int kSpan = 64;      // segments of a cut row above which a block puts it together
// Blocks of a multiprocessor. Without it the compiler aims at more of them for sm_90, and spills.
constexpr int kResident = 4;

// Of columns; whatever the alignment, since the order of additions follows from it.
inline int64_t stretches_of(int64_t n) { return (n + 127) / 128; }

// Rows and entries of a segment: 256, and more where that would be more segments than keep a device busy, which have
// two rows of sums each.
inline int64_t segment_for(int64_t m, int64_t entries, int64_t n) {
  const int64_t tasks = 16384 / stretches_of(n), most = tasks > 16 ? tasks : 16;
  int64_t segment = 256;
  while (segment * most < m + entries) segment *= 2;
  return segment;
}

// As TUNING in cases.py numbers them. kLibrary adds in a fixed order, kLibraryAnyOrder in any.
enum Variant { kByDevice, kByRows, kMerged, kLibrary, kLibraryAnyOrder };

inline bool is_variant(int variant) { return variant >= kByDevice && variant <= kLibraryAnyOrder; }
inline bool is_library(int variant) { return variant >= kLibrary; }
inline int own_variant(int variant) { return is_library(variant) ? static_cast<int>(kByDevice) : variant; }
inline Status refuse_variant(Context& context, int variant) {
  return context.fail(OPFORGE_STATUS_UNSUPPORTED,
                      "there is no variant %d: 1 is by rows, 2 merged, 3 cuSPARSE, 4 cuSPARSE in any order", variant);
}

// How threads are shared out. Tasks, numbered from 0, are (row or segment, stretch of columns).
struct Shape {
  int64_t n, stretches;
  int lanes;
  int64_t segment, segments;  // of the merged variant
  bool few;                   // rows: too few groups by rows for a device
};
template <int W>
Shape shape_for(int64_t n) {
  int lanes = 4;
  while (lanes < 32 && static_cast<int64_t>(lanes) * W < n) lanes *= 2;
  return {n, (n + lanes * W - 1) / (lanes * W), lanes, 0, 0, false};
}
inline Shape shape_across(int64_t n, int64_t m, int64_t entries) {
  int lanes = 2;
  while (lanes < 32 && lanes * m < entries) lanes *= 2;
  return {n, 1, lanes, 0, 0, false};
}

template <class T, class I>
__device__ bool is_merged(const Facts* facts, const Matrix<T, I>& a, const Shape& shape, int variant) {
  if (variant != kByDevice) return variant == kMerged;
  const int64_t longest = static_cast<int64_t>(~facts->longest);
  return longest > shape.segment && (shape.few || longest * a.m > kUneven * a.entries);
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

// The same across: lanes take entries in turn, and all of them have the sums of `n` <= W columns afterwards.
template <int W, class T, class I, class R>
__device__ void accumulate_across(const Group<R, I>& group, const Matrix<T, I>& a, int64_t begin, int64_t end,
                                  const T* dense, int64_t n, R (&sums)[W]) {
  for (int64_t p = begin + group.lane; p < end; p += group.lanes) {
    const R value = static_cast<R>(opforge::cuda::widen(a.values[p]));
    const T* from = dense + static_cast<int64_t>(a.columns[p]) * n;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if (w < n) sums[w] = opforge::cuda::fused(value, static_cast<R>(opforge::cuda::widen(from[w])), sums[w]);
    }
  }
  for (int reach = group.lanes / 2; reach > 0; reach /= 2) {
#pragma unroll
    for (int w = 0; w < W; ++w) sums[w] += __shfl_xor_sync(group.mask, sums[w], reach);
  }
}

template <int W, class T, class R>
__device__ void store(T* to, const R (&sums)[W]) {
  Pack<T, W> pack;
#pragma unroll
  for (int w = 0; w < W; ++w) pack.element[w] = opforge::cuda::narrow<T>(sums[w]);
  opforge::cuda::store_pack<T, W>(to, pack);
}

// The columns of a lane in both ways of sharing them out.
template <int W, bool kIsAcross, class T, class I>
struct Columns {
  using R = compute_t<T>;
  const Shape& shape;
  const Group<R, I>& group;
  int64_t first;

  __device__ Columns(const Shape& s, const Group<R, I>& g, int64_t task)
      : shape(s), group(g), first(kIsAcross ? 0 : (task % s.stretches * s.lanes + g.lane) * W) {}

  __device__ void add(const Matrix<T, I>& a, int64_t begin, int64_t end, const T* dense, R (&sums)[W]) const {
    if constexpr (kIsAcross) {
      accumulate_across<W>(group, a, begin, end, dense, shape.n, sums);
    } else {
      accumulate<W>(group, a, begin, end, dense, shape.n, first, sums);
    }
  }
  // Whether this lane has columns to write.
  __device__ bool writes() const { return kIsAcross ? group.lane == 0 : first < shape.n; }
  __device__ void write(T* row, const R (&sums)[W]) const {
    if constexpr (kIsAcross) {
#pragma unroll
      for (int w = 0; w < W; ++w) {
        if (w < shape.n) row[w] = opforge::cuda::narrow<T>(sums[w]);
      }
    } else {
      store<W>(row + first, sums);
    }
  }
  __device__ void keep(R* row, const R (&sums)[W]) const {
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if (!kIsAcross || w < shape.n) row[first + w] = sums[w];
    }
  }
};

template <int W, bool kIsAcross, class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads, kResident)
    by_rows(Matrix<T, I> a, const T* dense, T* out, Shape shape, const Facts* facts, int variant) {
  using R = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  const bool valid = is_valid(facts);
  if (valid && is_merged(facts, a, shape, variant)) return;
  const Group<R, I> group(shape, memory);
  for (int64_t task = group.first; task < a.m * shape.stretches; task += group.step) {
    const int64_t row = task / shape.stretches;
    const Columns<W, kIsAcross, T, I> columns(shape, group, task);
    R sums[W] = {};
    if (valid) {
      columns.add(a, a.starts[row], a.starts[row + 1], dense, sums);
    } else {  // what is no CSR matrix must not be followed
#pragma unroll
      for (int w = 0; w < W; ++w) sums[w] = static_cast<R>(nanf(""));
    }
    if (columns.writes()) columns.write(out + row * shape.n, sums);
  }
}

// Where segment s begins: how many rows and entries come before place s * size of the merged list, in which a row's end
// comes after its entries.
struct Place {
  int64_t row, entry;
};
template <class I>
__device__ inline Place place_of(const I* starts, int64_t m, int64_t entries, int64_t size, int64_t segment) {
  const int64_t at = segment * size < m + entries ? segment * size : m + entries;
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

// A row that ends in a segment and began in an earlier one, `first`; row -1 where there is none.
struct Ending {
  int64_t row, first;
};

// `cut` holds two rows of sums per segment: of the row that began before it and ends in it, and of the one that goes on
// behind it.
template <int W, bool kIsAcross, class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads, kResident)
    merged(Matrix<T, I> a, const T* dense, T* out, Shape shape, const Facts* facts, int variant, compute_t<T>* cut,
           Ending* endings) {
  using R = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  if (!is_valid(facts) || !is_merged(facts, a, shape, variant)) return;
  const Group<R, I> group(shape, memory);
  for (int64_t task = group.first; task < shape.segments * shape.stretches; task += group.step) {
    const int64_t segment = task / shape.stretches;
    const Columns<W, kIsAcross, T, I> columns(shape, group, task);
    const Place begin = place_of(a.starts, a.m, a.entries, shape.segment, segment);
    const Place end = place_of(a.starts, a.m, a.entries, shape.segment, segment + 1);
    if (task % shape.stretches == 0 && group.lane == 0) {
      const int64_t start = begin.row < end.row ? static_cast<int64_t>(a.starts[begin.row]) : begin.entry;
      // The row's first entry lies at place row + start of the merged list.
      endings[segment] = start < begin.entry ? Ending{begin.row, (begin.row + start) / shape.segment} : Ending{-1, 0};
    }
    int64_t p = begin.entry;
    for (int64_t row = begin.row; row <= end.row && row < a.m; ++row) {
      const bool whole = row < end.row;
      const int64_t stop = whole ? static_cast<int64_t>(a.starts[row + 1]) : end.entry;
      const bool began = row > begin.row || static_cast<int64_t>(a.starts[row]) == begin.entry;
      R sums[W] = {};
      columns.add(a, p, stop, dense, sums);
      p = stop;
      if (!columns.writes()) continue;
      if (whole && began) {
        columns.write(out + row * shape.n, sums);
      } else {
        columns.keep(cut + (segment * 2 + (whole ? 0 : 1)) * shape.n, sums);
      }
    }
  }
}

// Puts together the rows that few segments have cut: a thread per segment in which such a row ends, and column.
template <class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads)
    join(Matrix<T, I> a, T* out, Shape shape, const Facts* facts, int variant, const compute_t<T>* cut,
         const Ending* endings) {
  if (!is_valid(facts) || !is_merged(facts, a, shape, variant)) return;
  const int64_t n = shape.n, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < shape.segments * n; at += step) {
    const int64_t segment = at / n, column = at % n;
    const Ending ending = endings[segment];
    if (ending.row < 0 || segment - ending.first > kSpan) continue;
    compute_t<T> sum = 0;
    for (int64_t s = ending.first; s < segment; ++s) sum += cut[(s * 2 + 1) * n + column];
    sum += cut[segment * 2 * n + column];
    out[ending.row * n + column] = opforge::cuda::narrow<T>(sum);
  }
}

// And those that many have: a block per row and stretch of up to 32 columns, whose threads take segments in turn.
template <class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads)
    join_long(Matrix<T, I> a, T* out, Shape shape, const Facts* facts, int variant, const compute_t<T>* cut,
              const Ending* endings, int across) {
  using R = compute_t<T>;
  __shared__ R sums[opforge::cuda::kThreads];
  if (!is_valid(facts) || !is_merged(facts, a, shape, variant)) return;
  const int thread = static_cast<int>(threadIdx.x), part = thread / across, parts = opforge::cuda::kThreads / across;
  for (int64_t segment = blockIdx.x; segment < shape.segments; segment += gridDim.x) {
    const Ending ending = endings[segment];
    if (ending.row < 0 || segment - ending.first <= kSpan) continue;
    for (int64_t first = static_cast<int64_t>(blockIdx.y) * across; first < shape.n;
         first += static_cast<int64_t>(gridDim.y) * across) {
      const int64_t column = first + thread % across;
      R sum = 0;
      if (column < shape.n) {
        for (int64_t s = ending.first + part; s < segment; s += parts) sum += cut[(s * 2 + 1) * shape.n + column];
      }
      sums[thread] = sum;
      __syncthreads();
      for (int reach = parts / 2; reach > 0; reach /= 2) {
        if (part < reach) sums[thread] += sums[thread + reach * across];
        __syncthreads();
      }
      if (part == 0 && column < shape.n)
        out[ending.row * shape.n + column] =
            opforge::cuda::narrow<T>(sums[thread] + cut[segment * 2 * shape.n + column]);
      __syncthreads();
    }
  }
}

template <class T, class I>
void launch_join(const Matrix<T, I>& a, T* out, const Shape& shape, const Facts* facts, int variant,
                 const compute_t<T>* cut, const Ending* endings, cudaStream_t stream) {
  const int64_t threads = shape.segments * shape.n;
  join<T, I><<<opforge::cuda::blocks_for(threads), block_for(threads), 0, stream>>>(a, out, shape, facts, variant, cut,
                                                                                   endings);
  if (shape.segments <= kSpan) return;  // no row can be cut so often
  int across = 1;
  while (across < 32 && across < shape.n) across *= 2;
  const int64_t stretches = (shape.n + across - 1) / across;
  const dim3 grid(static_cast<unsigned>(shape.segments < 256 ? shape.segments : 256),
                  static_cast<unsigned>(stretches < 64 ? stretches : 64));
  join_long<T, I>
      <<<grid, opforge::cuda::kThreads, 0, stream>>>(a, out, shape, facts, variant, cut, endings, across);
}

template <int W, bool kIsAcross, class T, class I>
void launch_shape(const Matrix<T, I>& a, const T* dense, const Shape& shape, T* out, const Facts* facts, int variant,
                  compute_t<T>* cut, Ending* endings, cudaStream_t stream) {
  using opforge::cuda::blocks_for;
  const size_t shared = kIsAcross ? 0 : shared_bytes<compute_t<T>, I>(shape);
  int64_t threads = a.m * shape.stretches * shape.lanes;
  by_rows<W, kIsAcross, T, I>
      <<<blocks_for(threads), block_for(threads), shared, stream>>>(a, dense, out, shape, facts, variant);
  if (cut == nullptr) return;
  threads = shape.segments * shape.stretches * shape.lanes;
  merged<W, kIsAcross, T, I><<<blocks_for(threads), block_for(threads), shared, stream>>>(a, dense, out, shape, facts,
                                                                                         variant, cut, endings);
  launch_join(a, out, shape, facts, variant, cut, endings, stream);
}

// out[m, n] = a dense[k, n]; NaN everywhere where a is no CSR matrix.
template <class T, class I>
void multiply(Context& context, const Matrix<T, I>& a, const T* dense, int64_t n, T* out, const Facts* facts,
              int variant) {
  constexpr int kWide = opforge::cuda::kPack<T>;
  const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  const bool across = n <= kAcross, wide = n % kWide == 0 && aligned(dense) && aligned(out);
  Shape shape = across ? shape_across(n, a.m, a.entries) : wide ? shape_for<kWide>(n) : shape_for<1>(n);
  shape.segment = segment_for(a.m, a.entries, n);
  shape.segments = (a.m + a.entries + shape.segment - 1) / shape.segment;
  shape.few = a.m * stretches_of(n) < kFew;
  // No row can be long enough for the other variant: then it is not launched.
  const bool one = variant == kByRows || (variant == kByDevice && a.entries <= shape.segment) || a.entries == 0;
  if (one) variant = kByRows;
  compute_t<T>* cut = one ? nullptr : context.scratch<compute_t<T>>(shape.segments * 2 * n);
  Ending* endings = one ? nullptr : context.scratch<Ending>(shape.segments);
  const cudaStream_t stream = context.stream();
  if (across && n == 1) {
    launch_shape<1, true>(a, dense, shape, out, facts, variant, cut, endings, stream);
  } else if (across) {
    launch_shape<kAcross, true>(a, dense, shape, out, facts, variant, cut, endings, stream);
  } else if (wide) {
    launch_shape<kWide, false>(a, dense, shape, out, facts, variant, cut, endings, stream);
  } else {
    launch_shape<1, false>(a, dense, shape, out, facts, variant, cut, endings, stream);
  }
}

}  // namespace csr
