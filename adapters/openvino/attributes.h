// attributes.h: the attributes of a node: from what the ONNX front end holds, and to and from the texts of an
// IR. An IR gets one text per attribute in the form of the signature language, since OpenVINO writes lists of
// numbers with six digits and lists of texts without quotes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <openvino/core/any.hpp>

#include "common/attribute_errors.h"
#include "common/attributes.h"
#include "openvino/definition.h"

namespace opforge::openvino_host {

// Read only once it is made: every copy of a node has the same.
struct NodeAttributes {
  std::vector<detail::AttributeValue> values;  // one per declared attribute
  Attributes packed;

  explicit NodeAttributes(std::vector<detail::AttributeValue> read) : values(std::move(read)) {
    for (const detail::AttributeValue& value : values) packed.add_default(value);
  }
  NodeAttributes(const NodeAttributes&) = delete;
  NodeAttributes& operator=(const NodeAttributes&) = delete;
};

using SharedAttributes = std::shared_ptr<const NodeAttributes>;

// ---- IR

inline std::string text_of(const detail::AttributeValue& value) {
  return value.kind == OPFORGE_ATTRIBUTE_STRING ? value.strings[0]
                                                : detail::format_literal(detail::to_literal(value));
}

inline detail::AttributeValue value_of(const Plan& plan, const detail::Attribute& declared,
                                       const std::string& text) {
  detail::Literal literal = detail::Literal::of_string(text);
  detail::AttributeValue value;
  detail::Problem problem;
  if (declared.kind != OPFORGE_ATTRIBUTE_STRING) {
    detail::Cursor cursor(text, "an attribute", plan.where + ", attribute " + declared.name, &problem);
    if (!cursor.literal(&literal) || !cursor.end()) throw failure_of(problem);
  }
  if (!detail::coerce(declared, literal, plan.where, &value, &problem)) throw failure_of(problem);
  return value;
}

// ---- ONNX

namespace detail_any {

inline std::string type_of(const ov::Any& any) {
  if (any.is<int64_t>()) return "INT";
  if (any.is<float>() || any.is<double>()) return "FLOAT";
  if (any.is<std::string>()) return "STRING";
  if (any.is<std::vector<int64_t>>()) return "INTS";
  if (any.is<std::vector<float>>() || any.is<std::vector<double>>()) return "FLOATS";
  if (any.is<std::vector<std::string>>()) return "STRINGS";
  return "another type";
}

template <class T>
bool take(const ov::Any& any, std::vector<T>* into) {
  if (any.is<std::vector<T>>()) *into = any.as<std::vector<T>>();
  return any.is<std::vector<T>>();
}

}  // namespace detail_any

inline detail::AttributeValue value_of(const Plan& plan, const detail::Attribute& declared,
                                       const ov::Any& any) {
  const std::string got = detail_any::type_of(any);
  if (got != onnx_type_of_kind(declared.kind)) throw wrong_type(plan, declared, got);
  detail::AttributeValue value;
  value.kind = declared.kind;
  switch (declared.kind) {
    case OPFORGE_ATTRIBUTE_INT:
      value.ints = {any.as<int64_t>()};
      break;
    case OPFORGE_ATTRIBUTE_BOOL:
      value.ints = {any.as<int64_t>() != 0};
      break;
    case OPFORGE_ATTRIBUTE_FLOAT:
      value.floats = {any.is<float>() ? any.as<float>() : any.as<double>()};
      break;
    case OPFORGE_ATTRIBUTE_STRING:
      value.strings = {any.as<std::string>()};
      break;
    case OPFORGE_ATTRIBUTE_FLOATS: {
      std::vector<float> narrow;
      if (detail_any::take(any, &narrow)) value.floats.assign(narrow.begin(), narrow.end());
      detail_any::take(any, &value.floats);
      break;
    }
    case OPFORGE_ATTRIBUTE_STRINGS:
      detail_any::take(any, &value.strings);
      break;
    default:
      detail_any::take(any, &value.ints);
      break;
  }
  for (int64_t& item : value.ints) {
    if (declared.kind == OPFORGE_ATTRIBUTE_BOOLS) item = item != 0;
  }
  return value;
}

}  // namespace opforge::openvino_host
