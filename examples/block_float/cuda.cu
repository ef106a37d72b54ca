// cuda.cu: the CUDA kernel of BlockFloat. Sixteen lanes of a warp share a block: neighbours read neighbours, and the
// largest magnitude goes round by shuffles.
#include "opforge/cuda/kernel.cuh"

using opforge::cuda::compute_t;  // float for halves and float, double for double
using opforge::cuda::View;

constexpr int kLanes = 16;
constexpr unsigned kWarp = 0xFFFFFFFFu;

// Binary exponent of the smallest number above 0 that R holds: no step is finer.
template <class R>
constexpr int kFinest = sizeof(R) == 8 ? -1074 : -149;

template <class T>
__global__ void round_blocks(View<const T> x, int64_t columns, int64_t in_row, int64_t blocks, int64_t block, int bits,
                             View<T> y) {
  using R = compute_t<T>;
  const int lane = threadIdx.x % kLanes;
  const int64_t groups = static_cast<int64_t>(gridDim.x) * blockDim.x / kLanes;
  const int64_t mine = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) / kLanes;
  const R most = static_cast<R>((1 << (bits - 1)) - 1);
  // All lanes of a warp go round equally often, or those that are done would be missing at the shuffles.
  for (int64_t round = 0; round < blocks; round += groups) {
    const int64_t k = round + mine;
    const bool inside = k < blocks;
    const int64_t begin = k % in_row * block, row = k / in_row * columns;
    const int64_t end = inside ? (begin + block < columns ? begin + block : columns) : begin;
    R largest = 0;
    for (int64_t i = begin + lane; i < end; i += kLanes) {
      const R magnitude = fabs(static_cast<R>(x[row + i]));
      if (isfinite(magnitude)) largest = fmax(largest, magnitude);
    }
    for (int other = kLanes / 2; other > 0; other /= 2) largest = fmax(largest, __shfl_xor_sync(kWarp, largest, other));
    int exponent = 0;
    frexp(largest, &exponent);
    exponent = exponent - (bits - 1) < kFinest<R> ? kFinest<R> : exponent - (bits - 1);
    const R step = ldexp(R(1), exponent);
    for (int64_t i = begin + lane; i < end; i += kLanes) {
      const R value = static_cast<R>(x[row + i]);
      const R rounded = fmax(-most, fmin(most, rint(value / step)));  // halves to even
      y[row + i] = opforge::cuda::narrow<T>(isfinite(value) ? rounded * step : value);
    }
  }
}

template <class T>
opforge::Status block_float(opforge::cuda::Context& context, View<const T> x, int64_t block, int64_t bits, View<T> y) {
  if (block < 1) return context.fail("block is %lld, expected at least 1", static_cast<long long>(block));
  if (bits < 2 || bits > 24) return context.fail("bits is %lld, expected 2 to 24", static_cast<long long>(bits));
  auto launch = context.launch(x.size());
  if (!launch) return launch.status();
  const int64_t columns = x.ndim() == 0 ? 1 : x.shape(-1);
  block = block < columns ? block : columns;  // it may be any number: what is added to it must stay in range
  const int64_t in_row = (columns + block - 1) / block;
  const int64_t blocks = x.size() / columns * in_row;
  round_blocks<T><<<opforge::cuda::blocks_for(blocks * kLanes), opforge::cuda::kThreads, 0, launch.stream()>>>(
      x, columns, in_row, blocks, block, static_cast<int>(bits), y);
  return launch.finish();
}
