// fake_host.cc: the part of TensorFlow's C API that the adapter calls, with a "GPU" whose memory is the
// host's and whose stream is a number. Tests load it in TensorFlow's place into a copy of the adapter.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

struct Status {
  int32_t code = 0;
  std::string text;
};
struct Tensor {
  std::vector<int64_t> dims;
  void* data;
  bool owned;
};
struct Kernel {
  std::string device;
  void* (*create)(void*);
  void (*compute)(void*, void*);
  void (*destroy)(void*);
};
struct Context {
  const float* input;
  float* output;
  std::vector<int64_t> dims;
  Status failure;
};

std::map<std::pair<std::string, std::string>, Kernel> kernels;  // by name of the operator and device
std::vector<void*> temporary;
int live = 0;
bool refuse = false;
Status construction;

}  // namespace

FAKE Status* TF_NewStatus() { return new Status; }
FAKE void TF_DeleteStatus(Status* status) { delete status; }
FAKE void TF_SetStatus(Status* status, int32_t code, const char* text) { *status = {code, text}; }
FAKE int32_t TF_GetCode(const Status* status) { return status->code; }
FAKE const char* TF_Message(const Status* status) { return status->text.c_str(); }

FAKE void* TF_NewOpDefinitionBuilder(const char*) { return nullptr; }
FAKE void TF_RegisterOpDefinition(void*, Status* status) { *status = {}; }
FAKE void TF_OpDefinitionBuilderAddAttr(void*, const char*) {}
FAKE void TF_OpDefinitionBuilderAddInput(void*, const char*) {}
FAKE void TF_OpDefinitionBuilderAddOutput(void*, const char*) {}
FAKE void TF_OpDefinitionBuilderSetIsStateful(void*, bool) {}
FAKE void TF_OpDefinitionBuilderSetShapeInferenceFunction(void*, void*) {}

FAKE void* TF_NewKernelBuilder(const char* name, const char* device, void* (*create)(void*),
                               void (*compute)(void*, void*), void (*destroy)(void*)) {
  return new std::pair<std::string, Kernel>(name, {device, create, compute, destroy});
}
FAKE void TF_RegisterKernelBuilder(const char*, void* builder, Status* status) {
  auto* const made = static_cast<std::pair<std::string, Kernel>*>(builder);
  const bool fresh = kernels.emplace(std::make_pair(made->first, made->second.device), made->second).second;
  *status = fresh ? Status{} : Status{6, "the kernel is registered already"};
  delete made;
}

FAKE void TF_OpKernelConstruction_Failure(void*, Status* status) { construction = *status; }
FAKE void TF_OpKernelContext_Failure(Context* context, Status* status) { context->failure = *status; }
FAKE void TF_OpKernelConstruction_GetAttrFloat(void*, const char*, float* value, Status* status) {
  *value = 1.5f;
  *status = {};
}

FAKE int TF_NumInputs(Context*) { return 1; }
FAKE void TF_GetInput(Context* context, int, Tensor** tensor, Status* status) {
  ++live;
  *tensor = new Tensor{context->dims, const_cast<float*>(context->input), false};
  *status = {};
}
FAKE Tensor* TF_AllocateOutput(Context* context, int, int32_t, const int64_t* dims, int rank, size_t,
                               Status* status) {
  ++live;
  *status = {};
  return new Tensor{{dims, dims + rank}, context->output, false};
}
FAKE Tensor* TF_AllocateTemp(Context*, int32_t type, const int64_t* dims, int rank, const void* attributes,
                             Status* status) {
  const bool on_host = static_cast<const unsigned char*>(attributes)[sizeof(size_t)] != 0;
  if (refuse || type != 4 || rank != 1 || on_host) {
    *status = {8, "no memory"};
    return nullptr;
  }
  ++live;
  *status = {};
  void* const memory = std::aligned_alloc(64, static_cast<size_t>((dims[0] + 63) / 64 * 64));
  temporary.push_back(memory);
  return new Tensor{{dims, dims + 1}, memory, true};
}
FAKE void TF_DeleteTensor(Tensor* tensor) {
  --live;
  if (tensor->owned) std::free(tensor->data);
  delete tensor;
}
FAKE int TF_NumDims(const Tensor* tensor) { return static_cast<int>(tensor->dims.size()); }
FAKE int64_t TF_Dim(const Tensor* tensor, int index) { return tensor->dims[static_cast<size_t>(index)]; }
FAKE void* TF_TensorData(const Tensor* tensor) { return tensor->data; }
FAKE int32_t TF_TensorType(const Tensor*) { return 1; }
FAKE int TF_GetDeviceId(Context*) { return 6; }

// What these tests never reach.
#define UNUSED(name) \
  FAKE void name() { std::abort(); }
UNUSED(TF_NewShapeHandle)
UNUSED(TF_DeleteShapeHandle)
UNUSED(TF_ShapeInferenceContextNumInputs)
UNUSED(TF_ShapeInferenceContextGetInput)
UNUSED(TF_ShapeInferenceContextSetOutput)
UNUSED(TF_ShapeInferenceContextSetUnknownShape)
UNUSED(TF_ShapeInferenceContextScalar)
UNUSED(TF_ShapeInferenceContextVectorFromSize)
UNUSED(TF_ShapeInferenceContextConcatenateShapes)
UNUSED(TF_ShapeInferenceContextRank)
UNUSED(TF_ShapeInferenceContextRankKnown)
UNUSED(TF_ShapeInferenceContextDim)
UNUSED(TF_NewDimensionHandle)
UNUSED(TF_DeleteDimensionHandle)
UNUSED(TF_DimensionHandleValueKnown)
UNUSED(TF_DimensionHandleValue)
UNUSED(TF_KernelBuilder_TypeConstraint)
UNUSED(TF_OpKernelConstruction_GetAttrSize)
UNUSED(TF_OpKernelConstruction_GetAttrInt64)
UNUSED(TF_OpKernelConstruction_GetAttrBool)
UNUSED(TF_OpKernelConstruction_GetAttrString)
UNUSED(TF_OpKernelConstruction_GetAttrInt64List)
UNUSED(TF_OpKernelConstruction_GetAttrFloatList)
UNUSED(TF_OpKernelConstruction_GetAttrStringList)
UNUSED(TF_NumOutputs)

// ---- what tests call

// The devices for which the operator has kernels, in a row.
FAKE const char* fake_devices(const char* name) {
  static std::string text;
  text.clear();
  for (const auto& [key, kernel] : kernels) {
    if (key.first == name) text += key.second + " ";
  }
  return text.c_str();
}

// Makes a node and runs it on one tensor; returns TensorFlow's code, 0 = it went well.
FAKE int32_t fake_run(const char* name, const char* device, const float* input, float* output,
                      const int64_t* dims, int32_t rank, char* words, size_t size) {
  const Kernel& kernel = kernels.at({name, device});
  temporary.clear();
  construction = {};
  Context context{input, output, {dims, dims + rank}, {}};
  void* const node = kernel.create(nullptr);
  const Status* failed = &construction;
  if (node != nullptr) {
    kernel.compute(node, &context);
    kernel.destroy(node);
    failed = &context.failure;
  }
  std::strncpy(words, failed->text.c_str(), size - 1);
  return live != 0 ? -1 : failed->code;
}
FAKE void fake_refuse_memory(bool yes) { refuse = yes; }
FAKE int32_t fake_temporary(void** into, int32_t room) {
  int32_t count = 0;
  for (void* memory : temporary) {
    if (count < room) into[count++] = memory;
  }
  return count;
}
