// signature.h: the signature language in C++, for hosts that read the table of a kernel library.
//
//   Signature signature;
//   Problem problem;
//   if (!parse_signature(text, types, "com.example::SparseMatMul", &signature, &problem))
//   fail(problem.message());
//
// The counterpart of src/opforge/schema/signature.py and check.py; docs/design/schema.md describes the
// language. infer.h binds calls, attributes.h coerces attributes, gradient.h reads gradient programs.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "opforge/detail/schema_model.h"
#include "opforge/detail/signature_check.h"

namespace opforge::detail {

inline bool parse_parameter(Cursor& cursor, Parameter* out) {
  out->variadic = cursor.accept("*");
  if (!cursor.name(&out->name)) return false;
  out->optional = cursor.accept("?");
  if (!cursor.expect(":")) return false;
  const auto fixed = find_dtype(cursor.token());
  if (cursor.kind() != Cursor::kName || !(is_type_variable(cursor.token()) || fixed))
    return cursor.fail(std::string("a type: a name that begins with an upper-case letter, or one of ") +
                       kDtypeWords);
  out->type = cursor.advance();
  if (fixed) out->dtype = *fixed;
  if (!cursor.expect("[")) return false;
  if (!cursor.at("]")) do {
      out->dims.emplace_back();
      if (!parse_dim(cursor, &out->dims.back())) return false;
      out->any_rank |= out->dims.back().is_run();
    } while (cursor.accept(","));
  return cursor.accept("]") || cursor.fail("',' or ']'");
}

inline bool parse_parameters(Cursor& cursor, bool inputs, std::vector<Parameter>* out) {
  auto closed = [&] { return cursor.at(")") || (inputs && cursor.at(";")); };
  if (closed()) return true;
  do {
    out->emplace_back();
    if (!parse_parameter(cursor, &out->back())) return false;
  } while (cursor.accept(","));
  return closed() || cursor.fail(inputs ? "',', ';' or ')'" : "',' or ')'");
}

inline bool parse_attribute(Cursor& cursor, Attribute* out) {
  if (!cursor.name(&out->name) || !cursor.expect(":")) return false;
  for (int32_t kind = 1; kind <= 8; ++kind)
    if (cursor.is_name(kAttributeKinds[kind])) out->kind = kind;
  if (out->kind == 0)
    return cursor.fail("an attribute kind: int, float, string, bool, ints, floats, strings, bools");
  cursor.advance();
  if (!cursor.accept("=")) return true;
  Literal literal;
  if (!cursor.literal(&literal)) return false;
  out->required = false;
  if (coerce(*out, literal, cursor.where(), &out->default_value, cursor.problem())) return true;
  cursor.problem()->kind = Problem::kSchema;  // the declaration is at fault, not a caller
  return false;
}

// Types text such as "T: f16 f32; I: i32 i64".
inline bool parse_types(std::string_view text, const std::string& where, Signature* signature,
                        Problem* problem) {
  Cursor cursor(text, "types", where, problem);
  std::vector<TypeVariable> found;
  auto has = [&](std::string_view name) {
    return std::find_if(found.begin(), found.end(), [&](const TypeVariable& v) { return v.name == name; });
  };
  while (cursor.kind() != Cursor::kEnd) {
    if (cursor.kind() != Cursor::kName || has(cursor.token()) != found.end())
      return cursor.fail("a new type variable");
    TypeVariable variable;
    variable.name = cursor.advance();
    if (!cursor.expect(":")) return false;
    while (cursor.kind() == Cursor::kName) {
      const auto dtype = find_dtype(cursor.token());
      bool fresh = dtype.has_value();
      for (const opforge_dtype& other : variable.dtypes) fresh = fresh && !same(other, *dtype);
      if (!fresh) break;
      variable.dtypes.push_back(*dtype);
      cursor.advance();
    }
    if (variable.dtypes.empty() || (cursor.kind() != Cursor::kEnd && !cursor.at(";")))
      return cursor.fail(std::string("one of ") + kDtypeWords + ", each once");
    found.push_back(std::move(variable));
    if (!cursor.accept(";") && !cursor.end()) return false;
  }
  std::vector<std::string> declared;
  for (const TypeVariable& variable : signature->types) declared.push_back(variable.name);
  for (const TypeVariable& variable : found)
    if (std::find(declared.begin(), declared.end(), variable.name) == declared.end())
      return problem->set(Problem::kSchema, "types are given for a variable that the signature does not have",
                          where, declared.empty() ? "no type variables" : join(declared), variable.name);
  for (TypeVariable& variable : signature->types) {
    const auto entry = has(variable.name);
    if (entry == found.end())
      return problem->set(Problem::kSchema, "no dtypes are given for a type variable", where,
                          variable.name + ": dtypes", "nothing");
    variable.dtypes = entry->dtypes;
  }
  return true;
}

// Reads a signature and, where `types` is not empty or the signature has type variables and `types` is given,
// the dtypes that they may take. Pass `types` as nullptr to leave them open.
inline bool parse_signature(std::string_view text, const char* types, const std::string& where,
                            Signature* out, Problem* problem) {
  *out = Signature();
  Cursor cursor(text, "signature", where, problem);
  if (!cursor.expect("(") || !parse_parameters(cursor, true, &out->inputs)) return false;
  if (cursor.accept(";")) do {
      out->attributes.emplace_back();
      if (!parse_attribute(cursor, &out->attributes.back())) return false;
    } while (cursor.accept(","));
  if (!cursor.accept(")")) return cursor.fail("',' or ')'");
  if (!cursor.expect("->") || !cursor.expect("(") || !parse_parameters(cursor, false, &out->outputs))
    return false;
  if (!cursor.expect(")") || !cursor.end()) return false;
  number_names(out);
  if (!check_signature(*out, where, problem)) return false;
  return types == nullptr || parse_types(types, where, out, problem);
}

}  // namespace opforge::detail
