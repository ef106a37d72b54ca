// device.h: what nodes on a GPU take from ONNX Runtime: the provider that runs them, and memory of its
// device.
#pragma once

#include <string>

#include "onnxruntime/api.h"
#include "opforge/abi.h"

namespace opforge::onnxruntime_host {

struct ProviderRow {
  int32_t device_type;
  const char* name;  // NULL = the CPU's
};

inline constexpr ProviderRow kProviders[] = {{OPFORGE_DEVICE_CPU, nullptr},
                                             {OPFORGE_DEVICE_CUDA, "CUDAExecutionProvider"}};

// NULL where no provider runs kernels for the device.
inline const ProviderRow* provider_of(int32_t device_type) {
  for (const ProviderRow& row : kProviders) {
    if (row.device_type == device_type) return &row;
  }
  return nullptr;
}

// The memory that the provider of one node gives to it; nothing for nodes on the CPU.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (allocator_ != nullptr) api().ReleaseAllocator(allocator_);
  }

  // Returns the device's number.
  int32_t open(const KernelInfo* info, const std::string& where) {
    int32_t number = 0;
    check(api().KernelInfoGetAllocator(info, 0, &allocator_), where);
    check(api().AllocatorGetInfo(allocator_, &info_), where);
    check(api().MemoryInfoGetId(info_, &number), where);
    return number;
  }

  // Memory for one run. ONNX Runtime hands freed memory to nodes on other streams too, unless it knows the
  // stream that used it; what the context gives carries its stream.
  void* allocate(const KernelContext* context, const void* stream, size_t bytes,
                 const std::string& where) const {
    void* memory = nullptr;
    if (bytes == 0) bytes = 1;
    check(stream != nullptr ? api().KernelContext_GetScratchBuffer(context, info_, bytes, &memory)
                            : api().AllocatorAlloc(allocator_, bytes, &memory),
          where);
    return memory;
  }
  void free(void* memory) const { good(api().AllocatorFree(allocator_, memory)); }

 private:
  Allocator* allocator_ = nullptr;
  const MemoryInfo* info_ = nullptr;
};

}  // namespace opforge::onnxruntime_host
