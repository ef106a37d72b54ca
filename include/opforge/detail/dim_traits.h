// dim_traits.h: what infer.h asks of the type of a dimension.
//
// DimTraits<int64_t> takes -1 for an unknown size. A host specialises DimTraits for its symbolic integers,
// e.g. torch's SymInt: `require_*` may record the condition and give true, `decide_one` answers a question
// either way. A host that cannot answer may have `broadcast(a, b)`: the size of two that broadcast and are
// not both plain numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace opforge::detail {

template <class D>
struct DimTraits;

template <>
struct DimTraits<int64_t> {
  // A host's dimension as a value; nullopt = unknown.
  static std::optional<int64_t> from_host(int64_t dim) {
    return dim < 0 ? std::nullopt : std::optional<int64_t>(dim);
  }
  static int64_t unknown() { return -1; }
  static int64_t from(int64_t number) { return number; }
  // The number where the dimension is a plain one.
  static std::optional<int64_t> constant(int64_t dim) { return dim; }
  // Conditions that a valid call meets: false where they do not hold.
  static bool require_equal(int64_t a, int64_t b) { return a == b; }
  static bool require_nonnegative(int64_t a) { return a >= 0; }
  static bool require_divisible(int64_t a, int64_t b) { return a % b == 0; }
  // A question with two good answers.
  static bool decide_one(int64_t a) { return a == 1; }
  // op is '+', '-', '*' or '/' (floor division, b not 0); false = more than 64 bits.
  static bool compute(char op, int64_t a, int64_t b, int64_t* out) {
    switch (op) {
      case '+':
        return !__builtin_add_overflow(a, b, out);
      case '-':
        return !__builtin_sub_overflow(a, b, out);
      case '*':
        return !__builtin_mul_overflow(a, b, out);
      default:
        if (a == INT64_MIN && b == -1) return false;
        *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
        return true;
    }
  }
  static std::string text(int64_t dim) { return std::to_string(dim); }
};

}  // namespace opforge::detail
