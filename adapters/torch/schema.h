// schema.h: an operator's plan with its schema in PyTorch's words. Nothing here knows PyTorch's types; both
// routes use it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "common/plan.h"

namespace opforge::torch_host {

using namespace adapter;  // NOLINT: what every adapter shares

namespace words {

// A literal as PyTorch's schema language writes it.
inline std::string default_value(const detail::Literal& literal) {
  std::vector<std::string> items;
  for (const detail::Scalar& item : literal.items) {
    switch (item.kind) {
      case OPFORGE_ATTRIBUTE_BOOL:
        items.push_back(item.i != 0 ? "True" : "False");
        break;
      case OPFORGE_ATTRIBUTE_INT:
        items.push_back(std::to_string(item.i));
        break;
      case OPFORGE_ATTRIBUTE_FLOAT:
        items.push_back(detail::format_float(item.f));
        break;
      default:
        items.push_back(detail::format_string(item.s));
    }
  }
  return literal.list ? "[" + detail::join(items) + "]" : detail::join(items);
}

inline const char* type(const detail::Parameter& parameter) {
  return parameter.variadic ? "Tensor[]" : parameter.optional ? "Tensor?" : "Tensor";
}

inline const char* type(int32_t attribute_kind) {
  static const char* const kTypes[] = {"",      "int",     "float", "str",   "bool",
                                       "int[]", "float[]", "str[]", "bool[]"};
  return kTypes[attribute_kind];
}

}  // namespace words

// Whether PyTorch's schema language cannot write the default (lists of strings and bools, infinities, unusual
// characters). The argument is then optional there, and None stands for the default.
inline bool default_is_none(const detail::Attribute& attribute) {
  if (attribute.required) return false;
  if (attribute.kind == OPFORGE_ATTRIBUTE_STRINGS || attribute.kind == OPFORGE_ATTRIBUTE_BOOLS) return true;
  for (const double value : attribute.default_value.floats) {
    if (!std::isfinite(value)) return true;
  }
  for (const std::string& text : attribute.default_value.strings) {
    for (const char c : text) {
      if (c < 0x20 || c > 0x7e || c == '"' || c == '\'' || c == '\\') return true;
    }
  }
  return false;
}

// "(Tensor x, *, float lo=0.1) -> Tensor": the schema without the name.
inline std::string torch_schema(const detail::Signature& signature) {
  std::vector<std::string> arguments, results;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    bool rest_optional = true;
    for (size_t k = i; k < signature.inputs.size(); ++k)
      rest_optional = rest_optional && signature.inputs[k].optional;
    arguments.push_back(std::string(words::type(signature.inputs[i])) + " " + signature.inputs[i].name +
                        (rest_optional ? "=None" : ""));
  }
  if (!signature.attributes.empty()) arguments.emplace_back("*");
  for (const detail::Attribute& attribute : signature.attributes) {
    const bool none = default_is_none(attribute);
    arguments.push_back(std::string(words::type(attribute.kind)) + (none ? "? " : " ") + attribute.name);
    if (none) {
      arguments.back() += "=None";
    } else if (!attribute.required) {
      arguments.back() += "=" + words::default_value(detail::to_literal(attribute.default_value));
    }
  }
  for (const detail::Parameter& output : signature.outputs) results.emplace_back(words::type(output));
  const std::string result = results.size() == 1 ? results[0] : "(" + detail::join(results) + ")";
  return "(" + detail::join(arguments) + ") -> " + result;
}

struct Plan : adapter::Plan {
  explicit Plan(const opforge_operator* table_operator)
      : adapter::Plan(table_operator), schema(torch_schema(signature)) {}

  std::string schema;
};

}  // namespace opforge::torch_host
