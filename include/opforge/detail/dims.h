// dims.h: dimensions of the signature language, what stands between the brackets of `T[m, 2*n+1, *S]`.
// The counterpart of src/opforge/schema/dims.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "opforge/detail/lexer.h"

namespace opforge::detail {

struct Dim {
  enum Kind { kInteger, kName, kAny, kRest, kBroadcast, kBinary };
  Kind kind = kInteger;
  int64_t value = 0;               // kInteger
  std::vector<std::string> names;  // kName, kRest: one; kBroadcast: all
  std::vector<int32_t> ids;        // of the names in Signature::names, set by parse_signature
  std::string op;                  // kBinary: + - * //
  std::vector<Dim> sides;          // kBinary: left, right

  bool is_run() const { return kind == kRest || kind == kBroadcast; }
};

inline int strength(const std::string& op) { return op == "+" || op == "-" ? 1 : 2; }

inline std::string to_string(const Dim& dim) {
  switch (dim.kind) {
    case Dim::kInteger:
      return std::to_string(dim.value);
    case Dim::kName:
      return dim.names[0];
    case Dim::kAny:
      return "_";
    case Dim::kRest:
      return "*" + dim.names[0];
    case Dim::kBroadcast:
      return "bcast(" + join(dim.names) + ")";
    case Dim::kBinary:
      break;
  }
  std::string left = to_string(dim.sides[0]), right = to_string(dim.sides[1]);
  if (dim.sides[0].kind == Dim::kBinary && strength(dim.sides[0].op) < strength(dim.op))
    left = "(" + left + ")";
  if (dim.sides[1].kind == Dim::kBinary && strength(dim.sides[1].op) <= strength(dim.op))
    right = "(" + right + ")";
  return left + dim.op + right;
}

// Calls f(name, id) for each name that a dimension reads, in order; ids are -1 before they are set.
template <class F>
void each_name(const Dim& dim, F&& f) {
  for (size_t k = 0; k < dim.names.size(); ++k) f(dim.names[k], k < dim.ids.size() ? dim.ids[k] : -1);
  for (const Dim& side : dim.sides) each_name(side, f);
}

// An expression read as a*n+b; name is empty for a plain number b.
struct Linear {
  int64_t a = 0;
  std::string name;
  int32_t id = -1;
  int64_t b = 0;
};

inline std::optional<Linear> linear_parts(const Dim& dim) {
  if (dim.kind == Dim::kInteger) return Linear{0, "", -1, dim.value};
  if (dim.kind == Dim::kName) return Linear{1, dim.names[0], dim.ids.empty() ? -1 : dim.ids[0], 0};
  if (dim.kind != Dim::kBinary) return std::nullopt;
  auto left = linear_parts(dim.sides[0]), right = linear_parts(dim.sides[1]);
  if (!left || !right || dim.op == "//") return std::nullopt;
  Linear result;
  if (dim.op == "*") {
    if (!left->name.empty() && !right->name.empty()) return std::nullopt;
    const Linear& other = right->name.empty() ? *left : *right;
    const int64_t factor = right->name.empty() ? right->b : left->b;
    result.name = other.name;
    result.id = other.id;
    if (__builtin_mul_overflow(other.a, factor, &result.a) ||
        __builtin_mul_overflow(other.b, factor, &result.b))
      return std::nullopt;
    return result;
  }
  if (!left->name.empty() && !right->name.empty() && left->name != right->name) return std::nullopt;
  const Linear& named = left->name.empty() ? *right : *left;
  result.name = named.name;
  result.id = named.id;
  const bool overflow = dim.op == "+" ? __builtin_add_overflow(left->a, right->a, &result.a) ||
                                            __builtin_add_overflow(left->b, right->b, &result.b)
                                      : __builtin_sub_overflow(left->a, right->a, &result.a) ||
                                            __builtin_sub_overflow(left->b, right->b, &result.b);
  if (overflow) return std::nullopt;
  return result;
}

// a*n+b with a not 0, for one name n.
inline std::optional<Linear> linear(const Dim& dim) {
  auto parts = linear_parts(dim);
  if (!parts || parts->name.empty() || parts->a == 0) return std::nullopt;
  return parts;
}

bool parse_expression(Cursor& cursor, Dim* out, int depth);

inline bool parse_factor(Cursor& cursor, Dim* out, int depth) {
  *out = Dim();
  if (depth > kMaxDepth) return cursor.fail("at most " + std::to_string(kMaxDepth) + " nested parentheses");
  if (cursor.accept("-")) {
    Dim factor;
    if (!parse_factor(cursor, &factor, depth + 1)) return false;
    if (factor.kind == Dim::kInteger) {
      out->value = -factor.value;
      return true;
    }
    out->kind = Dim::kBinary;
    out->op = "*";
    out->sides.resize(2);
    out->sides[0].value = -1;
    out->sides[1] = std::move(factor);
    return true;
  }
  if (cursor.accept("(")) return parse_expression(cursor, out, depth + 1) && cursor.expect(")");
  if (cursor.kind() == Cursor::kInt) return cursor.integer(&out->value);
  if (cursor.kind() == Cursor::kName && cursor.token() != "_" && cursor.token() != "bcast") {
    out->kind = Dim::kName;
    out->names.push_back(cursor.advance());
    return true;
  }
  return cursor.fail("a dimension");
}

// Reads a chain of operations of one strength over the strength above it.
inline bool parse_chain(Cursor& cursor, Dim* out, int depth, bool products) {
  auto operand = [&](Dim* to) {
    return products ? parse_factor(cursor, to, depth) : parse_chain(cursor, to, depth, true);
  };
  if (!operand(out)) return false;
  while (products ? cursor.at("*") || cursor.at("//") : cursor.at("+") || cursor.at("-")) {
    Dim binary;
    binary.kind = Dim::kBinary;
    binary.op = cursor.advance();
    binary.sides.resize(2);
    binary.sides[0] = std::move(*out);
    if (!operand(&binary.sides[1])) return false;
    *out = std::move(binary);
  }
  return true;
}

inline bool parse_expression(Cursor& cursor, Dim* out, int depth = 0) {
  return parse_chain(cursor, out, depth, false);
}

inline bool parse_dim(Cursor& cursor, Dim* out) {
  *out = Dim();
  if (cursor.accept("*")) {
    out->kind = Dim::kRest;
    out->names.emplace_back();
    return cursor.name(&out->names[0]);
  }
  if (cursor.is_name("_")) {
    cursor.advance();
    out->kind = Dim::kAny;
    return true;
  }
  if (cursor.is_name("bcast")) {
    cursor.advance();
    out->kind = Dim::kBroadcast;
    if (!cursor.expect("(")) return false;
    do {
      out->names.emplace_back();
      if (!cursor.name(&out->names.back())) return false;
    } while (cursor.accept(","));
    return cursor.accept(")") || cursor.fail("',' or ')'");
  }
  return parse_expression(cursor, out);
}

}  // namespace opforge::detail
