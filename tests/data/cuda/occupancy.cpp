// occupancy.cpp: NVIDIA's own calculator, from the header cuda_occupancy.h, as a filter: a case per line in,
// the number of resident blocks out.
#include <cstdio>
#include <cstring>

#include "cuda_occupancy.h"

int main() {
  int capability, warps, most_shared, block_shared, reserved, threads, registers, shared;
  while (std::scanf("%d %d %d %d %d %d %d %d", &capability, &warps, &most_shared, &block_shared, &reserved,
                    &threads, &registers, &shared) == 8) {
    cudaOccDeviceProp device;
    std::memset(static_cast<void*>(&device), 0, sizeof device);
    device.computeMajor = capability / 10;
    device.computeMinor = capability % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = static_cast<size_t>(most_shared);
    device.sharedMemPerBlockOptin = static_cast<size_t>(block_shared);
    device.reservedSharedMemPerBlock = static_cast<size_t>(reserved);
    device.numSms = 4;
    cudaOccFuncAttributes kernel;
    std::memset(static_cast<void*>(&kernel), 0, sizeof kernel);
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(block_shared);
    cudaOccDeviceState state;
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    state.cacheConfig = CACHE_PREFER_NONE;
    state.carveoutConfig = 100;
    cudaOccResult result;
    const auto error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads,
                                                               static_cast<size_t>(shared));
    std::printf("%d\n", error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
