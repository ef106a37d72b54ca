// types.h: calls a generic function with the C++ type that stands for a dtype.
#pragma once

#include <type_traits>

#include "kernels/common.h"

namespace opforge::kernels {

// Calls f(T*) with a null pointer of the type of a number; false for bool, half types and sub-byte types.
template <class F>
bool with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      f(static_cast<float*>(nullptr));
      return true;
    case DType::kF64:
      f(static_cast<double*>(nullptr));
      return true;
    case DType::kI64:
      f(static_cast<int64_t*>(nullptr));
      return true;
    case DType::kU64:
      f(static_cast<uint64_t*>(nullptr));
      return true;
    case DType::kI32:
      f(static_cast<int32_t*>(nullptr));
      return true;
    case DType::kU32:
      f(static_cast<uint32_t*>(nullptr));
      return true;
    case DType::kI16:
      f(static_cast<int16_t*>(nullptr));
      return true;
    case DType::kU16:
      f(static_cast<uint16_t*>(nullptr));
      return true;
    case DType::kI8:
      f(static_cast<int8_t*>(nullptr));
      return true;
    case DType::kU8:
      f(static_cast<uint8_t*>(nullptr));
      return true;
    default:
      return false;
  }
}
inline bool has_type(DType dtype) {
  return with_type(dtype, [](auto*) {});
}

// The same for f32 and f64 only.
template <class F>
bool with_real(DType dtype, F&& f) {
  if (dtype == DType::kF32)
    f(static_cast<float*>(nullptr));
  else if (dtype == DType::kF64)
    f(static_cast<double*>(nullptr));
  else
    return false;
  return true;
}
inline bool is_real(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// The same for what is added and multiplied: integers as unsigned numbers of their size, which wrap alike.
template <class F>
bool with_sum_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      f(static_cast<float*>(nullptr));
      return true;
    case DType::kF64:
      f(static_cast<double*>(nullptr));
      return true;
    case DType::kI64:
    case DType::kU64:
      f(static_cast<uint64_t*>(nullptr));
      return true;
    case DType::kI32:
    case DType::kU32:
      f(static_cast<uint32_t*>(nullptr));
      return true;
    case DType::kI16:
    case DType::kU16:
      f(static_cast<uint16_t*>(nullptr));
      return true;
    case DType::kI8:
    case DType::kU8:
      f(static_cast<uint8_t*>(nullptr));
      return true;
    default:
      return false;
  }
}
inline bool has_sum_type(DType dtype) {
  return with_sum_type(dtype, [](auto*) {});
}

inline Status no_type(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "there is no kernel for this dtype");
}
inline Status bad_axis(InferContext& c, int64_t axis, int rank) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis %lld is out of range for rank %d",
                static_cast<long long>(axis), rank);
}

// Whether input k is there.
template <class Context>
bool given(const Context& c, int32_t k) {
  return k < c.n_inputs && c.inputs[k].present();
}
template <class Context>
bool wanted(const Context& c, int32_t k) {
  return k < c.n_outputs && c.outputs[k].present();
}

// The number that a one-element tensor of any kind of number holds.
inline double number_of(const Tensor& t) {
  double value = 0;
  with_type(t.dtype,
            [&](auto* type) { value = static_cast<double>(*t.as<std::remove_pointer_t<decltype(type)>>()); });
  return value;
}
inline bool is_number(const Tensor& t) { return has_type(t.dtype) && t.shape.elements() == 1; }

// Work units of about 16 K elements.
inline int64_t grain_of(int64_t width) { return greater<int64_t>(1, 16384 / greater<int64_t>(width, 1)); }

}  // namespace opforge::kernels
