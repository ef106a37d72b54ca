// emulator_runtime.h: the part of CUDA's runtime that launchers of kernels use. There are two devices, whose
// memory is the host's; streams run what they are given at once.
#pragma once

#include <cstdlib>
#include <cstring>

#include "opforge/cuda/scheduler.h"

typedef struct opforge_cuda_stream* cudaStream_t;
typedef struct opforge_cuda_event* cudaEvent_t;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidKernelImage = 200,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

inline cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(opforge::cuda::opforge_cuda_last_error(1));
}
inline cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(opforge::cuda::opforge_cuda_last_error(0));
}
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define OPFORGE_CUDA_NAME(name) \
  case name:                    \
    return #name;
    OPFORGE_CUDA_NAME(cudaSuccess)
    OPFORGE_CUDA_NAME(cudaErrorInvalidValue)
    OPFORGE_CUDA_NAME(cudaErrorMemoryAllocation)
    OPFORGE_CUDA_NAME(cudaErrorInvalidConfiguration)
    OPFORGE_CUDA_NAME(cudaErrorInsufficientDriver)
    OPFORGE_CUDA_NAME(cudaErrorNoDevice)
    OPFORGE_CUDA_NAME(cudaErrorInvalidDevice)
    OPFORGE_CUDA_NAME(cudaErrorInvalidKernelImage)
    OPFORGE_CUDA_NAME(cudaErrorNoKernelImageForDevice)
    OPFORGE_CUDA_NAME(cudaErrorIllegalAddress)
    OPFORGE_CUDA_NAME(cudaErrorLaunchOutOfResources)
    OPFORGE_CUDA_NAME(cudaErrorLaunchFailure)
    OPFORGE_CUDA_NAME(cudaErrorNotSupported)
#undef OPFORGE_CUDA_NAME
  }
  return "cudaErrorUnknown";
}
inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  const bool of_launch = error == cudaErrorInvalidConfiguration || error == cudaErrorLaunchFailure;
  return of_launch ? opforge::cuda::opforge_cuda_error_text() : cudaGetErrorName(error);
}

inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = opforge::cuda::kDevices, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  return *device = opforge::cuda::opforge_cuda_device(-1), cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= opforge::cuda::kDevices) return cudaErrorInvalidDevice;
  return opforge::cuda::opforge_cuda_device(device), cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaPeekAtLastError(); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaPeekAtLastError(); }
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  const bool capturing = opforge::cuda::opforge_cuda_capturing(-1) != 0;
  return *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = static_cast<cudaStreamCaptureMode>(opforge::cuda::opforge_cuda_capture_mode(*mode));
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 49152;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 232448;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  *memory = static_cast<T*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *memory == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes != 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  if (bytes != 0) std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(memory, value, bytes);
}

// What a kernel declares is not known here.
struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  int maxDynamicSharedSizeBytes, maxThreadsPerBlock;
};
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
  *attributes = {0, 49152, 1024};
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    opforge::cuda::opforge_cuda_allow_shared(static_cast<size_t>(value));
  return cudaPeekAtLastError();
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, Kernel, size_t = 0, int most = 0) {
  *threads = most > 0 && most < 256 ? most : 256;
  *blocks = 8;
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads, size_t = 0) {
  *blocks = threads > 0 ? 2048 / threads : 0;
  return cudaSuccess;
}
