// device.h: the stream of a GPU that a kernel runs on. TensorFlow's C API has none for the devices that it
// brings itself, so a function that is compiled against the installed TensorFlow (stream.cpp) reads it.
#pragma once

#include <atomic>
#include <string>

#include "common/device.h"
#include "tensorflow/api.h"

namespace opforge::tensorflow_host {

using StreamFunction = void* (*)(KernelContext*);

inline std::atomic<StreamFunction>& stream_function() {
  static std::atomic<StreamFunction> function{nullptr};
  return function;
}

// Called when a node on a GPU is made: whoever loads kernels brings the function too.
inline void prepare_device(const adapter::Plan& plan, int32_t device_type) {
  if (stream_function().load(std::memory_order_acquire) == nullptr) adapter::load_device(plan, device_type);
}

inline void* stream_of(KernelContext* context, const std::string& where) {
  const StreamFunction function = stream_function().load(std::memory_order_acquire);
  void* const stream = function == nullptr ? nullptr : function(context);
  if (stream == nullptr) {
    throw adapter::failure(OPFORGE_STATUS_UNSUPPORTED, where, "TensorFlow gives no stream of this device",
                           "a GPU of TensorFlow's own CUDA build",
                           function == nullptr ? "no function that reads it is loaded" : "none");
  }
  return stream;
}

}  // namespace opforge::tensorflow_host
