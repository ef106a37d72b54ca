// values.h: between PyTorch's values and the ABI's: dtypes, tensors, attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <utility>
#include <vector>

#include "common/attributes.h"
#include "common/failure.h"
#include "schema.h"

namespace opforge::torch_host {

using Tensors = c10::SmallVector<at::Tensor, 6>;
using Counts = c10::SmallVector<int32_t, 8>;

inline opforge_dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return {OPFORGE_CODE_FLOAT, 16, 1};
    case at::kBFloat16:
      return {OPFORGE_CODE_BFLOAT, 16, 1};
    case at::kFloat:
      return {OPFORGE_CODE_FLOAT, 32, 1};
    case at::kDouble:
      return {OPFORGE_CODE_FLOAT, 64, 1};
    case at::kChar:
      return {OPFORGE_CODE_INT, 8, 1};
    case at::kShort:
      return {OPFORGE_CODE_INT, 16, 1};
    case at::kInt:
      return {OPFORGE_CODE_INT, 32, 1};
    case at::kLong:
      return {OPFORGE_CODE_INT, 64, 1};
    case at::kByte:
      return {OPFORGE_CODE_UINT, 8, 1};
    case at::kUInt16:
      return {OPFORGE_CODE_UINT, 16, 1};
    case at::kUInt32:
      return {OPFORGE_CODE_UINT, 32, 1};
    case at::kUInt64:
      return {OPFORGE_CODE_UINT, 64, 1};
    case at::kBool:
      return {OPFORGE_CODE_BOOL, 8, 1};
    default:
      return {OPFORGE_CODE_OPAQUE, 0, 0};
  }
}

inline at::ScalarType scalar_type_of(opforge_dtype dtype, const std::string& where) {
  static constexpr at::ScalarType kAll[] = {at::kFloat,  at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                            at::kInt,    at::kShort,  at::kChar, at::kByte,     at::kUInt16,
                                            at::kUInt32, at::kUInt64, at::kBool};
  for (const at::ScalarType type : kAll) {
    if (detail::same(dtype_of(type), dtype)) return type;
  }
  throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "PyTorch has no such dtype", "",
                detail::dtype_name(dtype));
}

// The dispatch keys of the devices that kernels are registered for.
constexpr c10::DispatchKey kDevices[] = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

inline bool is_device(c10::DispatchKey key) {
  return key == c10::DispatchKey::CPU || key == c10::DispatchKey::CUDA;
}

// The value of a tensor of no dimensions on another device. It becomes a number on the way, as in PyTorch's
// own operators, so that nothing is copied behind a stream's or a graph's back.
inline at::Tensor value_on(const at::Tensor& tensor, opforge_device device) {
  at::Tensor made =
      at::empty({}, tensor.options().device(at::kCUDA, static_cast<c10::DeviceIndex>(device.id)));
  return made.fill_(tensor);
}

// Bytes on a CUDA device.
struct DeviceBytes {
  static at::Tensor block(int64_t bytes, int32_t device) {
    return at::empty({bytes},
                     at::TensorOptions(at::kByte).device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  }
  static void* address(const at::Tensor& tensor) { return tensor.mutable_data_ptr(); }
};

inline void fill_view(const at::Tensor& tensor, opforge_tensor* view) {
  view->data = const_cast<void*>(tensor.const_data_ptr());
  view->device = {OPFORGE_DEVICE_CPU, 0};
  if (C10_UNLIKELY(!tensor.is_cpu())) view->device = {OPFORGE_DEVICE_CUDA, tensor.get_device()};
  view->ndim = static_cast<int32_t>(tensor.dim());
  view->shape = const_cast<int64_t*>(tensor.sizes().data());
  view->strides = nullptr;
  view->byte_offset = 0;
}

// Collects the tensors of all input parameters that lie on a stack from `base` on.
inline void collect_inputs(const Plan& plan, const torch::jit::Stack& stack, size_t base, Tensors* tensors,
                           Counts* counts) {
  for (size_t i = 0; i < plan.signature.inputs.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        tensors->push_back(value.toTensor());
        counts->push_back(1);
      } else {
        counts->push_back(0);
      }
    } else if (value.isNone()) {
      counts->push_back(0);
    } else {
      const c10::List<at::Tensor> list = value.toTensorList();
      for (size_t k = 0; k < list.size(); ++k) tensors->push_back(list.get(k));
      counts->push_back(static_cast<int32_t>(list.size()));
    }
  }
}

// Attributes in the ABI's form. Strings stay in their IValues, which must outlive the result.
inline void read_attributes(const Plan& plan, const c10::IValue* values, Attributes* attributes) {
  for (size_t a = 0; a < plan.signature.attributes.size(); ++a) {
    const c10::IValue& value = values[a];
    if (value.isNone()) {
      attributes->add_default(plan.signature.attributes[a].default_value);
      continue;
    }
    switch (plan.signature.attributes[a].kind) {
      case OPFORGE_ATTRIBUTE_INT:
        attributes->add_int(value.toInt());
        break;
      case OPFORGE_ATTRIBUTE_FLOAT:
        attributes->add_float(value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble());
        break;
      case OPFORGE_ATTRIBUTE_BOOL:
        attributes->add_bool(value.toBool());
        break;
      case OPFORGE_ATTRIBUTE_STRING: {
        const std::string_view text = value.toStringRef();
        attributes->add_string({text.data(), static_cast<int64_t>(text.size())});
        break;
      }
      case OPFORGE_ATTRIBUTE_INTS:
        attributes->add_ints(value.toIntVector());
        break;
      case OPFORGE_ATTRIBUTE_FLOATS:
        attributes->add_floats(value.toDoubleVector());
        break;
      case OPFORGE_ATTRIBUTE_BOOLS: {
        std::vector<int64_t> list;
        for (const bool one : value.toBoolList()) list.push_back(one);
        attributes->add_ints(std::move(list), OPFORGE_ATTRIBUTE_BOOLS);
        break;
      }
      default: {
        std::vector<opforge_string> list;
        for (const c10::IValue& one : value.toListRef()) {
          const std::string& text = one.toStringRef();
          list.push_back({text.data(), static_cast<int64_t>(text.size())});
        }
        attributes->add_strings(std::move(list));
      }
    }
  }
}

}  // namespace opforge::torch_host
