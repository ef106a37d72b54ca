// functions.cuh: every instruction of formula bytecode on scalars, as device functions. T is float or double.
#pragma once

#include <math.h>
#include <stdint.h>

#include "opforge/cuda/element.cuh"

namespace opforge {
namespace cuda {
namespace fn {

struct T;  // stands for the call's compute type in Types<...>
template <class... E>
struct Types {};

template <class V, class E>
struct RebindOf {
  using Type = E;
};
template <class V, class E>
using Rebind = typename RebindOf<V, E>::Type;
template <class E>
constexpr bool kIsFloat = sizeof(E) == 4;

template <class V>
OPFORGE_INLINE V splat(double x) {
  return static_cast<V>(x);
}
template <class V>
OPFORGE_INLINE V not_a_number() {
  return static_cast<V>(nanf(""));
}

#define OPFORGE_SCALAR_1(name, expression) \
  template <class V>                       \
  OPFORGE_INLINE V name(V x) {             \
    return expression;                     \
  }
#define OPFORGE_SCALAR_2(name, expression) \
  template <class V>                       \
  OPFORGE_INLINE V name(V x, V y) {        \
    return expression;                     \
  }
// f32 and f64 functions of the same meaning have names of their own in C.
#define OPFORGE_ELEMENTARY(name)                                     \
  OPFORGE_INLINE float name##_of(float x) { return ::name##f(x); }   \
  OPFORGE_INLINE double name##_of(double x) { return ::name(x); }    \
  OPFORGE_SCALAR_1(name, name##_of(x))

OPFORGE_SCALAR_2(add, x + y)
OPFORGE_SCALAR_2(sub, x - y)
OPFORGE_SCALAR_2(mul, x * y)
OPFORGE_SCALAR_2(div, x / y)
OPFORGE_SCALAR_2(min, x != x ? x : (x < y ? x : y))  // NaN in either gives NaN; of equal ones the second
OPFORGE_SCALAR_2(max, x != x ? x : (x > y ? x : y))
template <class V>
OPFORGE_INLINE V fma(V a, V b, V c) {
  return fused(a, b, c);
}
template <class V>
OPFORGE_INLINE V fnma(V a, V b, V c) {
  return fused(-a, b, c);
}
template <class V>
OPFORGE_INLINE V clip(V x, V lo, V hi) {
  return x != x ? x : (lo != lo ? lo : (hi != hi ? hi : (x < lo ? (lo > hi ? hi : lo) : (x > hi ? hi : x))));
}

OPFORGE_SCALAR_1(neg, -x)
OPFORGE_SCALAR_1(square, x * x)
OPFORGE_SCALAR_1(reciprocal, V(1) / x)
OPFORGE_SCALAR_1(relu, x > V(0) || x != x ? x : V(0))
OPFORGE_SCALAR_1(sign, x > V(0) ? V(1) : (x < V(0) ? V(-1) : x))
OPFORGE_ELEMENTARY(fabs)
OPFORGE_SCALAR_1(abs, fabs_of(x))
OPFORGE_ELEMENTARY(sqrt)
OPFORGE_SCALAR_1(rsqrt, V(1) / sqrt_of(x))
OPFORGE_ELEMENTARY(cbrt)
OPFORGE_ELEMENTARY(exp)
OPFORGE_ELEMENTARY(exp2)
OPFORGE_ELEMENTARY(expm1)
OPFORGE_ELEMENTARY(log)
OPFORGE_ELEMENTARY(log2)
OPFORGE_ELEMENTARY(log10)
OPFORGE_ELEMENTARY(log1p)
OPFORGE_ELEMENTARY(sin)
OPFORGE_ELEMENTARY(cos)
OPFORGE_ELEMENTARY(tan)
OPFORGE_ELEMENTARY(asin)
OPFORGE_ELEMENTARY(acos)
OPFORGE_ELEMENTARY(atan)
OPFORGE_ELEMENTARY(sinh)
OPFORGE_ELEMENTARY(cosh)
OPFORGE_ELEMENTARY(tanh)
OPFORGE_ELEMENTARY(asinh)
OPFORGE_ELEMENTARY(acosh)
OPFORGE_ELEMENTARY(atanh)
OPFORGE_ELEMENTARY(erf)
OPFORGE_ELEMENTARY(erfc)
OPFORGE_ELEMENTARY(floor)
OPFORGE_ELEMENTARY(ceil)
OPFORGE_ELEMENTARY(trunc)
OPFORGE_ELEMENTARY(rint)
OPFORGE_SCALAR_1(round, rint_of(x))

// exp(-|x|) on both sides: nothing overflows, and small results keep their digits.
template <class V>
OPFORGE_INLINE V sigmoid(V x) {
  const V e = exp_of(-fabs_of(x));
  return x != x ? x : (x >= V(0) ? V(1) : e) / (V(1) + e);
}
template <class V>
OPFORGE_INLINE V softplus(V x) {
  return x != x ? x : (x > V(0) ? x : V(0)) + log1p_of(exp_of(-fabs_of(x)));
}

OPFORGE_INLINE float pow_of(float x, float y) { return ::powf(x, y); }
OPFORGE_INLINE double pow_of(double x, double y) { return ::pow(x, y); }
OPFORGE_INLINE float atan2_of(float x, float y) { return ::atan2f(x, y); }
OPFORGE_INLINE double atan2_of(double x, double y) { return ::atan2(x, y); }
OPFORGE_INLINE float fmod_of(float x, float y) { return ::fmodf(x, y); }
OPFORGE_INLINE double fmod_of(double x, double y) { return ::fmod(x, y); }
OPFORGE_INLINE float copysign_of(float x, float y) { return ::copysignf(x, y); }
OPFORGE_INLINE double copysign_of(double x, double y) { return ::copysign(x, y); }
OPFORGE_SCALAR_2(pow, pow_of(x, y))
OPFORGE_SCALAR_2(atan2, atan2_of(x, y))
OPFORGE_SCALAR_2(fmod, fmod_of(x, y))
template <class V>
OPFORGE_INLINE V mod(V x, V y) {  // floored: the result has the divisor's sign
  const V r = fmod_of(x, y);
  if (r == V(0)) return copysign_of(r, y);
  return r == r && (r < V(0)) != (y < V(0)) ? r + y : r;
}

#define OPFORGE_SCALAR_COMPARE(name, op) \
  template <class V>                     \
  OPFORGE_INLINE bool name(V a, V b) {   \
    return a op b;                       \
  }
OPFORGE_SCALAR_COMPARE(lt, <)
OPFORGE_SCALAR_COMPARE(le, <=)
OPFORGE_SCALAR_COMPARE(eq, ==)
OPFORGE_SCALAR_COMPARE(ne, !=)
OPFORGE_SCALAR_COMPARE(gt, >)
OPFORGE_SCALAR_COMPARE(ge, >=)
#undef OPFORGE_SCALAR_COMPARE
template <class V>
OPFORGE_INLINE bool isnan(V x) {
  return x != x;
}
template <class V>
OPFORGE_INLINE bool isinf(V x) {
  return x - x != x - x && x == x;
}
OPFORGE_INLINE bool logical_and(bool a, bool b) { return a && b; }
OPFORGE_INLINE bool logical_or(bool a, bool b) { return a || b; }
OPFORGE_INLINE bool logical_xor(bool a, bool b) { return a != b; }
OPFORGE_INLINE bool logical_not(bool a) { return !a; }
template <class V>
OPFORGE_INLINE V select(bool condition, V a, V b) {
  return condition ? a : b;
}

// Float to integer cuts towards zero and saturates, NaN gives 0; to bool is `!= 0`.
template <class To>
struct Caster {
  template <class From>
  OPFORGE_INLINE static To of(From x) {
    return static_cast<To>(x);
  }
  OPFORGE_INLINE static To of(float x) { return of(static_cast<double>(x)); }
  OPFORGE_INLINE static To of(double x) {
    if (x != x) return To(0);
    constexpr bool is_signed = To(-1) < To(0);
    const double limit = 2.0 * static_cast<double>(uint64_t(1) << (sizeof(To) * 8 - (is_signed ? 2 : 1)));
    constexpr To highest = is_signed ? To((uint64_t(1) << (sizeof(To) * 8 - 1)) - 1) : To(~To(0));
    if (x >= limit) return highest;
    if (x < (is_signed ? -limit : 0.0)) return is_signed ? To(-highest - 1) : To(0);
    return static_cast<To>(x);
  }
};
template <>
struct Caster<bool> {
  template <class From>
  OPFORGE_INLINE static bool of(From x) {
    return x != From(0);
  }
};
template <>
struct Caster<float> {
  template <class From>
  OPFORGE_INLINE static float of(From x) {
    return static_cast<float>(x);
  }
};
template <>
struct Caster<double> {
  template <class From>
  OPFORGE_INLINE static double of(From x) {
    return static_cast<double>(x);
  }
};
template <class E, class V>
OPFORGE_INLINE E cast(V x) {
  return Caster<E>::of(x);
}

#undef OPFORGE_SCALAR_1
#undef OPFORGE_SCALAR_2
#undef OPFORGE_ELEMENTARY

}  // namespace fn
}  // namespace cuda
}  // namespace opforge
