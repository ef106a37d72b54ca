// extent.h: the schema's shape rule on ONNX Runtime's dimensions: numbers, names such as "N", or unknown.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "opforge/detail/infer.h"

namespace opforge::onnxruntime_host {

struct Extent {
  int64_t number = -1;  // where there is no name; negative = unknown, if it comes from ONNX Runtime
  std::string name;
};

// Names between which a broadcast could not choose: either may be 1 when the model runs.
struct Doubts {
  bool asked = false;
  std::vector<std::string> names;

  bool about(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
};

inline Doubts& doubts() {
  static thread_local Doubts of_this_call;
  return of_this_call;
}

}  // namespace opforge::onnxruntime_host

namespace opforge::detail {

template <>
struct DimTraits<onnxruntime_host::Extent> {
  using D = onnxruntime_host::Extent;
  static constexpr size_t kLongest = 96;

  static std::optional<D> from_host(const D& dim) {
    return dim.name.empty() && dim.number < 0 ? std::nullopt : std::optional<D>(dim);
  }
  static D unknown() { return {}; }
  static D from(int64_t number) { return {number, {}}; }
  static std::optional<int64_t> constant(const D& dim) {
    return dim.name.empty() ? std::optional<int64_t>(dim.number) : std::nullopt;
  }
  // What holds of names is seen when the model runs.
  static bool require_equal(const D& a, const D& b) {
    const bool asked = onnxruntime_host::doubts().asked;
    onnxruntime_host::doubts().asked = false;
    if (a.name.empty() && b.name.empty()) return a.number == b.number;
    if (asked && !a.name.empty() && !b.name.empty() && a.name != b.name) {
      onnxruntime_host::doubts().names.push_back(a.name);
      onnxruntime_host::doubts().names.push_back(b.name);
    }
    return true;
  }
  static bool require_nonnegative(const D& a) { return !a.name.empty() || a.number >= 0; }
  static bool require_divisible(const D& a, int64_t b) { return !a.name.empty() || a.number % b == 0; }
  static bool decide_one(const D& a) {
    onnxruntime_host::doubts().asked = true;
    return a.name.empty() && a.number == 1;
  }
  // An expression over names is a name of its own; ONNX Runtime compares them as text.
  static bool compute(char op, const D& a, const D& b, D* out) {
    if (a.name.empty() && b.name.empty()) {
      *out = {};
      return DimTraits<int64_t>::compute(op, a.number, b.number, &out->number);
    }
    const bool neutral = b.name.empty() && b.number == (op == '+' || op == '-' ? 0 : 1);
    if (neutral) {
      *out = a;
      return true;
    }
    std::string text =
        "(" + DimTraits::text(a) + (op == '/' ? "//" : std::string(1, op)) + DimTraits::text(b) + ")";
    if (text.size() > kLongest) return false;
    *out = {-1, std::move(text)};
    return true;
  }
  static std::string text(const D& dim) { return dim.name.empty() ? std::to_string(dim.number) : dim.name; }
};

}  // namespace opforge::detail
