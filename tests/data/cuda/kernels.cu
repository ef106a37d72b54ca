// kernels.cu: kernels with a switch for faults, 0 = none. The same file compiles with nvcc.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "tiles.cuh"

enum Fault {
  kNone,
  kBeyond,           // reads and writes one element beyond the end
  kNoBarrierBefore,  // no barrier between loading a tile and using it
  kNoBarrierAfter,   // no barrier between using a tile and loading the next
  kSharedBeyond,     // writes beyond a shared array
  kDivergent,        // some threads return before a barrier
  kTwoBarriers,      // threads wait in different barriers
  kNotAtomic,        // blocks add to one number without an atomic
  kWrongMask,        // lanes name others that do not come
  kOtherMask,        // lanes meet with different masks
  kOverflow          // an int overflows
};

template <class T>
__global__ void gelu(const T* __restrict__ x, T* __restrict__ y, int64_t n, int fault) {
  const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  const int64_t end = fault == kBeyond ? n + 1 : n;
  for (int64_t i = first; i < end; i += (int64_t)blockDim.x * gridDim.x) {
    const float v = (float)x[i];
    y[i] = (T)(0.5f * v * (1.0f + erff(v * 0.70710678f)));  // fault: beyond
  }
}

template <int kSize>
__global__ void __launch_bounds__(kSize* kSize)
    matmul(const float* left, const float* right, float* out, int m, int n, int k, int fault) {
  __shared__ float a[kSize][kSize + 1], b[kSize][kSize];
  const int row = blockIdx.y * kSize + threadIdx.y, column = blockIdx.x * kSize + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += kSize) {
    load_tiles<kSize>(a, b, left, right, row, column, start, m, n, k);
    if (fault != kNoBarrierBefore) __syncthreads();
    for (int i = 0; i < kSize; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];  // fault: race
    if (fault != kNoBarrierAfter) __syncthreads();
    const int beyond = fault == kSharedBeyond ? kSize : 0;
    if (fault == kSharedBeyond) b[beyond][threadIdx.x] = 1.0f;  // fault: shared
  }
  if (fault == kDivergent && threadIdx.x == 0) return;
  if (fault == kDivergent) __syncthreads();
  if (fault == kTwoBarriers && threadIdx.x == 0) {
    __syncthreads();
  } else if (fault == kTwoBarriers) {
    __syncthreads();
  }
  if (row < m && column < n) out[row * n + column] = sum;
}

__global__ void total(const float* x, float* out, int n, int fault) {
  extern __shared__ float part[];
  const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += x[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = lane < (int)blockDim.x / warpSize ? part[lane] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0 && fault == kNotAtomic) {
      *out += sum;  // fault: atomic
    } else if (lane == 0) {
      atomicAdd(out, sum);
    }
  }
  if (fault == kWrongMask && threadIdx.x < 16) sum += __shfl_down_sync(0xffffffffu, sum, 1);
  if (fault == kOtherMask && threadIdx.x < 32) __syncwarp(threadIdx.x < 16 ? 0xffffffffu : 0xfffffffeu);
  const int many = fault == kOverflow ? 2147483000 : 0;
  if (many + n == 5) *out = 0.0f;  // fault: overflow
}

// What warps can do together: each lane writes what it got.
__global__ void warps(int* out) {
  const int lane = threadIdx.x % 32, half = lane / 16;
  const unsigned mask = half == 0 ? 0x0000ffffu : 0xffff0000u;  // the halves go their own ways
  int* mine = out + threadIdx.x * 12;
  mine[0] = __shfl_sync(0xffffffffu, lane, 5);
  mine[1] = __shfl_up_sync(0xffffffffu, lane, 3, 8);
  mine[2] = __shfl_down_sync(mask, lane, 1, 16);
  mine[3] = __shfl_xor_sync(0xffffffffu, lane, 7);
  mine[4] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
  if (half == 0) {
    mine[5] = (int)__ballot_sync(mask, lane > 3);
  } else {
    mine[5] = __any_sync(mask, lane == 20) * 10 + __all_sync(mask, lane > 15);
  }
  mine[6] = (int)__reduce_add_sync(mask, (unsigned)lane);
  mine[7] = (int)__match_any_sync(0xffffffffu, lane % 4);
  mine[8] = __syncthreads_count(lane < 4);
  mine[9] = __syncthreads_or(threadIdx.x == 40) + 2 * __syncthreads_and(lane >= 0);
  mine[10] = __popc(0xf0f0u) + __clz(1) + __ffs(8) + (int)__brev(1u << 31);
  mine[11] = (int)__reduce_max_sync(0xffffffffu, lane);
  if (lane > 20) return;
  __syncwarp();  // those that have returned are not missed
}

__global__ void count(unsigned* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&out[0], 1);
  atomicMax(&out[1], i);
  atomicMin(&out[2], i);
  atomicInc(&out[3], 6);
  atomicOr(&out[4], 1u << i % 32);
  unsigned seen = out[5], before;  // the usual loop around a compare and swap
  do {
    before = seen;
    seen = atomicCAS(&out[5], before, before + 2);
  } while (seen != before);
}

struct Scaled {
  float factor;
  template <class T>
  void launch(const T* x, T* y, int n, cudaStream_t stream) const;
};
template <class T>
__global__ void scale4(const float4* x, float4* y, T factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = make_float4(x[i].x * factor, x[i].y * factor, x[i].z * factor, x[i].w * factor);
}
template <>
void Scaled::launch<float>(const float* x, float* y, int n, cudaStream_t stream) const {
  scale4<float>
      <<<(n / 4 + 63) / 64,  // over several lines, with a comment "<<<" in between
         64, 0, stream>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y), factor, n / 4);
}

#ifndef OPFORGE_CUDA_EMULATED
__device__ unsigned lane_by_ptx() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
#endif

#define GELU(type, name)                                                                                   \
  extern "C" int gelu_##name(const void* x, void* y, int64_t n, int fault, cudaStream_t stream) {          \
    if (n == 0) return cudaSuccess;                                                                        \
    gelu<type><<<(unsigned)((n + 255) / 256), 256, 0, stream>>>((const type*)x, (type*)y, n, fault);       \
    return cudaGetLastError();                                                                             \
  }
GELU(float, f32)
GELU(__half, f16)
GELU(__nv_bfloat16, bf16)

extern "C" int matmul_16(const float* left, const float* right, float* out, int m, int n, int k, int fault,
                         cudaStream_t stream) {
  matmul<16><<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, stream>>>(left, right, out, m, n, k, fault);
  return cudaGetLastError();
}
extern "C" int total_f32(const float* x, float* out, int n, int fault, cudaStream_t stream) {
  total<<<4, 256, 8 * sizeof(float), stream>>>(x, out, n, fault);
  return cudaGetLastError();
}
extern "C" int warps_64(int* out, cudaStream_t stream) {
  warps<<<1, 64, 0, stream>>>(out);
  return cudaGetLastError();
}
extern "C" int count_n(unsigned* out, int n, cudaStream_t stream) {
  count<<<(n + 63) / 64, 64, 0, stream>>>(out, n);
  return cudaGetLastError();
}
extern "C" int scaled_f32(const float* x, float* y, int n, cudaStream_t stream) {
  Scaled{2.5f}.launch(x, y, n, stream);
  return cudaGetLastError();
}
extern "C" int shape(int grid, int block, int shared, int allowed, cudaStream_t stream) {
  if (allowed > 0) cudaFuncSetAttribute(total, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
  float x = 1.0f, out = 0.0f;
  total<<<grid, block, shared, stream>>>(&x, &out, 1, kNone);
  return cudaGetLastError();
}
