// schema_model.h: a signature in memory and its canonical text; signature.h reads it, infer.h binds calls to
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "opforge/detail/attributes.h"
#include "opforge/detail/dims.h"
#include "opforge/detail/lexer.h"

namespace opforge::detail {

struct NamedDtype {
  const char* name;
  opforge_dtype dtype;
};

// The dtypes that a declared operator may take.
inline constexpr NamedDtype kDtypes[] = {
    {"f16", {OPFORGE_CODE_FLOAT, 16, 1}}, {"bf16", {OPFORGE_CODE_BFLOAT, 16, 1}},
    {"f32", {OPFORGE_CODE_FLOAT, 32, 1}}, {"f64", {OPFORGE_CODE_FLOAT, 64, 1}},
    {"i8", {OPFORGE_CODE_INT, 8, 1}},     {"u8", {OPFORGE_CODE_UINT, 8, 1}},
    {"i32", {OPFORGE_CODE_INT, 32, 1}},   {"i64", {OPFORGE_CODE_INT, 64, 1}},
    {"bool", {OPFORGE_CODE_BOOL, 8, 1}}};

inline constexpr const char* kDtypeWords = "f16, bf16, f32, f64, i8, u8, i32, i64, bool";

inline bool same(opforge_dtype a, opforge_dtype b) { return a.code == b.code && a.bits == b.bits; }
inline bool is_known(opforge_dtype dtype) { return dtype.bits != 0; }
inline bool is_type_variable(std::string_view type) {
  return !type.empty() && type[0] >= 'A' && type[0] <= 'Z';
}

inline std::optional<opforge_dtype> find_dtype(std::string_view name) {
  for (const NamedDtype& entry : kDtypes)
    if (name == entry.name) return entry.dtype;
  return std::nullopt;
}

// The short name; other widths of the same codes have names too, since models hold them.
inline std::string dtype_name(opforge_dtype dtype) {
  for (const NamedDtype& entry : kDtypes)
    if (same(entry.dtype, dtype)) return entry.name;
  const char* prefix = dtype.code == OPFORGE_CODE_INT ? "i" : dtype.code == OPFORGE_CODE_UINT ? "u" : nullptr;
  if (prefix != nullptr) return prefix + std::to_string(dtype.bits);
  return "code " + std::to_string(dtype.code) + " with " + std::to_string(dtype.bits) + " bits";
}

struct Parameter {
  std::string name;
  std::string type;
  std::vector<Dim> dims;
  bool optional = false;
  bool variadic = false;
  int32_t variable = -1;  // index of its type variable, -1 where the dtype is fixed
  opforge_dtype dtype{};  // where it is fixed
  bool any_rank = false;  // *S or bcast among the dimensions

  std::string shape_text() const {
    std::vector<std::string> words;
    for (const Dim& dim : dims) words.push_back(to_string(dim));
    return type + "[" + join(words) + "]";
  }
};

inline std::string to_string(const Parameter& parameter) {
  return (parameter.variadic ? "*" : "") + parameter.name + (parameter.optional ? "?" : "") + ": " +
         parameter.shape_text();
}

struct TypeVariable {
  std::string name;
  std::vector<opforge_dtype> dtypes;  // those it may take; empty = any
};

struct Signature {
  std::vector<Parameter> inputs;
  std::vector<Attribute> attributes;
  std::vector<Parameter> outputs;
  std::vector<TypeVariable> types;      // in the order of first appearance
  std::vector<std::string> names;       // of dimensions; Dim::ids count these
  std::vector<int32_t> name_attribute;  // per name: the int attribute that gives it, or -1

  bool variadic() const { return !inputs.empty() && inputs.back().variadic; }
  std::string expected_inputs() const {
    size_t least = 0;
    std::vector<std::string> shown;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (!inputs[k].optional) least = k + 1;
      shown.push_back((inputs[k].variadic ? "*" : "") + inputs[k].name + (inputs[k].optional ? "?" : ""));
    }
    const std::string most = std::to_string(inputs.size());
    const std::string count = variadic()               ? most + " or more"
                              : least == inputs.size() ? most
                                                       : std::to_string(least) + " to " + most;
    return shown.empty() ? count : count + " (" + join(shown) + ")";
  }
};

inline std::string to_string(const Signature& signature) {
  std::vector<std::string> inputs, attributes, outputs;
  for (const Parameter& p : signature.inputs) inputs.push_back(to_string(p));
  for (const Parameter& p : signature.outputs) outputs.push_back(to_string(p));
  for (const Attribute& a : signature.attributes)
    attributes.push_back(a.name + ": " + kAttributeKinds[a.kind] +
                         (a.required ? "" : " = " + format_literal(to_literal(a.default_value))));
  return "(" + join(inputs) + (attributes.empty() ? "" : "; " + join(attributes)) + ") -> (" + join(outputs) +
         ")";
}

}  // namespace opforge::detail
