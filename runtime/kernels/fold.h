// fold.h: sums, products and extrema of any numeric type, in lanes that every processor has.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/common.h"

namespace opforge::kernels {

// What a reduction adds up, and how: E is an element or a vector of them.
template <Reduction KIND, class T, class A>
struct Fold {
  static constexpr bool kPicks = KIND == Reduction::kMax || KIND == Reduction::kMin;
  using Sum = std::conditional_t<kPicks, T, A>;
  static Sum neutral() {
    using Limits = std::numeric_limits<T>;
    constexpr T infinite = Limits::is_iec559 ? Limits::infinity() : Limits::max();
    if (KIND == Reduction::kMax) return static_cast<Sum>(Limits::is_iec559 ? -infinite : Limits::lowest());
    return static_cast<Sum>(KIND == Reduction::kMin ? infinite : T(KIND == Reduction::kProd));
  }
  // a = a and b. (By reference: how vectors are passed depends on the instruction set.)
  template <class E>
  static void join(E& a, const E& b) {
    if constexpr (KIND == Reduction::kMax)  // NaN stays, whichever it is
      a = ((a >= b) | (a != a)) ? a : b;
    else if constexpr (KIND == Reduction::kMin)
      a = ((a <= b) | (a != a)) ? a : b;
    else if constexpr (KIND == Reduction::kProd)
      a = a * b;
    else
      a = a + b;
  }
  template <class E>
  static void term(E& x) {
    if constexpr (KIND == Reduction::kSumSquare) x = x * x;
    if constexpr (KIND == Reduction::kL1 && std::is_integral_v<A> && std::is_signed_v<T>)
      x = x > E{} + (~A(0) >> 1) ? E{} - x : x;
    else if constexpr (KIND == Reduction::kL1 && !std::is_integral_v<A>)
      x = x < E{} ? E{} - x : x;
  }

  // n neighbours, in as many lanes as 64 bytes hold: four registers of every processor.
  static Sum row(const T* x, int64_t n) {
    constexpr int64_t kPart = 16 / sizeof(Sum), kLanes = 4 * kPart;
    typedef Sum Part __attribute__((vector_size(16)));
    typedef T Elements __attribute__((vector_size(kPart * sizeof(T)), aligned(alignof(T)), may_alias));
    Part lanes[4];
    for (Part& part : lanes) part = Part{} + neutral();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        Part v = __builtin_convertvector(*reinterpret_cast<const Elements*>(x + i + p * kPart), Part);
        term(v);
        join(lanes[p], v);
      }
    }
    Sum sums[kLanes];
    std::memcpy(sums, lanes, sizeof sums);
    for (int64_t l = 0; i < n; ++i, ++l) columns(x + i, sums + l, 1);
    for (int64_t l = 1; l < kLanes; ++l) join(sums[0], sums[l]);
    return sums[0];
  }
  // to[k] = to[k] and x[k]
  static void columns(const T* x, Sum* to, int64_t n) {
    for (int64_t k = 0; k < n; ++k) {
      Sum v = static_cast<Sum>(x[k]);
      term(v);
      join(to[k], v);
    }
  }
};

}  // namespace opforge::kernels
