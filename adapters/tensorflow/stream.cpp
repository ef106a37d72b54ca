// stream.cpp: the CUDA stream of a kernel's context, which TensorFlow's C API does not give. Compiled on the
// user's machine against the installed TensorFlow, since the layout of its classes is of one version.
#include <tensorflow/core/framework/op_kernel.h>
#include <xla/stream_executor/stream.h>
#include "opforge/abi.h"

// NULL where the kernel runs on no GPU.
extern "C" OPFORGE_EXPORT void* opforge_tensorflow_stream(void* context) {
  tensorflow::DeviceContext* const device =
      static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
  if (device == nullptr || device->stream() == nullptr) return nullptr;
  return device->stream()->platform_specific_handle().stream;
}
