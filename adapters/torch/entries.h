// entries.h: the entry points that are the same on both routes. Included once, by the file that has the
// others.
#pragma once

#include <cstdio>
#include <utility>

#include "common/device.h"
#include "torch_cuda.h"

extern "C" {

// Status and text of this thread's last failure, which is forgotten then; 0 where there is none.
OPFORGE_EXPORT int32_t opforge_torch_last_failure(char* text, size_t size) {
  opforge::adapter::LastFailure& last = opforge::adapter::last_failure();
  std::snprintf(text, size, "%s", last.text.c_str());
  return std::exchange(last.status, OPFORGE_STATUS_OK);
}

// Where PyTorch's CUDA side lies, if it has one. Before the first CUDA tensor comes.
OPFORGE_EXPORT void opforge_torch_set_cuda(const char* libtorch_cuda) {
  opforge::torch_host::libtorch_cuda() = libtorch_cuda;
}

// What is asked for kernels on a device that are not known yet; see common/device.h.
OPFORGE_EXPORT void opforge_torch_set_device_loader(opforge::adapter::DeviceLoader loader) {
  opforge::adapter::device_loader().store(loader, std::memory_order_release);
}

}  // extern "C"
