// api.h: the functions of ONNX Runtime's C API that the adapter calls, in our own declarations. The API is a
// table of function pointers that only ever grows, so a row is its place in the table and the version that
// brought it, and one binary serves every ONNX Runtime since 1.20.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/failure.h"

namespace opforge::onnxruntime_host {

struct Status;
struct SessionOptions;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct ShapeContext;
struct Value;
struct TypeInfo;
struct TensorInfo;
struct Attribute;
struct Allocator;
struct MemoryInfo;
struct CustomOp;
struct ValueInfo;
struct HardwareDevice;
struct Graph;
struct GraphNode;

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);
  const char* (*get_version_string)();
};

inline constexpr int32_t kOldest = 20;     // minor version
inline constexpr int32_t kKnownUpTo = 32;  // the layout of CustomOp was compared with this version

enum ErrorCode : int32_t { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
enum AttributeType : int32_t { kUndefined, kInt, kInts, kFloat, kFloats, kString, kStrings };
enum Presence : int32_t { kRequired, kOptional, kVariadic };

// place in the table, minor version that brought it, name, result, arguments
#define OPFORGE_ONNXRUNTIME_API(X)                                                                           \
  X(0, 1, CreateStatus, Status*, (int32_t, const char*))                                                     \
  X(2, 1, GetErrorMessage, const char*, (const Status*))                                                     \
  X(26, 1, CreateCustomOpDomain, Status*, (const char*, CustomOpDomain**))                                   \
  X(27, 1, CustomOpDomain_Add, Status*, (CustomOpDomain*, const CustomOp*))                                  \
  X(28, 1, AddCustomOpDomain, Status*, (SessionOptions*, CustomOpDomain*))                                   \
  X(51, 1, GetTensorMutableData, Status*, (const Value*, void**))                                            \
  X(55, 1, CastTypeInfoToTensorInfo, Status*, (const TypeInfo*, const TensorInfo**))                         \
  X(57, 1, CreateTensorTypeAndShapeInfo, Status*, (TensorInfo**))                                            \
  X(58, 1, SetTensorElementType, Status*, (TensorInfo*, int32_t))                                            \
  X(59, 1, SetDimensions, Status*, (TensorInfo*, const int64_t*, size_t))                                    \
  X(60, 1, GetTensorElementType, Status*, (const TensorInfo*, int32_t*))                                     \
  X(61, 1, GetDimensionsCount, Status*, (const TensorInfo*, size_t*))                                        \
  X(62, 1, GetDimensions, Status*, (const TensorInfo*, int64_t*, size_t))                                    \
  X(63, 1, GetSymbolicDimensions, Status*, (const TensorInfo*, const char**, size_t))                        \
  X(65, 1, GetTensorTypeAndShape, Status*, (const Value*, TensorInfo**))                                     \
  X(72, 1, MemoryInfoGetId, Status*, (const MemoryInfo*, int32_t*))                                          \
  X(75, 1, AllocatorAlloc, Status*, (Allocator*, size_t, void**))                                            \
  X(76, 1, AllocatorFree, Status*, (Allocator*, void*))                                                      \
  X(77, 1, AllocatorGetInfo, Status*, (const Allocator*, const MemoryInfo**))                                \
  X(78, 1, GetAllocatorWithDefaultOptions, Status*, (Allocator**))                                           \
  X(85, 1, KernelInfoGetAttribute_float, Status*, (const KernelInfo*, const char*, float*))                  \
  X(86, 1, KernelInfoGetAttribute_int64, Status*, (const KernelInfo*, const char*, int64_t*))                \
  X(87, 1, KernelInfoGetAttribute_string, Status*, (const KernelInfo*, const char*, char*, size_t*))         \
  X(90, 1, KernelContext_GetInput, Status*, (const KernelContext*, size_t, const Value**))                   \
  X(91, 1, KernelContext_GetOutput, Status*, (KernelContext*, size_t, const int64_t*, size_t, Value**))      \
  X(93, 1, ReleaseStatus, void, (Status*))                                                                   \
  X(98, 1, ReleaseTypeInfo, void, (TypeInfo*))                                                               \
  X(99, 1, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo*))                                               \
  X(132, 5, ReleaseAllocator, void, (Allocator*))                                                            \
  X(162, 8, KernelInfoGetAttributeArray_float, Status*, (const KernelInfo*, const char*, float*, size_t*))   \
  X(163, 8, KernelInfoGetAttributeArray_int64, Status*, (const KernelInfo*, const char*, int64_t*, size_t*)) \
  X(193, 10, KernelContext_GetGPUComputeStream, Status*, (const KernelContext*, void**))                     \
  X(230, 14, KernelInfo_GetInputCount, Status*, (const KernelInfo*, size_t*))                                \
  X(231, 14, KernelInfo_GetOutputCount, Status*, (const KernelInfo*, size_t*))                               \
  X(232, 14, KernelInfo_GetInputName, Status*, (const KernelInfo*, size_t, char*, size_t*))                  \
  X(234, 14, KernelInfo_GetInputTypeInfo, Status*, (const KernelInfo*, size_t, TypeInfo**))                  \
  X(244, 15, KernelInfo_GetNodeName, Status*, (const KernelInfo*, char*, size_t*))                           \
  X(267, 17, ShapeInferContext_GetInputCount, Status*, (const ShapeContext*, size_t*))                       \
  X(268, 17, ShapeInferContext_GetInputTypeShape, Status*, (const ShapeContext*, size_t, TensorInfo**))      \
  X(269, 17, ShapeInferContext_GetAttribute, Status*, (const ShapeContext*, const char*, const Attribute**)) \
  X(270, 17, ShapeInferContext_SetOutputTypeShape, Status*,                                                  \
    (const ShapeContext*, size_t, const TensorInfo*))                                                        \
  X(271, 17, SetSymbolicDimensions, Status*, (TensorInfo*, const char**, size_t))                            \
  X(272, 17, ReadOpAttr, Status*, (const Attribute*, int32_t, void*, size_t, size_t*))                       \
  X(274, 17, KernelContext_ParallelFor, Status*,                                                             \
    (const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*))                                  \
  X(277, 18, KernelContext_GetScratchBuffer, Status*,                                                        \
    (const KernelContext*, const MemoryInfo*, size_t, void**))                                               \
  X(278, 18, KernelInfoGetAllocator, Status*, (const KernelInfo*, int32_t, Allocator**))                     \
  X(238, 14, GetSessionConfigEntry, Status*, (const SessionOptions*, const char*, char*, size_t*))           \
  X(289, 22, GetValueInfoName, Status*, (const ValueInfo*, const char**))                                    \
  X(307, 22, HardwareDevice_Type, int32_t, (const HardwareDevice*))                                          \
  X(317, 22, GetEpApi, const void* const*, ())                                                               \
  X(338, 23, Graph_GetNumInputs, Status*, (const Graph*, size_t*))                                           \
  X(339, 23, Graph_GetInputs, Status*, (const Graph*, const ValueInfo**, size_t))                            \
  X(340, 23, Graph_GetNumOutputs, Status*, (const Graph*, size_t*))                                          \
  X(341, 23, Graph_GetOutputs, Status*, (const Graph*, const ValueInfo**, size_t))                           \
  X(344, 23, Graph_GetNumNodes, Status*, (const Graph*, size_t*))                                            \
  X(345, 23, Graph_GetNodes, Status*, (const Graph*, const GraphNode**, size_t))                             \
  X(349, 23, Node_GetName, Status*, (const GraphNode*, const char**))                                        \
  X(350, 23, Node_GetOperatorType, Status*, (const GraphNode*, const char**))                                \
  X(351, 23, Node_GetDomain, Status*, (const GraphNode*, const char**))                                      \
  X(352, 23, Node_GetSinceVersion, Status*, (const GraphNode*, int32_t*))                                    \
  X(353, 23, Node_GetNumInputs, Status*, (const GraphNode*, size_t*))                                        \
  X(354, 23, Node_GetInputs, Status*, (const GraphNode*, const ValueInfo**, size_t))                         \
  X(355, 23, Node_GetNumOutputs, Status*, (const GraphNode*, size_t*))                                       \
  X(356, 23, Node_GetOutputs, Status*, (const GraphNode*, const ValueInfo**, size_t))                        \
  X(357, 23, Node_GetNumImplicitInputs, Status*, (const GraphNode*, size_t*))                                \
  X(358, 23, Node_GetImplicitInputs, Status*, (const GraphNode*, const ValueInfo**, size_t))                 \
  X(359, 23, Node_GetNumAttributes, Status*, (const GraphNode*, size_t*))                                    \
  X(360, 23, Node_GetAttributes, Status*, (const GraphNode*, const Attribute**, size_t))                     \
  X(363, 23, OpAttr_GetType, Status*, (const Attribute*, int32_t*))                                          \
  X(364, 23, OpAttr_GetName, Status*, (const Attribute*, const char**))                                      \
  X(290, 22, GetValueInfoTypeInfo, Status*, (const ValueInfo*, const TypeInfo**))                            \
  X(365, 23, Node_GetNumSubgraphs, Status*, (const GraphNode*, size_t*))                                     \
  X(390, 24, TensorTypeAndShape_HasShape, bool, (const TensorInfo*))                                         \
  X(414, 24, GetTensorElementTypeAndShapeDataReference, Status*,                                             \
    (const Value*, int32_t*, const int64_t**, size_t*))                                                      \
  X(417, 25, KernelInfoGetAttributeArray_string, Status*,                                                    \
    (const KernelInfo*, const char*, Allocator*, char***, size_t*))

struct Api {
#define OPFORGE_MEMBER(place, since, name, result, arguments) result(*name) arguments = nullptr;
  OPFORGE_ONNXRUNTIME_API(OPFORGE_MEMBER)
#undef OPFORGE_MEMBER
  const void* const* table = nullptr;
  int32_t minor = 0;

  void load(const void* const* rows, int32_t version) {
#define OPFORGE_LOOK_UP(place, since, name, result, arguments) \
  if (version >= since) name = reinterpret_cast<result(*) arguments>(const_cast<void*>(rows[place]));
    OPFORGE_ONNXRUNTIME_API(OPFORGE_LOOK_UP)
#undef OPFORGE_LOOK_UP
    minor = version;
    table = rows;
  }
};

inline Api& api() {
  static Api* const functions = new Api;  // kernels may outlive static objects
  return *functions;
}

// Whether it went well; the words of a failure are not wanted.
inline bool good(Status* status) {
  if (status == nullptr) return true;
  api().ReleaseStatus(status);
  return false;
}

inline void check(Status* status, const std::string& where) {
  if (status == nullptr) return;
  const std::string text = api().GetErrorMessage(status);
  api().ReleaseStatus(status);
  throw adapter::failure(OPFORGE_STATUS_INTERNAL, where, text);
}

inline Status* status_of(const adapter::Failure& error) {
  adapter::remember(error);
  const bool user = error.status == OPFORGE_STATUS_INVALID_ARGUMENT || error.status == OPFORGE_STATUS_TYPE;
  const ErrorCode code = user                                         ? kInvalidArgument
                         : error.status == OPFORGE_STATUS_UNSUPPORTED ? kNotImplemented
                                                                      : kFail;
  return api().CreateStatus(code, error.what());
}

// Runs body; what it raises becomes a status.
template <class Body>
Status* guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const adapter::Failure& error) {
    return status_of(error);
  } catch (const std::exception& error) {
    return api().CreateStatus(kFail, error.what());
  }
}

// The layout of OrtCustomOp.
struct CustomOpHead {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const void* const*, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int32_t (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int32_t (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, KernelContext*);
  void (*KernelDestroy)(void*);
  int32_t (*GetInputCharacteristic)(const CustomOp*, size_t);
  int32_t (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int32_t (*GetInputMemoryType)(const CustomOp*, size_t);
  int32_t (*GetVariadicInputMinArity)(const CustomOp*);
  int32_t (*GetVariadicInputHomogeneity)(const CustomOp*);
  int32_t (*GetVariadicOutputMinArity)(const CustomOp*);
  int32_t (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const void* const*, const KernelInfo*, void**);
  Status* (*KernelComputeV2)(void*, KernelContext*);
  Status* (*InferOutputShapeFn)(const CustomOp*, ShapeContext*);
  int32_t (*GetStartVersion)(const CustomOp*);
  int32_t (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int32_t**, int32_t**);
  void (*ReleaseMayInplace)(int32_t*, int32_t*);
  size_t (*GetAliasMap)(int32_t**, int32_t**);
  void (*ReleaseAliasMap)(int32_t*, int32_t*);
};
static_assert(sizeof(CustomOpHead) == 26 * sizeof(void*), "the layout of OrtCustomOp");

}  // namespace opforge::onnxruntime_host
