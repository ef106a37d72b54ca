// cuda.cu: the CUDA kernel of TiledMatMul. A block computes a tile of 64 x 64 sums; it takes 16 columns of `left` and
// 16 rows of `right` at a time into shared memory, from where every element is read 64 times. Its other variant is
// cuBLAS, which `opforge tune` measures against it.
#include "opforge/cuda/cublas.h"
#include "opforge/cuda/kernel.cuh"

using opforge::cuda::compute_t;  // float for halves and float, double for double
using opforge::cuda::View;

constexpr int kTile = 64;  // rows and columns of a block's sums
constexpr int kDeep = 16;  // of the products that are loaded at a time
constexpr int kSide = 16;  // threads in x and y
constexpr int kEach = kTile / kSide;  // sums of a thread in each direction: 4 x 4, in registers
// Shared memory has 32 banks of 4 bytes. Threads of a warp that store to different words of one bank take turns.
// `left` is stored turned, [depth][row]: a warp stores 16 depths of 2 rows. With rows of 64 words all 16 depths would
// fall into the same bank; with 66 they are 2 banks apart, and the two rows fill the gaps.
constexpr int kPad = 2;

constexpr int kByLibrary = 1;  // the variant that TUNING in cases.py names

template <class T>
__global__ void __launch_bounds__(kSide* kSide)
    multiply_tiles(View<const T, 2> left, View<const T, 2> right, View<T, 2> out, int64_t tiles_across) {
  using R = compute_t<T>;
  __shared__ R left_tile[kDeep][kTile + kPad];
  __shared__ R right_tile[kDeep][kTile];

  const int thread = threadIdx.x, x = thread % kSide, y = thread / kSide;
  // 64 bits: a matrix of 50,000 x 50,000 has more elements than an int counts.
  const int64_t first_row = blockIdx.x / tiles_across * kTile, first_column = blockIdx.x % tiles_across * kTile;
  const int64_t m = out.shape(0), n = out.shape(1), depth = left.shape(1);

  R sums[kEach][kEach] = {};
  for (int64_t start = 0; start < depth; start += kDeep) {
    // Every thread takes part in loading, those beyond the edges too: they store zeros, which add nothing. If they
    // returned, the others would wait for them in __syncthreads for ever.
    for (int i = thread; i < kTile * kDeep; i += kSide * kSide) {
      const int row = i / kDeep, column = i % kDeep;  // neighbours read neighbours
      const bool inside = first_row + row < m && start + column < depth;
      left_tile[column][row] = inside ? static_cast<R>(left(first_row + row, start + column)) : R(0);
    }
    for (int i = thread; i < kDeep * kTile; i += kSide * kSide) {
      const int row = i / kTile, column = i % kTile;
      const bool inside = start + row < depth && first_column + column < n;
      right_tile[row][column] = inside ? static_cast<R>(right(start + row, first_column + column)) : R(0);
    }
    __syncthreads();  // the tiles are whole before anyone reads them

    for (int d = 0; d < kDeep; ++d) {
      R rows[kEach], columns[kEach];
      // Rows y, y + 16, ...: a warp reads 2 words of `left_tile`, which go to all who ask, and 16 neighbours of
      // `right_tile`.
      for (int e = 0; e < kEach; ++e) rows[e] = left_tile[d][y + e * kSide];
      for (int e = 0; e < kEach; ++e) columns[e] = right_tile[d][x + e * kSide];
#pragma unroll
      for (int a = 0; a < kEach; ++a) {
#pragma unroll
        for (int b = 0; b < kEach; ++b) sums[a][b] += rows[a] * columns[b];
      }
    }
    __syncthreads();  // everyone has read them before the next ones come
  }

  for (int a = 0; a < kEach; ++a) {
    for (int b = 0; b < kEach; ++b) {
      const int64_t row = first_row + y + a * kSide, column = first_column + x + b * kSide;
      if (row < m && column < n) out(row, column) = opforge::cuda::narrow<T>(sums[a][b]);
    }
  }
}

template <class T>
opforge::Status tiled_matmul(opforge::cuda::Context& context, View<const T, 2> left, View<const T, 2> right,
                             View<T, 2> out) {
  auto launch = context.launch(out.size());
  if (!launch) return launch.status();
  const opforge_choice choice = context.tuned(left, right, out);
  if (choice.variant < 0 || choice.variant > kByLibrary)
    return context.fail(OPFORGE_STATUS_UNSUPPORTED, "there is no variant %d: 1 is cuBLAS", choice.variant);
  if (choice.variant == kByLibrary && left.shape(1) > 0) {  // an empty sum is not worth a call
    opforge::cuda::Use<opforge::cuda::Cublas> library(launch, choice);
    if (library)
      opforge::cuda::gemm(library, launch, left.data(), right.data(), out.data(), out.shape(0), out.shape(1),
                          left.shape(1));
    if (!library.missed()) return launch.finish();
  }
  const int64_t down = (out.shape(0) + kTile - 1) / kTile, across = (out.shape(1) + kTile - 1) / kTile;
  dim3 grid;
  if (!launch.grid(down * across, 1, 1, &grid)) return launch.status();
  multiply_tiles<T><<<grid, kSide * kSide, 0, launch.stream()>>>(left, right, out, across);
  return launch.finish();
}
