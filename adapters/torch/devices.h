// devices.h: on which device a call runs. Nothing here knows PyTorch's types; both routes use it.
#pragma once

#include <string>

#include "schema.h"

namespace opforge::torch_host {

inline std::string device_words(opforge_device device) {
  const std::string name = device_name(device.type);
  return device.type == OPFORGE_DEVICE_CPU ? name : name + ":" + std::to_string(device.id);
}

// The device of a call, from its input tensors: one CUDA device where any lies there, else the CPU. Formulas
// take CPU tensors of no dimensions beside CUDA ones, as PyTorch's own elementwise operators do: their value
// goes to the device by `move(flat, device)`, which changes the view. Everything else on different devices is
// an error.
template <class Move>
opforge_device call_device(const Plan& plan, opforge_tensor* tensors, const int32_t* counts, Move move) {
  const size_t inputs = plan.signature.inputs.size();
  opforge_device device{OPFORGE_DEVICE_CPU, 0};
  size_t flat = 0;
  for (size_t i = 0; i < inputs; ++i) {
    for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
      if (device.type == OPFORGE_DEVICE_CPU) device = tensors[flat].device;
    }
  }
  flat = 0;
  for (size_t i = 0; i < inputs; ++i) {
    for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
      const opforge_device own = tensors[flat].device;
      if (own.type == device.type && own.id == device.id) continue;
      const bool scalar = own.type == OPFORGE_DEVICE_CPU && tensors[flat].ndim == 0 &&
                          (plan.table->flags & OPFORGE_OPERATOR_FORMULA) != 0;
      if (!scalar) {
        throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan, i), "inputs are on different devices",
                      "all on " + device_words(device), device_words(own), "move them to one device");
      }
      move(flat, device);
    }
  }
  return device;
}

}  // namespace opforge::torch_host
