// driver.cpp: finds the driver's functions.
#include "launcher/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

namespace opforge::launcher {
namespace {

struct Found {
  Driver functions = {};
  char reason[512] = "";
  int status = 0;

  Found() {
    const char* named = getenv("OPFORGE_CUDA_DRIVER");
    void* library = dlopen(named != nullptr && *named != 0 ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* words = dlerror();
      snprintf(reason, sizeof reason, "no GPU: the NVIDIA driver is not installed: %s",
               words != nullptr ? words : "");
      return;
    }
    Driver& f = functions;
    const bool all =
        find(library, "cuInit", &f.init) && find(library, "cuDeviceGet", &f.device) &&
        find(library, "cuDeviceGetAttribute", &f.device_attribute) &&
        find(library, "cuDevicePrimaryCtxRetain", &f.retain_primary) &&
        find(library, "cuCtxGetCurrent", &f.current) && find(library, "cuCtxGetDevice", &f.current_device) &&
        find(library, "cuCtxPushCurrent_v2", &f.push) && find(library, "cuCtxPopCurrent_v2", &f.pop) &&
        find(library, "cuModuleLoadDataEx", &f.load) && find(library, "cuModuleUnload", &f.unload) &&
        find(library, "cuModuleGetFunction", &f.function) &&
        find(library, "cuFuncGetAttribute", &f.function_attribute) &&
        find(library, "cuLaunchKernel", &f.launch) && find(library, "cuGetErrorName", &f.error_name) &&
        find(library, "cuGetErrorString", &f.error_text);
    if (!all) return;
    look(library, "cuCtxGetId", &f.context_id);
    look(library, "cuThreadExchangeStreamCaptureMode", &f.exchange_capture_mode);
    look(library, "cuFuncLoad", &f.load_function);
    status = f.init(0);
    if (status != 0) snprintf(reason, sizeof reason, "the NVIDIA driver does not start");
  }

  template <class Function>
  static bool look(void* library, const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    return *function != nullptr;
  }
  template <class Function>
  bool find(void* library, const char* name, Function** function) {
    if (look(library, name, function)) return true;
    snprintf(reason, sizeof reason, "no GPU: the NVIDIA driver has no %s: it is too old", name);
    return false;
  }
};

}  // namespace

const Driver* driver(const char** reason, int* status) {
  static const Found found;
  *reason = found.reason;
  *status = found.status;
  const bool started = found.reason[0] == 0;
  return started || found.status != 0 ? &found.functions : nullptr;
}

}  // namespace opforge::launcher
