// attributes.h: the attributes of a node, from what ONNX Runtime tells a kernel that is created. It gives
// values by name and type only, so an attribute of another type looks as if it were absent: a second look at
// every type tells the two apart. A name that the operator does not declare cannot be seen here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/attribute_errors.h"
#include "common/attributes.h"
#include "onnxruntime/definition.h"

namespace opforge::onnxruntime_host {

// Attributes with the memory behind texts.
struct NodeAttributes {
  Attributes values;
  std::vector<std::unique_ptr<std::string>> texts;

  opforge_string keep(std::string text) {
    texts.push_back(std::make_unique<std::string>(std::move(text)));
    return {texts.back()->data(), static_cast<int64_t>(texts.back()->size())};
  }
};

// The type of an ONNX attribute that holds a declared kind.
inline AttributeType type_of_kind(int32_t kind) {
  static constexpr AttributeType kTypes[] = {kUndefined, kInt,    kFloat,   kString, kInt,
                                             kInts,      kFloats, kStrings, kInts};
  return kTypes[kind];
}

inline const char* type_name(AttributeType type) {
  static const char* const kNames[] = {"another type", "INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS"};
  return kNames[type];
}

using adapter::wrong_type;
inline Failure wrong_type(const Plan& plan, const detail::Attribute& declared, AttributeType got) {
  return wrong_type(plan, declared, std::string(type_name(got)));
}

// Reads a node through OrtKernelInfo.
class KernelAttributes {
 public:
  KernelAttributes(const KernelInfo* info, const Plan& plan) : info_(info), plan_(plan) {}

  void read(NodeAttributes* into) {
    for (const detail::Attribute& declared : plan_.signature.attributes) {
      if (one(declared, into)) continue;
      refuse_other_types(declared);
      if (declared.required) throw missing_attribute(plan_, declared);
      into->values.add_default(declared.default_value);
    }
  }

 private:
  void refuse_texts(const detail::Attribute& declared) {
    refuse_other_types(declared);
    throw failure(OPFORGE_STATUS_UNSUPPORTED, plan_.where + ", attribute " + declared.name,
                  "this ONNX Runtime hands no list of texts to a kernel", "ONNX Runtime 1.25 or newer",
                  "1." + std::to_string(api().minor));
  }
  void refuse_other_types(const detail::Attribute& declared) {
    for (const AttributeType other : {kInt, kFloat, kString, kInts, kFloats, kStrings}) {
      if (other != type_of_kind(declared.kind) && has(declared.name.c_str(), other))
        throw wrong_type(plan_, declared, other);
    }
  }

  bool has(const char* name, AttributeType type) {
    int64_t integer = 0;
    float number = 0;
    size_t size = 0;
    switch (type) {
      case kInt:
        return good(api().KernelInfoGetAttribute_int64(info_, name, &integer));
      case kFloat:
        return good(api().KernelInfoGetAttribute_float(info_, name, &number));
      case kString:
        return good(api().KernelInfoGetAttribute_string(info_, name, nullptr, &size));
      // An attribute of any type is an empty list of any other.
      case kInts:
        return good(api().KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size)) && size > 0;
      case kFloats:
        return good(api().KernelInfoGetAttributeArray_float(info_, name, nullptr, &size)) && size > 0;
      default: {
        std::vector<std::string> items;
        return strings(name, &items) && !items.empty();
      }
    }
  }

  bool one(const detail::Attribute& declared, NodeAttributes* into) {
    const char* name = declared.name.c_str();
    size_t size = 0;
    switch (declared.kind) {
      case OPFORGE_ATTRIBUTE_INT:
      case OPFORGE_ATTRIBUTE_BOOL: {
        int64_t value = 0;
        if (!good(api().KernelInfoGetAttribute_int64(info_, name, &value))) return false;
        declared.kind == OPFORGE_ATTRIBUTE_BOOL ? into->values.add_bool(value != 0)
                                                : into->values.add_int(value);
        return true;
      }
      case OPFORGE_ATTRIBUTE_FLOAT: {
        float value = 0;
        if (!good(api().KernelInfoGetAttribute_float(info_, name, &value))) return false;
        into->values.add_float(value);
        return true;
      }
      case OPFORGE_ATTRIBUTE_STRING: {
        if (!good(api().KernelInfoGetAttribute_string(info_, name, nullptr, &size))) return false;
        std::string text(size, '\0');
        check(api().KernelInfoGetAttribute_string(info_, name, text.data(), &size), plan_.where);
        text.resize(size > 0 ? size - 1 : 0);  // its terminating zero counts
        into->values.add_string(into->keep(std::move(text)));
        return true;
      }
      case OPFORGE_ATTRIBUTE_INTS:
      case OPFORGE_ATTRIBUTE_BOOLS: {
        if (!good(api().KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size))) return false;
        if (size == 0) refuse_other_types(declared);
        std::vector<int64_t> items(size);
        if (size > 0)
          check(api().KernelInfoGetAttributeArray_int64(info_, name, items.data(), &size), plan_.where);
        into->values.add_ints(std::move(items), declared.kind);
        return true;
      }
      case OPFORGE_ATTRIBUTE_FLOATS: {
        if (!good(api().KernelInfoGetAttributeArray_float(info_, name, nullptr, &size))) return false;
        if (size == 0) refuse_other_types(declared);
        std::vector<float> items(size);
        if (size > 0)
          check(api().KernelInfoGetAttributeArray_float(info_, name, items.data(), &size), plan_.where);
        into->values.add_floats(std::vector<double>(items.begin(), items.end()));
        return true;
      }
      default: {
        std::vector<std::string> items;
        if (!strings(name, &items)) {
          // Before 1.25 a kernel cannot read a list of texts; that it is there shows as an empty list of
          // numbers.
          if (good(api().KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size)))
            refuse_texts(declared);
          return false;
        }
        if (items.empty()) refuse_other_types(declared);
        std::vector<opforge_string> views;
        for (std::string& item : items) views.push_back(into->keep(std::move(item)));
        into->values.add_strings(std::move(views));
        return true;
      }
    }
  }

  bool strings(const char* name, std::vector<std::string>* into) {
    if (api().KernelInfoGetAttributeArray_string == nullptr) return false;
    Allocator* allocator = nullptr;
    check(api().GetAllocatorWithDefaultOptions(&allocator), plan_.where);
    char** items = nullptr;
    size_t size = 0;
    if (!good(api().KernelInfoGetAttributeArray_string(info_, name, allocator, &items, &size))) return false;
    for (size_t k = 0; items != nullptr && k < size; ++k) {
      into->emplace_back(items[k]);
      good(api().AllocatorFree(allocator, items[k]));
    }
    if (items != nullptr) good(api().AllocatorFree(allocator, items));
    return true;
  }

  const KernelInfo* info_;
  const Plan& plan_;
};

}  // namespace opforge::onnxruntime_host
