// vector_functions.h: the operations of opcodes.def on Vec<E, N>, for formula code.
#pragma once

#include "opforge/detail/vector64_erf.h"
#include "opforge/detail/vector64_exp.h"
#include "opforge/detail/vector64_inverse.h"
#include "opforge/detail/vector64_log.h"
#include "opforge/detail/vector64_pow.h"
#include "opforge/detail/vector64_trig.h"
#include "opforge/detail/vector_arithmetic.h"
#include "opforge/detail/vector_cast.h"
#include "opforge/detail/vector_erf.h"
#include "opforge/detail/vector_exp.h"
#include "opforge/detail/vector_half.h"
#include "opforge/detail/vector_inverse.h"
#include "opforge/detail/vector_log.h"
#include "opforge/detail/vector_pow.h"
#include "opforge/detail/vector_trig.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {

// ---- memory: elements of type E as tensors hold them ----
template <class V>
OPFORGE_INLINE V load(const void* p) {
  V r;
  if constexpr (kIsPair<V>) {
    r.lo = load<decltype(r.lo)>(p);
    r.hi = load<decltype(r.hi)>(static_cast<const char*>(p) + V::kSize / 2 * sizeof(typename V::Element));
  } else if constexpr (std::is_same_v<typename V::Element, bool>) {
    typename RawOf<uint8_t, V::kSize>::Type bytes;
    memcpy(&bytes, p, sizeof bytes);
    r.v = raw::convert<typename V::Raw>(bytes) != 0;
  } else {
    memcpy(&r.v, p, sizeof r.v);
  }
  return r;
}
template <class V>
OPFORGE_INLINE void store(void* p, V x) {
  if constexpr (kIsPair<V>) {
    store(p, x.lo);
    store(static_cast<char*>(p) + V::kSize / 2 * sizeof(typename V::Element), x.hi);
  } else if constexpr (std::is_same_v<typename V::Element, bool>) {
    const auto bytes = raw::convert<typename RawOf<uint8_t, V::kSize>::Type>(x.v & 1);
    memcpy(p, &bytes, sizeof bytes);
  } else {
    memcpy(p, &x.v, sizeof x.v);
  }
}
// A constant: the double is rounded once to the element type (integers saturate).
template <class V>
OPFORGE_INLINE V splat(double x) {
  using E = typename V::Element;
  V r = {};
  if constexpr (kIsPair<V>) {
    r.lo = r.hi = splat<decltype(r.lo)>(x);
  } else if constexpr (std::is_same_v<E, bool>) {
    r.v = r.v - (x != 0.0);
  } else if constexpr (std::is_floating_point_v<E>) {
    r.v = static_cast<E>(x) - r.v;
  } else {
    r.v = r.v + cast_scalar<E, double>(x);
  }
  return r;
}

template <class V>
constexpr bool kIsFloat = std::is_same_v<typename V::Element, float>;
template <class V>
constexpr bool kIsBool = std::is_same_v<typename V::Element, bool>;

// ---- arithmetic ----
template <class V>
OPFORGE_INLINE V add(V a, V b) {
  return {a.v + b.v};
}
template <class V>
OPFORGE_INLINE V sub(V a, V b) {
  return {a.v - b.v};
}
template <class V>
OPFORGE_INLINE V mul(V a, V b) {
  return {a.v * b.v};
}
template <class V>
OPFORGE_INLINE V div(V a, V b) {
  return {a.v / b.v};
}
template <class V>
OPFORGE_INLINE V min(V a, V b) {
  return {raw::min(a.v, b.v)};
}
template <class V>
OPFORGE_INLINE V max(V a, V b) {
  return {raw::max(a.v, b.v)};
}
template <class V>
OPFORGE_INLINE V fma(V a, V b, V c) {
  return {raw::mad(a.v, b.v, c.v)};
}
template <class V>
OPFORGE_INLINE V fnma(V a, V b, V c) {
  return {raw::mad(raw::neg(a.v), b.v, c.v)};
}
template <class V>
OPFORGE_INLINE V clip(V x, V lo, V hi) {
  return {raw::clip(x.v, lo.v, hi.v)};
}
template <class V>
OPFORGE_INLINE V square(V x) {
  return {x.v * x.v};
}
template <class V>
OPFORGE_INLINE V sqrt(V x) {
  return {raw::sqrt(x.v)};
}
template <class V>
OPFORGE_INLINE V reciprocal(V x) {
  return {1 / x.v};
}
template <class V>
OPFORGE_INLINE V rsqrt(V x) {
  return reciprocal(sqrt(x));
}
#define OPFORGE_BOTH(name)     \
  template <class V>           \
  OPFORGE_INLINE V name(V x) { \
    return {raw::name(x.v)};   \
  }
OPFORGE_BOTH(neg)
OPFORGE_BOTH(abs)
OPFORGE_BOTH(sign)
OPFORGE_BOTH(relu)
OPFORGE_BOTH(floor)
OPFORGE_BOTH(ceil)
OPFORGE_BOTH(round)
OPFORGE_BOTH(trunc)
#undef OPFORGE_BOTH

// ---- elementary functions ----
// Those of f64 are long: one copy of each serves all callers (compilers are slow with formulas that hold many
// copies, and a processor runs several calls side by side).
#define OPFORGE_UNARY(name)                   \
  template <class F>                          \
  OPFORGE_NOINLINE F name##_of_doubles(F x) { \
    return raw64::name(x);                    \
  }                                           \
  template <class V>                          \
  OPFORGE_INLINE V name(V x) {                \
    if constexpr (kIsFloat<V>) {              \
      return {raw::name(x.v)};                \
    } else {                                  \
      return {name##_of_doubles(x.v)};        \
    }                                         \
  }
#define OPFORGE_BINARY(name)                       \
  template <class F>                               \
  OPFORGE_NOINLINE F name##_of_doubles(F x, F y) { \
    return raw64::name(x, y);                      \
  }                                                \
  template <class V>                               \
  OPFORGE_INLINE V name(V x, V y) {                \
    if constexpr (kIsFloat<V>) {                   \
      return {raw::name(x.v, y.v)};                \
    } else {                                       \
      return {name##_of_doubles(x.v, y.v)};        \
    }                                              \
  }
OPFORGE_UNARY(exp)
OPFORGE_UNARY(exp2)
OPFORGE_UNARY(expm1)
OPFORGE_UNARY(log)
OPFORGE_UNARY(log2)
OPFORGE_UNARY(log10)
OPFORGE_UNARY(log1p)
OPFORGE_UNARY(sin)
OPFORGE_UNARY(cos)
OPFORGE_UNARY(tan)
OPFORGE_UNARY(asin)
OPFORGE_UNARY(acos)
OPFORGE_UNARY(atan)
OPFORGE_UNARY(sinh)
OPFORGE_UNARY(cosh)
OPFORGE_UNARY(tanh)
OPFORGE_UNARY(asinh)
OPFORGE_UNARY(acosh)
OPFORGE_UNARY(atanh)
OPFORGE_UNARY(erf)
OPFORGE_UNARY(erfc)
OPFORGE_UNARY(cbrt)
OPFORGE_UNARY(sigmoid)
OPFORGE_UNARY(softplus)
#undef OPFORGE_UNARY
OPFORGE_BINARY(pow)
OPFORGE_BINARY(atan2)
OPFORGE_BINARY(fmod)
OPFORGE_BINARY(mod)
#undef OPFORGE_BINARY

// ---- comparisons, logic, selection ----
template <class V>
using Truth = Rebind<V, bool>;
template <class V, class M>
OPFORGE_INLINE Truth<V> truth(M mask) {
  return {raw::convert<typename Truth<V>::Raw>(mask)};
}
#define OPFORGE_COMPARE(name, op)          \
  template <class V>                       \
  OPFORGE_INLINE Truth<V> name(V a, V b) { \
    if constexpr (kIsBool<V>) {            \
      return truth<V>(-a.v op - b.v);      \
    } else {                               \
      return truth<V>(a.v op b.v);         \
    }                                      \
  }
OPFORGE_COMPARE(lt, <)
OPFORGE_COMPARE(le, <=)
OPFORGE_COMPARE(eq, ==)
OPFORGE_COMPARE(ne, !=)
OPFORGE_COMPARE(gt, >)
OPFORGE_COMPARE(ge, >=)
#undef OPFORGE_COMPARE
template <class V>
OPFORGE_INLINE Truth<V> isnan(V x) {
  return truth<V>(x.v != x.v);
}
template <class V>
OPFORGE_INLINE Truth<V> isinf(V x) {
  return truth<V>(raw::abs(x.v) == __builtin_inff());
}
template <int N>
OPFORGE_INLINE Vec<bool, N> logical_and(Vec<bool, N> a, Vec<bool, N> b) {
  return {a.v & b.v};
}
template <int N>
OPFORGE_INLINE Vec<bool, N> logical_or(Vec<bool, N> a, Vec<bool, N> b) {
  return {a.v | b.v};
}
template <int N>
OPFORGE_INLINE Vec<bool, N> logical_xor(Vec<bool, N> a, Vec<bool, N> b) {
  return {a.v ^ b.v};
}
template <int N>
OPFORGE_INLINE Vec<bool, N> logical_not(Vec<bool, N> a) {
  return {~a.v};
}
template <class V>
OPFORGE_INLINE V select(Truth<V> condition, V a, V b) {
  if constexpr (kIsPair<V>) {
    return {select(condition.lo, a.lo, b.lo), select(condition.hi, a.hi, b.hi)};
  } else if constexpr (kIsBool<V>) {
    return {(condition.v & a.v) | (~condition.v & b.v)};
  } else {
    using Mask = decltype(a.v < b.v);
    if constexpr (sizeof(typename V::Element) == 4) {
      return {(Mask)condition.v ? a.v : b.v};
    } else {
      return {raw::convert<Mask>(condition.v) ? a.v : b.v};
    }
  }
}

// Rounds to the storage type S of the call, keeping the compute type.
template <class S, class V>
OPFORGE_INLINE V round_half(V x) {
  if constexpr (kIsPair<V>) {
    return {round_half<S>(x.lo), round_half<S>(x.hi)};
  } else if constexpr (std::is_same_v<S, f16>) {
    return {raw::f16_to_float<V::kSize>(raw::float_to_f16<V::kSize>(x.v))};
  } else if constexpr (std::is_same_v<S, bf16>) {
    return {raw::bf16_to_float<V::kSize>(raw::float_to_bf16<V::kSize>(x.v))};
  } else {
    return x;
  }
}
// Rounds values of f32 to a half type that need not be the storage's; f64 stays as it is.
#define OPFORGE_ROUND(name, type)                              \
  template <class V>                                           \
  OPFORGE_INLINE V name(V x) {                                 \
    if constexpr (std::is_same_v<typename V::Element, double>) \
      return x;                                                \
    else                                                       \
      return round_half<type>(x);                              \
  }
OPFORGE_ROUND(round_f16, f16)
OPFORGE_ROUND(round_bf16, bf16)
#undef OPFORGE_ROUND

}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
