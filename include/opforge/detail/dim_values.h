// dim_values.h: what is known of dimensions while a call is bound: sizes by name, how they compare, compute
// and broadcast. DimTraits says the same of one size.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "opforge/detail/dim_traits.h"
#include "opforge/detail/signature.h"

namespace opforge::detail {

// Whether a host computes the size of two that broadcast, instead of deciding which of them is 1.
template <class D, class Traits, class = void>
struct HasBroadcast : std::false_type {};
template <class D, class Traits>
struct HasBroadcast<
    D, Traits, std::void_t<decltype(Traits::broadcast(std::declval<const D&>(), std::declval<const D&>()))>>
    : std::true_type {};

// Sizes of names, a value that is none being unknown.
template <class D, class Traits>
struct DimValues {
  using Value = std::optional<D>;

  struct Known {
    bool bound = false;
    bool ranked = true;      // of a run
    Value one;               // of a single dimension
    std::vector<Value> run;  // of *S
    int32_t origin = -1;     // index into tensors_, or -2 - attribute
  };

  std::vector<Known> names;  // by the ids of the signature

  Known& at(int32_t id) { return names[static_cast<size_t>(id)]; }

  static std::string text(const Value& dim) { return dim ? Traits::text(*dim) : "?"; }
  static std::string text(const std::vector<Value>& dims) {
    std::vector<std::string> words;
    for (const Value& dim : dims) words.push_back(text(dim));
    return "[" + join(words) + "]";
  }

  static bool equal(const Value& a, const Value& b) { return !a || !b || Traits::require_equal(*a, *b); }
  // Whether `next` says more than `now`: a number says more than a symbol, a symbol more than nothing.
  static bool sharpens(const Value& now, const Value& next) {
    if (!next) return false;
    return !now || (Traits::constant(*next) && !Traits::constant(*now));
  }

  // NULL, or why it cannot be computed.
  const char* compute(const Dim& dim, Value* out) {
    if (dim.kind == Dim::kInteger) *out = Traits::from(dim.value);
    if (dim.kind == Dim::kName) *out = at(dim.ids[0]).one;
    if (dim.kind != Dim::kBinary) return nullptr;
    Value left, right;
    const char* reason = compute(dim.sides[0], &left);
    if (reason == nullptr) reason = compute(dim.sides[1], &right);
    if (reason != nullptr) return reason;
    if (dim.op == "//" && right && Traits::constant(*right) == std::optional<int64_t>(0))
      return "division by zero";
    out->reset();
    if (!left || !right) return nullptr;
    D result = *left;
    if (!Traits::compute(dim.op[0], *left, *right, &result)) return "more than 64 bits";
    *out = result;
    return nullptr;
  }

  // What two sizes give, in the place of the first; false where they do not broadcast.
  static bool broadcast_pair(Value* into, const Value& next) {
    const auto left = *into ? Traits::constant(**into) : std::nullopt;
    const auto right = next ? Traits::constant(*next) : std::nullopt;
    if (right && *right == 1) return true;
    if (left && *left == 1) {
      *into = next;
      return true;
    }
    if (left && right) return *left == *right;
    if (!*into || !next) {  // an unknown size may turn out to be 1
      if (!left) *into = right ? next : Value();
      return true;
    }
    if constexpr (HasBroadcast<D, Traits>::value) {
      *into = Traits::broadcast(**into, *next);
      return true;
    } else {
      if (Traits::decide_one(**into)) {
        *into = next;
        return true;
      }
      if (Traits::decide_one(*next)) return true;
      if (!Traits::require_equal(**into, *next)) return false;
      if (right) *into = next;
      return true;
    }
  }
};

}  // namespace opforge::detail
