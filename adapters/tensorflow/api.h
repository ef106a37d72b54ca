// api.h: the functions of TensorFlow's C API that the adapter calls, in our own declarations, looked up in
// the library that the process has loaded. The C API is stable, so one binary serves every TensorFlow
// since 2.15.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/failure.h"

namespace opforge::tensorflow_host {

struct Status;
struct OpBuilder;
struct KernelBuilder;
struct ShapeContext;
struct ShapeHandle;
struct DimensionHandle;
struct Construction;
struct KernelContext;
struct Tensor;

struct AllocatorAttributes {
  size_t size;
  unsigned char on_host;
};

enum Code : int32_t {
  kOk = 0,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};

// name, result, arguments
#define OPFORGE_TENSORFLOW_API(X)                                                                           \
  X(TF_NewStatus, Status*, ())                                                                              \
  X(TF_DeleteStatus, void, (Status*))                                                                       \
  X(TF_SetStatus, void, (Status*, int32_t, const char*))                                                    \
  X(TF_GetCode, int32_t, (const Status*))                                                                   \
  X(TF_Message, const char*, (const Status*))                                                               \
  X(TF_NewOpDefinitionBuilder, OpBuilder*, (const char*))                                                   \
  X(TF_RegisterOpDefinition, void, (OpBuilder*, Status*))                                                   \
  X(TF_OpDefinitionBuilderAddAttr, void, (OpBuilder*, const char*))                                         \
  X(TF_OpDefinitionBuilderAddInput, void, (OpBuilder*, const char*))                                        \
  X(TF_OpDefinitionBuilderAddOutput, void, (OpBuilder*, const char*))                                       \
  X(TF_OpDefinitionBuilderSetIsStateful, void, (OpBuilder*, bool))                                          \
  X(TF_OpDefinitionBuilderSetShapeInferenceFunction, void, (OpBuilder*, void (*)(ShapeContext*, Status*)))  \
  X(TF_NewShapeHandle, ShapeHandle*, ())                                                                    \
  X(TF_DeleteShapeHandle, void, (ShapeHandle*))                                                             \
  X(TF_ShapeInferenceContextNumInputs, int64_t, (ShapeContext*))                                            \
  X(TF_ShapeInferenceContextGetInput, void, (ShapeContext*, int, ShapeHandle*, Status*))                    \
  X(TF_ShapeInferenceContextSetOutput, void, (ShapeContext*, int, ShapeHandle*, Status*))                   \
  X(TF_ShapeInferenceContextSetUnknownShape, void, (ShapeContext*, Status*))                                \
  X(TF_ShapeInferenceContextScalar, ShapeHandle*, (ShapeContext*))                                          \
  X(TF_ShapeInferenceContextVectorFromSize, ShapeHandle*, (ShapeContext*, size_t))                          \
  X(TF_ShapeInferenceContextConcatenateShapes, void,                                                        \
    (ShapeContext*, ShapeHandle*, ShapeHandle*, ShapeHandle*, Status*))                                     \
  X(TF_ShapeInferenceContextRank, int64_t, (ShapeContext*, ShapeHandle*))                                   \
  X(TF_ShapeInferenceContextRankKnown, int, (ShapeContext*, ShapeHandle*))                                  \
  X(TF_ShapeInferenceContextDim, void, (ShapeContext*, ShapeHandle*, int64_t, DimensionHandle*))            \
  X(TF_NewDimensionHandle, DimensionHandle*, ())                                                            \
  X(TF_DeleteDimensionHandle, void, (DimensionHandle*))                                                     \
  X(TF_DimensionHandleValueKnown, int, (DimensionHandle*))                                                  \
  X(TF_DimensionHandleValue, int64_t, (DimensionHandle*))                                                   \
  X(TF_NewKernelBuilder, KernelBuilder*,                                                                    \
    (const char*, const char*, void* (*)(Construction*), void (*)(void*, KernelContext*), void (*)(void*))) \
  X(TF_KernelBuilder_TypeConstraint, void, (KernelBuilder*, const char*, int32_t, Status*))                 \
  X(TF_RegisterKernelBuilder, void, (const char*, KernelBuilder*, Status*))                                 \
  X(TF_OpKernelConstruction_Failure, void, (Construction*, Status*))                                        \
  X(TF_OpKernelContext_Failure, void, (KernelContext*, Status*))                                            \
  X(TF_OpKernelConstruction_GetAttrSize, void, (Construction*, const char*, int32_t*, int32_t*, Status*))   \
  X(TF_OpKernelConstruction_GetAttrInt64, void, (Construction*, const char*, int64_t*, Status*))            \
  X(TF_OpKernelConstruction_GetAttrFloat, void, (Construction*, const char*, float*, Status*))              \
  X(TF_OpKernelConstruction_GetAttrBool, void, (Construction*, const char*, unsigned char*, Status*))       \
  X(TF_OpKernelConstruction_GetAttrString, void, (Construction*, const char*, char*, size_t, Status*))      \
  X(TF_OpKernelConstruction_GetAttrInt64List, void, (Construction*, const char*, int64_t*, int, Status*))   \
  X(TF_OpKernelConstruction_GetAttrFloatList, void, (Construction*, const char*, float*, int, Status*))     \
  X(TF_OpKernelConstruction_GetAttrStringList, void,                                                        \
    (Construction*, const char*, char**, size_t*, int, void*, size_t, Status*))                             \
  X(TF_NumInputs, int, (KernelContext*))                                                                    \
  X(TF_NumOutputs, int, (KernelContext*))                                                                   \
  X(TF_GetInput, void, (KernelContext*, int, Tensor**, Status*))                                            \
  X(TF_AllocateOutput, Tensor*, (KernelContext*, int, int32_t, const int64_t*, int, size_t, Status*))       \
  X(TF_AllocateTemp, Tensor*,                                                                               \
    (KernelContext*, int32_t, const int64_t*, int, const AllocatorAttributes*, Status*))                    \
  X(TF_GetDeviceId, int, (KernelContext*))                                                                  \
  X(TF_DeleteTensor, void, (Tensor*))                                                                       \
  X(TF_NumDims, int, (const Tensor*))                                                                       \
  X(TF_Dim, int64_t, (const Tensor*, int))                                                                  \
  X(TF_TensorData, void*, (const Tensor*))                                                                  \
  X(TF_TensorType, int32_t, (const Tensor*))

struct Api {
#define OPFORGE_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  OPFORGE_TENSORFLOW_API(OPFORGE_MEMBER)
#undef OPFORGE_MEMBER

  void load(const char* path) {
    void* library = ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
      throw adapter::failure(OPFORGE_STATUS_UNSUPPORTED, path, "TensorFlow's library is not loaded",
                             "a process that has imported tensorflow");
    }
    std::string missing;
#define OPFORGE_LOOK_UP(name, result, arguments)                         \
  name = reinterpret_cast<result(*) arguments>(::dlsym(library, #name)); \
  if (name == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#name);
    OPFORGE_TENSORFLOW_API(OPFORGE_LOOK_UP)
#undef OPFORGE_LOOK_UP
    if (!missing.empty()) {
      throw adapter::failure(OPFORGE_STATUS_UNSUPPORTED, path, "this TensorFlow lacks functions of its C API",
                             "TensorFlow 2.15 or newer", missing);
    }
  }
};

inline Api& api() {
  static Api* const functions = new Api;  // kernels may outlive static objects
  return *functions;
}

// A status that is freed at the end of the scope.
class OwnStatus {
 public:
  OwnStatus() : status_(api().TF_NewStatus()) {}
  ~OwnStatus() { api().TF_DeleteStatus(status_); }
  OwnStatus(const OwnStatus&) = delete;
  OwnStatus& operator=(const OwnStatus&) = delete;

  Status* get() const { return status_; }
  bool good() const { return api().TF_GetCode(status_) == kOk; }
  void check(const std::string& where) const {
    if (!good()) throw adapter::failure(OPFORGE_STATUS_INTERNAL, where, api().TF_Message(status_));
  }

 private:
  Status* status_;
};

inline Code code_of(opforge_status status) {
  switch (status) {
    case OPFORGE_STATUS_INVALID_ARGUMENT:
    case OPFORGE_STATUS_TYPE:
      return kInvalidArgument;
    case OPFORGE_STATUS_NOT_FOUND:
      return kNotFound;
    case OPFORGE_STATUS_OUT_OF_MEMORY:
      return kResourceExhausted;
    case OPFORGE_STATUS_UNSUPPORTED:
      return kUnimplemented;
    default:
      return kInternal;
  }
}

}  // namespace opforge::tensorflow_host
