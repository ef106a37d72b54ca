// provider_api.h: the tables of an execution provider, in our own declarations as far as version 23 laid them
// out: ONNX Runtime looks at no later entry of a table that says so.
#pragma once

#include "onnxruntime/api.h"

namespace opforge::onnxruntime_host {

struct Ep;
struct EpDevice;
struct EpFactory;
struct KeyValuePairs;
struct Logger;
struct SupportInfo;

inline constexpr uint32_t kTables = 23;
inline constexpr int32_t kProviderSince = 23;
inline constexpr int32_t kCpuDevice = 0;

// Of the provider's own functions in ONNX Runtime, found by GetEpApi.
struct EpApi {
  Status* (*CreateEpDevice)(EpFactory*, const HardwareDevice*, const KeyValuePairs*, const KeyValuePairs*,
                            EpDevice**);
  void (*ReleaseEpDevice)(EpDevice*);
  Status* (*EpGraphSupportInfo_AddNodesToFuse)(SupportInfo*, const GraphNode* const*, size_t, const void*);
};

struct FusionOptions {
  uint32_t version;
  bool drop_constants;  // the provider holds constants of its own
};

struct ComputeInfo {
  uint32_t version;
  Status* (*CreateState)(ComputeInfo*, void*, void**);
  Status* (*Compute)(ComputeInfo*, void*, KernelContext*);
  void (*ReleaseState)(ComputeInfo*, void*);
};

struct EpHead {
  uint32_t version;
  const char* (*GetName)(const Ep*);
  Status* (*GetCapability)(Ep*, const Graph*, SupportInfo*);
  Status* (*Compile)(Ep*, const Graph**, const GraphNode**, size_t, ComputeInfo**, GraphNode**);
  void (*ReleaseNodeComputeInfos)(Ep*, ComputeInfo**, size_t);
  void* others[8];  // layout, dynamic options, run hooks, allocator, stream, compatibility: none
};

struct EpFactoryHead {
  uint32_t version;
  const char* (*GetName)(const EpFactory*);
  const char* (*GetVendor)(const EpFactory*);
  Status* (*GetSupportedDevices)(EpFactory*, const HardwareDevice* const*, size_t, EpDevice**, size_t,
                                 size_t*);
  Status* (*CreateEp)(EpFactory*, const HardwareDevice* const*, const KeyValuePairs* const*, size_t,
                      const SessionOptions*, const Logger*, Ep**);
  void (*ReleaseEp)(EpFactory*, Ep*);
  uint32_t (*GetVendorId)(const EpFactory*);
  const char* (*GetVersion)(const EpFactory*);
  void* ValidateCompiledModelCompatibilityInfo;
  Status* (*CreateAllocator)(EpFactory*, const void*, const KeyValuePairs*, Allocator**);
  void (*ReleaseAllocator)(EpFactory*, Allocator*);
  Status* (*CreateDataTransfer)(EpFactory*, void**);
  bool (*IsStreamAware)(const EpFactory*);
  void* others[4];
};

}  // namespace opforge::onnxruntime_host
