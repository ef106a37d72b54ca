// dimension.h: the schema's shape rule on OpenVINO's dimensions: numbers, bounds, and symbols that say which
// unknown sizes are one.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <openvino/core/dimension.hpp>

#include "opforge/detail/infer.h"

namespace opforge::openvino_host {

struct Extent {
  bool fixed = true;
  int64_t number = 0;  // where it is fixed; below 0 only inside an expression
  ov::Dimension open;  // otherwise
};

inline Extent extent_of(const ov::Dimension& dim) {
  return dim.is_static() ? Extent{true, dim.get_length(), {}} : Extent{false, 0, dim};
}
inline ov::Dimension dimension_of(const Extent& extent) {
  return extent.fixed ? ov::Dimension(extent.number) : extent.open;
}

inline bool one_size(const ov::Dimension& a, const ov::Dimension& b) {
  return a.has_symbol() && b.has_symbol() && ov::symbol::are_equal(a.get_symbol(), b.get_symbol());
}

// Sizes between which a broadcast could not choose: either may be 1 when the model runs.
struct Doubts {
  bool asked = false;
  std::vector<ov::Dimension> sizes;

  bool about(const ov::Dimension& size) const {
    return std::any_of(sizes.begin(), sizes.end(), [&](const ov::Dimension& other) {
      return other == size && other.get_symbol() == size.get_symbol();
    });
  }
};

inline Doubts& doubts() {
  static thread_local Doubts of_this_call;
  return of_this_call;
}

}  // namespace opforge::openvino_host

namespace opforge::detail {

template <>
struct DimTraits<openvino_host::Extent> {
  using D = openvino_host::Extent;

  // Of a size without a symbol and without bounds nothing is known.
  static std::optional<D> from_host(const D& dim) {
    const bool known = dim.fixed || dim.open.has_symbol() || dim.open != ov::Dimension::dynamic();
    return known ? std::optional<D>(dim) : std::nullopt;
  }
  static D unknown() { return {false, 0, ov::Dimension::dynamic()}; }
  static D from(int64_t number) { return {true, number, {}}; }
  static std::optional<int64_t> constant(const D& dim) {
    return dim.fixed ? std::optional<int64_t>(dim.number) : std::nullopt;
  }
  // What holds of unknown sizes is seen when the model runs; their bounds may contradict now.
  static bool require_equal(const D& a, const D& b) {
    const bool asked = openvino_host::doubts().asked;
    openvino_host::doubts().asked = false;
    if (a.fixed && b.fixed) return a.number == b.number;
    if (asked && !a.fixed && !b.fixed && !openvino_host::one_size(a.open, b.open)) {
      openvino_host::doubts().sizes.push_back(a.open);
      openvino_host::doubts().sizes.push_back(b.open);
      return true;
    }
    if ((a.fixed && a.number < 0) || (b.fixed && b.number < 0)) return false;
    return openvino_host::dimension_of(a).compatible(openvino_host::dimension_of(b));
  }
  static bool require_nonnegative(const D& a) { return !a.fixed || a.number >= 0; }
  static bool require_divisible(const D& a, int64_t b) { return !a.fixed || a.number % b == 0; }
  static bool decide_one(const D& a) {
    openvino_host::doubts().asked = true;
    return a.fixed && a.number == 1;
  }
  static bool compute(char op, const D& a, const D& b, D* out) {
    if (a.fixed && b.fixed) {
      *out = {};
      return DimTraits<int64_t>::compute(op, a.number, b.number, &out->number);
    }
    const bool neutral = b.fixed && b.number == (op == '+' || op == '-' ? 0 : 1);
    *out = neutral ? a : unknown();
    return true;
  }
  static std::string text(const D& dim) {
    return dim.fixed ? std::to_string(dim.number) : dim.open.to_string();
  }
};

}  // namespace opforge::detail
