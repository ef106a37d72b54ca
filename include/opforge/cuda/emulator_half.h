// emulator_half.h: __half and __nv_bfloat16: 16 bits in memory, float in between, rounded to nearest even
// once per operation, as the hardware does.
#pragma once

#include "opforge/cuda/emulator.h"
#include "opforge/half.h"

namespace opforge::cuda {

template <class Bits>
struct Half {
  Bits value;
  Half() = default;
  Half(float x) : value(x) {}                                   // NOLINT: implicit, as CUDA's
  Half(double x) : value(static_cast<float>(x)) {}              // NOLINT
  Half(int x) : value(static_cast<float>(x)) {}                 // NOLINT
  operator float() const { return static_cast<float>(value); }  // NOLINT
  Half& operator+=(Half other) { return *this = Half(float(*this) + float(other)); }
  Half& operator-=(Half other) { return *this = Half(float(*this) - float(other)); }
  Half& operator*=(Half other) { return *this = Half(float(*this) * float(other)); }
  Half& operator/=(Half other) { return *this = Half(float(*this) / float(other)); }
  friend Half operator+(Half a, Half b) { return a += b; }
  friend Half operator-(Half a, Half b) { return a -= b; }
  friend Half operator*(Half a, Half b) { return a *= b; }
  friend Half operator/(Half a, Half b) { return a /= b; }
  friend Half operator-(Half a) { return Half(-float(a)); }
};
template <class Bits>
struct alignas(4) Half2 {
  Half<Bits> x, y;
};

}  // namespace opforge::cuda

#define OPFORGE_HALF(type, bits, word)                                                          \
  using type = ::opforge::cuda::Half<bits>;                                                     \
  using type##2 = ::opforge::cuda::Half2<bits>;                                                 \
  inline float __##word##2float(type x) { return x; }                                           \
  inline type __float2##word(float x) { return x; }                                             \
  inline type __float2##word##_rn(float x) { return x; }                                        \
  inline type __double2##word(double x) { return x; }                                           \
  inline float2 __##word##22float2(type##2 x) { return {float(x.x), float(x.y)}; }              \
  inline type##2 __float22##word##2_rn(float2 x) { return {type(x.x), type(x.y)}; }             \
  inline type##2 __floats2##word##2_rn(float x, float y) { return {type(x), type(y)}; }         \
  inline float __low2float(type##2 x) { return x.x; }                                           \
  inline float __high2float(type##2 x) { return x.y; }                                          \
  inline type __hadd(type a, type b) { return a + b; }                                          \
  inline type __hsub(type a, type b) { return a - b; }                                          \
  inline type __hmul(type a, type b) { return a * b; }                                          \
  inline type __hdiv(type a, type b) { return a / b; }                                          \
  inline type __hneg(type a) { return -a; }                                                     \
  inline type __hfma(type a, type b, type c) { return std::fma(float(a), float(b), float(c)); } \
  inline type __hmax(type a, type b) { return std::fmax(float(a), float(b)); }                  \
  inline type __hmin(type a, type b) { return std::fmin(float(a), float(b)); }                  \
  inline bool __hisnan(type a) { return std::isnan(float(a)); }                                 \
  inline type##2 __hadd2(type##2 a, type##2 b) { return {a.x + b.x, a.y + b.y}; }               \
  inline type##2 __hmul2(type##2 a, type##2 b) { return {a.x * b.x, a.y * b.y}; }               \
  inline type##2 __hfma2(type##2 a, type##2 b, type##2 c) {                                     \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                      \
  }
OPFORGE_HALF(__half, ::opforge::f16, half)
OPFORGE_HALF(__nv_bfloat16, ::opforge::bf16, bfloat16)
#undef OPFORGE_HALF
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
