// half.h: the half-precision types of kernels, opforge::f16 (IEEE binary16) and opforge::bf16 (bfloat16).
//
// Both hold 16 bits and convert to and from float; arithmetic happens in float and is rounded once, to
// nearest even, where a result is stored. NaN stays NaN; values too large become infinity.
#pragma once

#include <cstdint>
#include <cstring>

namespace opforge {

namespace detail {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Off x86-64 GCC has the type in C++ from version 13 on only, although it defines the macro.
#if defined(__FLT16_MAX__) && (defined(__x86_64__) || defined(__clang__) || __GNUC__ >= 13)
inline float f16_to_float(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

inline uint16_t float_to_f16(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}
#else
inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  if ((bits & 0x7c00u) == 0x7c00u) return bits_float(sign | 0x7f800000u | (rest & 0x7fffffu));
  // Multiplying by 2^112 moves the exponent's bias from 15 to 127 and makes denormals normal.
  return bits_float(sign | float_bits(bits_float(rest) * 5.192296858534828e+33f));
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = float_bits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Denormal: adding 0.5 leaves the value, rounded to a multiple of 2^-24, in the low bits.
    const float shifted = bits_float(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (float_bits(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}
#endif

inline float bf16_to_float(uint16_t bits) { return bits_float(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace detail

struct f16 {
  uint16_t bits;
  f16() = default;
  f16(float value) : bits(detail::float_to_f16(value)) {}  // NOLINT: meant to be implicit, like float
  operator float() const { return detail::f16_to_float(bits); }
};

struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float value) : bits(detail::float_to_bf16(value)) {}  // NOLINT: meant to be implicit, like float
  operator float() const { return detail::bf16_to_float(bits); }
};

// The type in which sums and products of T are formed: float for the half types, T itself otherwise.
template <class T>
struct compute_type {
  using type = T;
};
template <>
struct compute_type<f16> {
  using type = float;
};
template <>
struct compute_type<bf16> {
  using type = float;
};
template <class T>
using compute_t = typename compute_type<T>::type;

}  // namespace opforge
