// device.h: kernels per device. The library for a device is loaded when the first tensor there comes, that
// for the CPU too where another device's was registered first: by what the host's Python side sets here,
// which finds or builds them.
#pragma once

#include <atomic>
#include <string>

#include "common/plan.h"

namespace opforge::adapter {

// Defines, with the host that set it, a library that holds the operator's kernels for a device. Returns a
// status; on failure the words are in the buffer.
using DeviceLoader = int32_t (*)(const char* key, int32_t device_type, char* words, size_t size);

inline std::atomic<DeviceLoader>& device_loader() {
  static std::atomic<DeviceLoader> loader{nullptr};
  return loader;
}

// Has the library with an operator's kernels for a device brought in; raises with the words of what is
// missing. Takes no lock while the loader runs, which may want the lock of an interpreter.
inline void load_device(const Plan& plan, int32_t device_type) {
  const DeviceLoader loader = device_loader().load(std::memory_order_acquire);
  if (loader == nullptr) return;
  std::string words(16384, '\0');
  const int32_t status = loader(plan.key.c_str(), device_type, words.data(), words.size());
  if (status != OPFORGE_STATUS_OK) throw Failure(status, words.c_str());
}

// The operator's kernel on a device, whose library is loaded where no kernel is known yet. A tensor on a
// device never goes to the CPU by itself: where there is no kernel this raises with what is missing. There is
// one library for the CPU, so that it is asked for only where nothing is known for the CPU at all.
inline const opforge_kernel* device_kernel(const Plan& plan, const opforge_dtype* bound,
                                           int32_t device_type) {
  const size_t variables = plan.signature.types.size();
  if (const opforge_kernel* const found = plan.kernels.find(bound, variables, device_type)) return found;
  if (device_type != OPFORGE_DEVICE_CPU || !plan.kernels.serve(device_type)) load_device(plan, device_type);
  return plan.kernel(bound, device_type);
}

}  // namespace opforge::adapter
