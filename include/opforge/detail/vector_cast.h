// vector_cast.h: conversions between element types. Float to integer cuts towards zero and saturates, NaN
// gives 0; integer to integer wraps; to bool is `!= 0` (NaN is true); everything else rounds to nearest even.
#pragma once

#include "opforge/detail/vector_core.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {

template <class To, class From>
OPFORGE_INLINE To cast_scalar(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // 2^(bits - 1): exact in every float type, unlike the largest integer.
    constexpr bool is_signed = std::is_signed_v<To>;
    constexpr From limit = From(2) * From(uint64_t(1) << (sizeof(To) * 8 - (is_signed ? 2 : 1)));
    constexpr To highest = is_signed ? To((uint64_t(1) << (sizeof(To) * 8 - 1)) - 1) : To(~To(0));
    constexpr To lowest = is_signed ? To(-highest - 1) : To(0);
    if (x != x) return 0;
    if (x >= limit) return highest;
    if (x < (is_signed ? -limit : From(0))) return lowest;
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class E, int N, class From>
OPFORGE_INLINE Vec<E, N> cast_vector(Vec<From, N> x) {
  Vec<E, N> r;
  using Raw = typename Vec<E, N>::Raw;
  if constexpr (std::is_same_v<E, From>) {
    return x;
  } else if constexpr (std::is_same_v<E, bool>) {
    if constexpr (sizeof(From) == 4) {
      r.v = x.v != 0;
    } else {
      r.v = raw::convert<Raw>(x.v != 0);
    }
  } else if constexpr (std::is_same_v<From, bool>) {
    r.v = raw::convert<Raw>(x.v & 1);
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<E, int32_t>) {
    const auto high = x.v >= From(0x1p31), low = x.v < From(-0x1p31);
    const typename Vec<From, N>::Raw zero = {};
    r.v = __builtin_convertvector((high | low | (x.v != x.v)) ? zero : x.v, Raw);
    const auto h = __builtin_convertvector(high, Raw), l = __builtin_convertvector(low, Raw);
    r.v = h ? Raw{} + INT32_MAX : l ? Raw{} + INT32_MIN : r.v;
  } else if constexpr (std::is_floating_point_v<From> && sizeof(E) == 1) {
    using Reals = typename Vec<From, N>::Raw;
    constexpr From lowest = std::is_signed_v<E> ? -128 : 0, highest = std::is_signed_v<E> ? 127 : 255;
    const Reals low = Reals{} + lowest, high = Reals{} + highest;
    const Reals known = x.v == x.v ? x.v : Reals{};
    const Reals within = known < low ? low : known > high ? high : known;
    r.v = raw::convert<Raw>(__builtin_convertvector(within, typename RawOf<int32_t, N>::Type));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<E>) {
    for (int i = 0; i < N; ++i) r.v[i] = cast_scalar<E, From>(x.v[i]);
  } else {
    r.v = raw::convert<Raw>(x.v);
  }
  return r;
}

template <class E, class V>
OPFORGE_INLINE Rebind<V, E> cast(V x) {
  if constexpr (kIsPair<V>) {
    return {cast<E>(x.lo), cast<E>(x.hi)};
  } else {
    return cast_vector<E, V::kSize, typename V::Element>(x);
  }
}

}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
