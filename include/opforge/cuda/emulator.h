// emulator.h: CUDA C++ on a CPU, for tests. An author's unchanged .cu, passed through opforge.cuda.rewrite
// (which replaces `k<<<...>>>(...)` and `__shared__`), compiles against this instead of cuda_runtime.h.
//
// Blocks run one after another and the threads of a block take turns, so a run says whether the kernel is
// right, not how fast it is. Not modelled: inline PTX, wmma/mma, cp.async and TMA, cooperative groups,
// textures, kernels that launch kernels, and blocks that wait for each other. Functions of math.h are the
// CPU's; their last bits differ.
#pragma once

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "opforge/cuda/scheduler.h"

#define OPFORGE_CUDA_EMULATED 1
#define __CUDA_ARCH_EMULATED__ 1

#define __global__ __attribute__((unused))
#define __device__
#define __host__
#define __constant__ static
#define __managed__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

#define threadIdx (::opforge::cuda::opforge_cuda_now()->thread)
#define blockIdx (::opforge::cuda::opforge_cuda_now()->block)
#define blockDim (::opforge::cuda::opforge_cuda_now()->block_dim)
#define gridDim (::opforge::cuda::opforge_cuda_now()->grid_dim)
#define warpSize 32

#define __syncthreads() static_cast<void>(::opforge::cuda::opforge_cuda_barrier(__LINE__, 0))
#define __syncthreads_count(predicate) ::opforge::cuda::opforge_cuda_barrier(__LINE__, (predicate) ? 1 : 0)
#define __syncthreads_or(predicate) \
  (::opforge::cuda::opforge_cuda_barrier(__LINE__, (predicate) ? 1 : 0) != 0 ? 1 : 0)
#define __syncthreads_and(predicate) \
  (::opforge::cuda::opforge_cuda_barrier(__LINE__, (predicate) ? 0 : 1) == 0 ? 1 : 0)

#define OPFORGE_VECTOR_TYPE(type, name)                                                  \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                               \
  struct name##3 { type x, y, z; };                                                      \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                       \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }            \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
OPFORGE_VECTOR_TYPE(char, char)
OPFORGE_VECTOR_TYPE(unsigned char, uchar)
OPFORGE_VECTOR_TYPE(short, short)
OPFORGE_VECTOR_TYPE(unsigned short, ushort)
OPFORGE_VECTOR_TYPE(int, int)
OPFORGE_VECTOR_TYPE(float, float)
OPFORGE_VECTOR_TYPE(double, double)
OPFORGE_VECTOR_TYPE(long long, longlong)
#undef OPFORGE_VECTOR_TYPE
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#include "opforge/cuda/emulator_runtime.h"

namespace opforge::cuda {

// What `__shared__ T name;` becomes: the block's variable of this declaration (and, in a template, instance).
template <class T>
T& shared(const void* key, const char* name) {
  return *static_cast<T*>(opforge_cuda_shared(key, sizeof(T), alignof(T) < 16 ? 16 : alignof(T), name));
}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(opforge_cuda_dynamic_shared());
}

// What `kernel<<<grid, block, shared, stream>>>(arguments...)` becomes. Arguments are evaluated once and
// copied for each thread.
class Launcher {
 public:
  Launcher(const char* name, dim3 grid, dim3 block, size_t dynamic = 0, cudaStream_t stream = nullptr)
      : name_(name), grid_(grid), block_(block), dynamic_(dynamic), stream_(stream) {}
  template <class Kernel, class... Arguments>
  void operator()(Kernel kernel, Arguments... arguments) const {
    std::tuple<Arguments...> copies(arguments...);
    auto one = [&] { std::apply(kernel, std::tuple<Arguments...>(copies)); };
    opforge_cuda_launch(
        grid_, block_, dynamic_, stream_, name_,
        [](void* thread) { (*static_cast<decltype(one)*>(thread))(); }, &one);
  }

 private:
  const char* name_;
  dim3 grid_, block_;
  size_t dynamic_;
  cudaStream_t stream_;
};

}  // namespace opforge::cuda

#include "opforge/cuda/emulator_math.h"
#include "opforge/cuda/emulator_warp.h"
