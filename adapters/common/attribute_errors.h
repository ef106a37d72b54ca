// attribute_errors.h: what is said of wrong attributes of a node of a model.
#pragma once

#include <string>

#include "common/plan.h"

namespace opforge::adapter {

// The name of the ONNX attribute type that holds a declared kind.
inline const char* onnx_type_of_kind(int32_t kind) {
  static constexpr const char* kTypes[] = {"",     "INT",    "FLOAT",   "STRING", "INT",
                                           "INTS", "FLOATS", "STRINGS", "INTS"};
  return kTypes[kind];
}

inline Failure wrong_type(const Plan& plan, const detail::Attribute& declared, const std::string& got) {
  return failure(
      OPFORGE_STATUS_TYPE, plan.where + ", attribute " + declared.name, "wrong attribute type",
      std::string(detail::kAttributeKinds[declared.kind]) + " (" + onnx_type_of_kind(declared.kind) + ")",
      got);
}

inline Failure missing_attribute(const Plan& plan, const detail::Attribute& declared) {
  return failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "missing attribute",
                 declared.name + ": " + detail::kAttributeKinds[declared.kind], "nothing");
}

}  // namespace opforge::adapter
