// driver.h: the functions of NVIDIA's driver that launch kernels, declared here: no header of CUDA is needed.
// The driver is looked for when the first kernel is launched.
#pragma once

#include <stdint.h>

namespace opforge::launcher {

constexpr int kThreadsOfBlock = 0;                           // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int kErrorLog = 5, kErrorLogBytes = 6;             // CU_JIT_ERROR_LOG_BUFFER*
constexpr int kRelaxed = 2;                                  // CU_STREAM_CAPTURE_MODE_RELAXED

// Statuses are CUresult, devices CUdevice; contexts, modules, functions and streams are addresses.
struct Driver {
  int (*init)(unsigned);
  int (*device)(int* device, int ordinal);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*retain_primary)(void** context, int device);
  int (*current)(void** context);
  int (*current_device)(int* device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*load)(void** module, const void* image, unsigned options, const int* kinds, void** values);
  int (*unload)(void* module);
  int (*function)(void** function, void* module, const char* name);
  int (*function_attribute)(int* value, int attribute, void* function);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                void** extra);
  int (*error_name)(int status, const char** text);
  int (*error_text)(int status, const char** text);
  // Not in every driver: nullptr there.
  int (*context_id)(void* context,
                    unsigned long long* id);  // a number that no later context has, from CUDA 12.0
  int (*exchange_capture_mode)(int* mode);
  int (*load_function)(void* function);  // what lazy loading leaves for the first launch, from CUDA 12.4
};

// The driver, started, or nullptr with the reason: `status` is what cuInit said, 0 where it was not called.
const Driver* driver(const char** reason, int* status);

}  // namespace opforge::launcher
