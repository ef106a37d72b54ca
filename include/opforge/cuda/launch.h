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
#include <stdio.h>

#include "opforge/abi.h"
#include "opforge/cuda/architectures.h"
#include "opforge/cuda/grid.h"

// What the library embeds, "sm_80 sm_90 compute_90"; the build gives it.
#ifndef OPFORGE_CUDA_ARCHITECTURES
#define OPFORGE_CUDA_ARCHITECTURES ""
#endif

namespace opforge {
namespace cuda {

// Errors whose status is not INTERNAL, and what a user should read before CUDA's own words.
struct ErrorKind {
  int error;
  opforge_status status;
  const char* meaning;
};
constexpr ErrorKind kErrorKinds[] = {
    {cudaErrorMemoryAllocation, OPFORGE_STATUS_OUT_OF_MEMORY, "the GPU has no memory left: "},
    {cudaErrorInsufficientDriver, OPFORGE_STATUS_UNSUPPORTED, ""},  // see driver_meaning
    {cudaErrorNoDevice, OPFORGE_STATUS_UNSUPPORTED, "no GPU: "},
    {cudaErrorInvalidDevice, OPFORGE_STATUS_INVALID_ARGUMENT, "no such GPU: "},
    {cudaErrorNoKernelImageForDevice, OPFORGE_STATUS_UNSUPPORTED,
     "the library has no code for this GPU (it was built for " OPFORGE_CUDA_ARCHITECTURES "): "},
};

inline opforge_status fail(opforge_context* context, opforge_status status, const char* text) {
  return context->error != nullptr ? context->error(context, status, text) : status;
}
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
  ErrorKind kind = {0, OPFORGE_STATUS_INTERNAL, ""};
  for (const ErrorKind& one : kErrorKinds) {
    if (one.error == error) kind = one;
  }
  char of_driver[256] = "";
  if (error == cudaErrorInsufficientDriver) driver_meaning(of_driver, sizeof of_driver);
  char text[512];
  snprintf(text, sizeof text, "%s%s%s (%d): %s", kind.meaning, of_driver, cudaGetErrorName(error),
           static_cast<int>(error), cudaGetErrorString(error));
  return fail(context, kind.status, text);
}

class Launch {
 public:
  // `elements`: how many the kernels compute.
  Launch(opforge_context* context, int64_t elements) : context_(context) {
    if (elements > 0) ready_ = enter();
  }
  ~Launch() {
    if (restored_ >= 0 && cudaSetDevice(restored_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  explicit operator bool() const { return ready_; }
  opforge_status status() const { return status_; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(context_->stream); }

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

  // Memory of the device until the kernels have run, or null.
  void* scratch(size_t bytes, size_t alignment = 16) {
    void* memory = context_->scratch != nullptr ? context_->scratch(context_, bytes, alignment) : nullptr;
    if (memory == nullptr)
      refuse(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory on the GPU for intermediate results");
    return memory;
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
    const opforge_device device = context_->device;
    if (device.type != OPFORGE_DEVICE_CUDA)
      return refuse(OPFORGE_STATUS_INVALID_ARGUMENT, "a CUDA kernel was called for another device");
    int current = 0;
    if (!ok(cudaGetDevice(&current))) return false;
    if (current != device.id) {
      if (!ok(cudaSetDevice(device.id))) return false;
      restored_ = current;
    }
    int major = 0, minor = 0;
    if (!ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.id)) ||
        !ok(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.id)))
      return false;
    const int capability = 10 * major + minor;
    if (serves(OPFORGE_CUDA_ARCHITECTURES, capability)) {
      static_cast<void>(cudaGetLastError());  // what an earlier call left is not this kernel's
      return true;
    }
    char text[400];
    say_unserved(OPFORGE_CUDA_ARCHITECTURES, capability, text, sizeof text);
    return refuse(OPFORGE_STATUS_UNSUPPORTED, text);
  }

  bool refuse(opforge_status status, const char* text) {
    if (status_ == OPFORGE_STATUS_OK) status_ = fail(context_, status, text);
    return false;
  }

  opforge_context* context_;
  opforge_status status_ = OPFORGE_STATUS_OK;
  int restored_ = -1;
  bool ready_ = false;
};

// Whether all tensors lie on the context's device; otherwise says which does not.
inline opforge_status same_device(opforge_context* context, const opforge_arguments* arguments,
                                  const char* kind) {
  for (int32_t k = 0; k < arguments->n_tensors; ++k) {
    const opforge_device is = arguments->tensors[k].device, wanted = context->device;
    if (is.type == wanted.type && is.id == wanted.id) continue;
    char text[160];
    snprintf(text, sizeof text,
             "%s %d lies on another device (type %d, number %d) than the call's (type %d, number %d)", kind,
             k, is.type, is.id, wanted.type, wanted.id);
    return fail(context, OPFORGE_STATUS_INVALID_ARGUMENT, text);
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace cuda
}  // namespace opforge
