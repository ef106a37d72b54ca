// small_float.h: the floating types of 8 and 4 bits, by the numbers that define them. Rounding is to nearest
// even; what is too large becomes the largest number (saturate), else infinity or NaN, whichever the type
// has.
#pragma once

#include <cstdint>
#include <cstring>

#include "program/kernel_api.h"

namespace opforge::kernels {

struct SmallFloat {
  int8_t mantissa;   // bits
  int16_t bias;      // of the exponent
  uint8_t sign;      // the sign bit
  uint8_t largest;   // code of the largest finite number
  uint8_t overflow;  // code of what is beyond it when not saturating
  uint8_t nan;       // code of NaN
  uint8_t nan_from;  // codes without sign from here on are NaN; 255 = none
  int16_t infinity;  // code of infinity, -1 = none
  bool one_zero;     // no -0: the sign bit alone is NaN
  bool saturates;    // always
};

// Null when the dtype is none of these (f8e8m0 has no mantissa and is apart).
const SmallFloat* small_float(DType dtype);

inline float decode(const SmallFloat& f, uint8_t code) {
  const uint32_t sign = (code & f.sign) != 0 ? 0x80000000u : 0;
  const int32_t rest = code & (f.sign - 1);
  uint32_t bits;
  float value;
  if (f.one_zero && code == f.sign) {
    bits = 0x7fc00000u;
  } else if (rest == f.infinity) {
    bits = sign | 0x7f800000u;
  } else if (rest >= f.nan_from) {
    bits = sign | 0x7fc00000u;
  } else {
    // The code as the top of a float whose exponent is too small by 127 - bias: exact for denormals as well.
    bits = static_cast<uint32_t>(rest) << (23 - f.mantissa);
    std::memcpy(&value, &bits, sizeof value);
    const uint32_t scale_bits = static_cast<uint32_t>(254 - f.bias) << 23;
    float scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    value *= scale;
    return sign != 0 ? -value : value;
  }
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint8_t encode(const SmallFloat& f, float x, bool saturate) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint8_t sign = (bits >> 31) != 0 ? f.sign : 0;
  if (magnitude > 0x7f800000u) return f.one_zero || f.saturates ? f.nan : static_cast<uint8_t>(f.nan | sign);
  const bool full = saturate || f.saturates;
  const auto beyond = static_cast<uint8_t>(full ? f.largest | sign : f.one_zero ? f.nan : f.overflow | sign);
  if (magnitude == 0x7f800000u) return beyond;
  const int32_t exponent = static_cast<int32_t>(magnitude >> 23) - 127, least = 1 - f.bias;
  const uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0);
  const int32_t shift = 23 - f.mantissa + (exponent < least ? least - exponent : 0);
  int32_t code = 0;
  if (shift <= 24) {
    const uint32_t half = 1u << (shift - 1), rest = significand & (2 * half - 1);
    code = static_cast<int32_t>(significand >> shift);
    if (rest > half || (rest == half && (code & 1) != 0)) ++code;
    // The hidden bit counts as one step of the exponent, and so does a carry.
    if (exponent >= least) code += (exponent - least) << f.mantissa;
  }
  if (code > f.largest) return beyond;
  return static_cast<uint8_t>(code == 0 && f.one_zero ? 0 : code | sign);
}

// f8e8m0: powers of two. By the float's exponent, its sign does not count.
enum class PowerRounding { kUp, kDown, kNearest };
inline float decode_power(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x400000u : code == 255 ? 0x7fc00000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint8_t encode_power(float x, bool saturate, PowerRounding rounding) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffffu;
  if (exponent == 0xff) return 0xff;
  bool up = false;
  if (rounding == PowerRounding::kUp) up = fraction != 0;
  if (rounding == PowerRounding::kNearest)
    up = fraction > 0x400000u || (fraction == 0x400000u && exponent > 0);
  if (saturate && exponent == 0xfe) up = false;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

}  // namespace opforge::kernels
