// launch.h: what every launcher does around its kernels, under nvcc and in the emulator.
//
//   opforge::cuda::Launch launch(context, elements);  // 0 elements: nothing of CUDA is called
//   if (!launch) return launch.status();
//   kernel<<<blocks_for(elements), kThreads, 0, launch.stream()>>>(...);
//   return launch.finish();
//
// The context's device is current in between, and the one that was before afterwards. Nothing is allocated
// and nothing waited for, so that launches can be captured into graphs.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "opforge/abi.h"
#include "opforge/cuda/call.h"
#include "opforge/cuda/grid.h"

// What the library embeds, "sm_80 sm_90 compute_90"; the build gives it.
#ifndef OPFORGE_CUDA_ARCHITECTURES
#define OPFORGE_CUDA_ARCHITECTURES ""
#endif

namespace opforge {
namespace cuda {

static_assert(kNoMemory == cudaErrorMemoryAllocation && kDriverTooOld == cudaErrorInsufficientDriver, "");
static_assert(kNoDevice == cudaErrorNoDevice && kInvalidDevice == cudaErrorInvalidDevice, "");
static_assert(kBadImage == cudaErrorInvalidKernelImage && kNoImage == cudaErrorNoKernelImageForDevice, "");

// What 35 means: no driver, or one of an older major version than the runtime in this library.
inline void driver_meaning(char* text, size_t size) {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (driver == 0) {
    snprintf(text, size, "no GPU: there is no NVIDIA driver here: ");
  } else if (driver >= runtime) {
    snprintf(text, size, "no GPU: the NVIDIA driver, of CUDA %d.%d, does not start: ", driver / 1000,
             driver % 1000 / 10);
  } else {
    snprintf(text, size,
             "the library was built with CUDA %d.%d, the driver here serves CUDA %d.%d at most: update the "
             "driver, or build the library with a toolkit of CUDA %d (CUDA_HOME names one): ",
             runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10, driver / 1000);
  }
}
// CUDA's error as a status, with its name, number and text.
inline opforge_status fail(opforge_context* context, cudaError_t error) {
  char of_driver[256] = "";
  if (error == cudaErrorInsufficientDriver) driver_meaning(of_driver, sizeof of_driver);
  return fail(context, static_cast<int>(error), cudaGetErrorName(error), cudaGetErrorString(error),
              OPFORGE_CUDA_ARCHITECTURES, of_driver);
}

class Launch : public Call {
 public:
  // `elements`: how many the kernels compute.
  Launch(opforge_context* context, int64_t elements) : Call(context) {
    if (elements > 0) ready_ = enter();
  }
  ~Launch() {
    if (restored_ >= 0 && cudaSetDevice(restored_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(context_->stream); }
  opforge_context* context() const { return context_; }
  using Call::refuse;

  // The grid of a kernel in which every block has its own work, or false beyond what CUDA can launch.
  bool grid(int64_t x, int64_t y, int64_t z, dim3* made) {
    const bool fits = x > 0 && y > 0 && z > 0 && x <= INT32_MAX && y <= 65535 && z <= 65535;
    if (!fits)
      return refuse(OPFORGE_STATUS_UNSUPPORTED, "the tensors need more blocks than one launch can have");
    *made = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
    return true;
  }

  // Lets `kernel` have that much dynamic shared memory, which CUDA grants beyond 48 KiB less what the kernel
  // declares only where it is asked. It is asked for all there is, so that calls at once do not take it from
  // each other.
  template <class Kernel>
  bool allow_shared(Kernel kernel, size_t bytes) {
    cudaFuncAttributes is = {};
    if (!ok(cudaFuncGetAttributes(&is, kernel))) return false;
    if (bytes <= static_cast<size_t>(is.maxDynamicSharedSizeBytes)) return true;
    int limit = 0;
    if (!ok(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, context_->device.id)))
      return false;
    const size_t most = static_cast<size_t>(limit) - is.sharedSizeBytes;
    if (bytes > most)
      return refuse(OPFORGE_STATUS_UNSUPPORTED, "the kernel needs more shared memory than this GPU has");
    return ok(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)));
  }

  // Whether a call of CUDA's succeeded; its error is the launch's otherwise.
  bool ok(cudaError_t error) {
    if (error == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // it is told here, and must not be found again by a later call
    if (status_ == OPFORGE_STATUS_OK) status_ = fail(context_, error);
    return false;
  }

  // After the last launch: its error, or the first of what went wrong before.
  opforge_status finish() {
    const cudaError_t error = cudaGetLastError();
    if (status_ == OPFORGE_STATUS_OK && error != cudaSuccess) status_ = fail(context_, error);
    return status_;
  }

 private:
  bool enter() {
    if (!is_for_cuda()) return false;
    const int device = context_->device.id;
    int current = 0;
    if (!ok(cudaGetDevice(&current))) return false;
    if (current != device) {
      if (!ok(cudaSetDevice(device))) return false;
      restored_ = current;
    }
    int major = 0, minor = 0;
    if (!ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) ||
        !ok(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)))
      return false;
    if (!has_code(OPFORGE_CUDA_ARCHITECTURES, 10 * major + minor)) return false;
    static_cast<void>(cudaGetLastError());  // what an earlier call left is not this kernel's
    return true;
  }

  int restored_ = -1;
};

}  // namespace cuda
}  // namespace opforge
