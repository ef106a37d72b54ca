// create.h: new tensors through the stable ABI.
#pragma once

#include <string>

#include "common/small.h"
#include "stable/dtypes.h"
#include "stable/value.h"

namespace opforge::torch_host {

// A dense tensor; `dtype` is PyTorch's number.
inline Tensor new_tensor(const int64_t* shape, int32_t rank, int32_t dtype, opforge_device device) {
  const Shims& torch = shims();
  Small<int64_t, 8> strides;
  strides.resize(static_cast<size_t>(rank));
  int64_t step = 1;
  for (int32_t d = rank - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = step;
    step *= shape[d] > 1 ? shape[d] : 1;
  }
  Handle handle = nullptr;
  const int32_t type = device.type == OPFORGE_DEVICE_CUDA ? torch.cuda : torch.cpu;
  torch.check(torch.aoti_torch_empty_strided(rank, shape, strides.data(), dtype, type, device.id, &handle),
              "empty_strided");
  return Tensor(handle);
}

// The value of a tensor of no dimensions on another device. It becomes a number on the way, as in PyTorch's
// own operators, so that nothing is copied behind a stream's or a graph's back.
inline Tensor value_on(const Tensor& tensor, int32_t dtype, opforge_device device) {
  const Shims& torch = shims();
  Tensor made = new_tensor(nullptr, 0, dtype, device);
  Handle value = nullptr;  // the dispatcher takes its arguments' references
  torch.check(torch.aoti_torch_new_tensor_handle(tensor.get(), &value), "new_tensor_handle");
  StableValue stack[2] = {pack(made.release()), pack(value)};
  torch.check(torch.torch_call_dispatcher("aten::fill_", "Tensor", stack, torch.version), "fill_");
  return Tensor(unpack<Handle>(stack[0]));
}

// Bytes on a CUDA device.
struct DeviceBytes {
  static Tensor block(int64_t bytes, int32_t device) {
    return new_tensor(&bytes, 1, shims().aoti_torch_dtype_uint8(), {OPFORGE_DEVICE_CUDA, device});
  }
  static void* address(const Tensor& tensor) {
    void* data = nullptr;
    shims().check(shims().aoti_torch_get_data_ptr(tensor.get(), &data), "get_data_ptr");
    return data;
  }
};

}  // namespace opforge::torch_host
