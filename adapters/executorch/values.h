// values.h: the attributes of a call, from ExecuTorch's values. A file may hold anything, and reading a value
// as what it is not ends the process: every tag is looked at first.
#pragma once

#include <executorch/runtime/core/evalue.h>

#include <string>
#include <utility>
#include <vector>

#include "common/attributes.h"
#include "common/plan.h"

namespace opforge::executorch_host {

using namespace adapter;  // NOLINT: what every adapter shares
using ::executorch::runtime::Error;
using ::executorch::runtime::EValue;

inline const char* kind_of(const EValue& value) {
  return value.isNone()         ? "None"
         : value.isTensor()     ? "a tensor"
         : value.isInt()        ? "int"
         : value.isDouble()     ? "float"
         : value.isBool()       ? "bool"
         : value.isString()     ? "string"
         : value.isIntList()    ? "ints"
         : value.isDoubleList() ? "floats"
         : value.isBoolList()   ? "bools"
         : value.isTensorList() ? "a list of tensors"
                                : "another kind of value";
}

inline const char* kind_name(int32_t kind) {
  static const char* const kNames[] = {"",     "int",    "float",   "string", "bool",
                                       "ints", "floats", "strings", "bools"};
  return kNames[kind];
}

class AttributeReader {
 public:
  AttributeReader(const Plan& plan, Attributes* into) : plan_(plan), into_(into) {}

  void read(const detail::Attribute& declared, const EValue& value) {
    if (value.isNone()) {  // a default that PyTorch's schema language cannot write
      if (declared.required) refuse(declared, value);
      into_->add_default(declared.default_value);
    } else if (!scalar(declared, value) && !list(declared, value)) {
      refuse(declared, value);
    }
  }

 private:
  bool scalar(const detail::Attribute& declared, const EValue& value) {
    switch (declared.kind) {
      case OPFORGE_ATTRIBUTE_INT:
        if (!value.isInt()) return false;
        into_->add_int(value.toInt());
        return true;
      case OPFORGE_ATTRIBUTE_FLOAT:
        if (!value.isDouble() && !value.isInt()) return false;
        into_->add_float(value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble());
        return true;
      case OPFORGE_ATTRIBUTE_BOOL:
        if (!value.isBool()) return false;
        into_->add_bool(value.toBool());
        return true;
      case OPFORGE_ATTRIBUTE_STRING: {
        if (!value.isString()) return false;
        const auto text = value.toString();
        into_->add_string({text.data(), static_cast<int64_t>(text.size())});
        return true;
      }
      default:
        return false;
    }
  }

  // The elements of a list are values of their own, which may be of any kind too.
  bool list(const detail::Attribute& declared, const EValue& value) {
    const auto ints = value.tryToIntList();
    // An empty list has no element that says what kind it is of.
    const bool empty = ints.ok() && ints.get().empty();
    switch (declared.kind) {
      case OPFORGE_ATTRIBUTE_INTS:
        if (!ints.ok()) return false;
        into_->add_ints({ints.get().begin(), ints.get().end()});
        return true;
      case OPFORGE_ATTRIBUTE_FLOATS:
        if (!empty && !value.isDoubleList()) return false;
        if (empty) {
          into_->add_floats({});
        } else {
          into_->add_floats({value.toDoubleList().begin(), value.toDoubleList().end()});
        }
        return true;
      case OPFORGE_ATTRIBUTE_BOOLS: {
        if (!empty && !value.isBoolList()) return false;
        std::vector<int64_t> items;
        if (!empty) items.assign(value.toBoolList().begin(), value.toBoolList().end());
        into_->add_ints(std::move(items), OPFORGE_ATTRIBUTE_BOOLS);
        return true;
      }
      default:  // ExecuTorch has no lists of texts
        return false;
    }
  }

  [[noreturn]] void refuse(const detail::Attribute& declared, const EValue& value) const {
    throw failure(OPFORGE_STATUS_TYPE, plan_.where + ", attribute " + declared.name, "wrong attribute type",
                  kind_name(declared.kind), kind_of(value), "lower the model again with this declaration");
  }

  const Plan& plan_;
  Attributes* into_;
};

}  // namespace opforge::executorch_host
