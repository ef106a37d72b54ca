// stream_probe.cc: an operation of TensorFlow whose kernel asks for the stream of its own context: y = 1
// where there is none, as on the CPU.
#include "opforge/abi.h"
#include "tensorflow/api.h"

namespace {

using namespace opforge::tensorflow_host;

void* (*stream_of)(void*) = nullptr;

void compute(void*, KernelContext* context) {
  const OwnStatus status;
  Tensor* const y = api().TF_AllocateOutput(context, 0, 1, nullptr, 0, sizeof(float), status.get());
  *static_cast<float*>(api().TF_TensorData(y)) = stream_of(context) == nullptr ? 1.0f : 0.0f;
  api().TF_DeleteTensor(y);
}

}  // namespace

extern "C" OPFORGE_EXPORT int32_t register_probe(const char* library, void* (*function)(void*)) {
  stream_of = function;
  api().load(library);
  const OwnStatus status;
  OpBuilder* const op = api().TF_NewOpDefinitionBuilder("OpforgeStreamProbe");
  api().TF_OpDefinitionBuilderAddInput(op, "x: float");
  api().TF_OpDefinitionBuilderAddOutput(op, "y: float");
  api().TF_OpDefinitionBuilderSetShapeInferenceFunction(op, [](ShapeContext* context, Status* into) {
    api().TF_ShapeInferenceContextSetUnknownShape(context, into);
  });
  api().TF_RegisterOpDefinition(op, status.get());
  KernelBuilder* const kernel = api().TF_NewKernelBuilder(
      "OpforgeStreamProbe", "CPU", [](Construction*) -> void* { return nullptr; }, &compute, [](void*) {});
  api().TF_RegisterKernelBuilder("OpforgeStreamProbe", kernel, status.get());
  return api().TF_GetCode(status.get());
}
