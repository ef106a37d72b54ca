// definition.h: an operator in TensorFlow's words: its plan, the specifications of an OpDef, and the names of
// the attributes that count tensors. Optional and variadic parameters are lists, whose lengths are
// attributes.
#pragma once

#include <cctype>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "common/plan.h"
#include "tensorflow/dtypes.h"

namespace opforge::tensorflow_host {

using namespace adapter;  // NOLINT: what every adapter shares

struct Definition : Plan {
  Definition(const opforge_operator* table_operator, std::string registered_name);

  std::string name;  // ComExampleCustomGELUV1
  std::vector<std::string> input_specs, output_specs, attribute_specs;
  std::vector<std::string> input_counts;   // attribute per input parameter; "" = always one tensor
  std::vector<std::string> output_counts;  // the same of outputs
  std::vector<std::string> attributes;     // names of declared attributes
  bool static_shapes = true;               // whether shapes follow from shapes alone

 private:
  std::string unique(const std::string& wanted, bool lower);
  std::string parameter(const detail::Parameter& parameter, std::string* count, std::string_view count_name);

  std::set<std::string> taken_{"name"};  // an argument of every generated Python function
};

namespace words {

// Text as the parser of attribute specifications takes it.
inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const unsigned char c : text) {
    if (c >= 0x20 && c < 0x7f && c != '\'' && c != '"' && c != '\\' && c != '?') {
      out += static_cast<char>(c);
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\%03o", c);
      out += escaped;
    }
  }
  return out + "'";
}

inline std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

inline std::string item(const detail::Scalar& scalar) {
  switch (scalar.kind) {
    case OPFORGE_ATTRIBUTE_BOOL:
      return scalar.i != 0 ? "true" : "false";
    case OPFORGE_ATTRIBUTE_INT:
      return std::to_string(scalar.i);
    case OPFORGE_ATTRIBUTE_FLOAT:
      return number(scalar.f);
    default:
      return quoted(scalar.s);
  }
}

// Lists of booleans are lists of integers: tf2onnx stops at the former.
inline const char* type(int32_t attribute_kind) {
  static const char* const kTypes[] = {"",          "int",         "float",        "string",   "bool",
                                       "list(int)", "list(float)", "list(string)", "list(int)"};
  return kTypes[attribute_kind];
}

inline std::string default_value(const detail::Literal& literal) {
  std::vector<std::string> items;
  for (const detail::Scalar& scalar : literal.items) {
    const bool flag = literal.list && scalar.kind == OPFORGE_ATTRIBUTE_BOOL;
    items.push_back(flag ? std::to_string(scalar.i) : item(scalar));
  }
  return literal.list ? "[" + detail::join(items) + "]" : detail::join(items);
}

}  // namespace words

// TensorFlow's names begin with a letter; those of arguments have no capitals.
inline std::string Definition::unique(const std::string& wanted, bool lower) {
  std::string base;
  for (const char c : wanted)
    base += lower ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : c;
  if (base.empty() || std::isalpha(static_cast<unsigned char>(base[0])) == 0) base = "p" + base;
  std::string name_here = base;
  for (int k = 2; !taken_.insert(name_here).second; ++k) name_here = base + "_" + std::to_string(k);
  return name_here;
}

inline std::string Definition::parameter(const detail::Parameter& parameter, std::string* count,
                                         std::string_view count_name) {
  std::string kind = parameter.type;
  if (parameter.variable < 0) {
    const DtypeRow* row = row_of(parameter.dtype);
    if (row == nullptr) {
      throw failure(OPFORGE_STATUS_UNSUPPORTED, key, "TensorFlow's kernels have no tensors of this type", "",
                    parameter.type);
    }
    kind = row->name;
  }
  const std::string argument = unique(parameter.name, true);
  if (!parameter.optional && !parameter.variadic) return argument + ": " + kind;
  if (count_name.empty()) {
    *count = unique("n_" + argument, false);
    attribute_specs.push_back(*count + ": int >= 0");
  } else {
    *count = count_name;
  }
  return argument + ": " + *count + " * " + kind;
}

inline Definition::Definition(const opforge_operator* table_operator, std::string registered_name)
    : Plan(table_operator), name(std::move(registered_name)) {
  for (const detail::TypeVariable& variable : signature.types) {
    std::vector<std::string> allowed;
    for (const opforge_dtype& one : variable.dtypes) {
      if (const DtypeRow* row = row_of(one)) allowed.emplace_back(row->name);
    }
    taken_.insert(variable.name);
    attribute_specs.push_back(variable.name + ": {" + detail::join(allowed) + "}");
  }
  std::string variadic;
  for (const detail::Parameter& input : signature.inputs) {
    input_counts.emplace_back();
    input_specs.push_back(parameter(input, &input_counts.back(), ""));
    if (input.variadic) variadic = input_counts.back();
  }
  for (const detail::Parameter& output : signature.outputs) {
    output_counts.emplace_back();
    output_specs.push_back(parameter(output, &output_counts.back(), output.variadic ? variadic : ""));
  }
  for (const detail::Attribute& attribute : signature.attributes) {
    // Converters take attributes of some names (f, body, shape, capacity) for what TensorFlow means by them.
    attributes.push_back(unique("a_" + attribute.name, false));
    std::string spec = attributes.back() + ": " + words::type(attribute.kind);
    if (!attribute.required)
      spec += " = " + words::default_value(detail::to_literal(attribute.default_value));
    attribute_specs.push_back(std::move(spec));
  }
  for (const int32_t attribute : signature.name_attribute) static_shapes = static_shapes && attribute < 0;
}

}  // namespace opforge::tensorflow_host
