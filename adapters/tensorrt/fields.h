// fields.h: attributes as fields of plugins: what a creator takes from an ONNX node, and what an engine
// keeps. The counterpart of src/opforge/engines/tensorrt/_fields.py; each reads the engines of the other.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <NvInfer.h>

#include "common/attributes.h"
#include "common/plan.h"

namespace opforge::tensorrt_host {

using namespace adapter;  // NOLINT: what every adapter shares
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;

inline constexpr const char* kInputs = "opforge_inputs";  // tensors per input parameter, "1 0 1"
inline constexpr const char* kSchema = "opforge_schema";  // hash of the declaration

// Read only once it is made: all copies of a plugin have the same.
struct Content {
  std::vector<detail::AttributeValue> values;  // one per declared attribute
  std::vector<int32_t> counts;                 // empty = as many tensors as come
  Attributes packed;
};

inline PluginFieldType field_type(int32_t kind) {
  switch (kind) {
    case OPFORGE_ATTRIBUTE_INT:
    case OPFORGE_ATTRIBUTE_INTS:
      return PluginFieldType::kINT64;
    case OPFORGE_ATTRIBUTE_FLOAT:
    case OPFORGE_ATTRIBUTE_FLOATS:
      return PluginFieldType::kFLOAT32;
    case OPFORGE_ATTRIBUTE_BOOL:
    case OPFORGE_ATTRIBUTE_BOOLS:
      return PluginFieldType::kINT32;
    default:
      return PluginFieldType::kCHAR;
  }
}

namespace detail_fields {

inline std::string text_of(const PluginField& field) {
  const auto* const data = static_cast<const char*>(field.data);
  size_t size = data == nullptr || field.length < 0 ? 0 : static_cast<size_t>(field.length);
  while (size > 0 && data[size - 1] == '\0') --size;
  return std::string(data == nullptr ? "" : data, size);
}

template <class T>
void add(const PluginField& field, int32_t kind, detail::Literal* into) {
  for (int32_t k = 0; k < field.length; ++k) {
    T value{};
    std::memcpy(&value, static_cast<const char*>(field.data) + static_cast<size_t>(k) * sizeof value,
                sizeof value);
    detail::Scalar item;
    item.kind = kind;
    if (kind == OPFORGE_ATTRIBUTE_FLOAT) {
      item.f = static_cast<double>(value);
    } else {
      item.i = kind == OPFORGE_ATTRIBUTE_BOOL ? value != T{} : static_cast<int64_t>(value);
    }
    into->items.push_back(std::move(item));
  }
}

inline void add_numbers(const PluginField& field, int32_t scalar, const std::string& where,
                        detail::Literal* into) {
  const bool real = field.type == PluginFieldType::kFLOAT32 || field.type == PluginFieldType::kFLOAT64;
  if (field.length < 0 || (field.length > 0 && field.data == nullptr) ||
      (real && scalar != OPFORGE_ATTRIBUTE_FLOAT)) {
    throw failure(OPFORGE_STATUS_TYPE, where, "a field of a plugin holds another type",
                  detail::kAttributeKinds[scalar], real ? "float" : "no numbers");
  }
  const int32_t kind = real || scalar == OPFORGE_ATTRIBUTE_BOOL ? scalar : OPFORGE_ATTRIBUTE_INT;
  switch (field.type) {
    case PluginFieldType::kFLOAT32:
      return add<float>(field, kind, into);
    case PluginFieldType::kFLOAT64:
      return add<double>(field, kind, into);
    case PluginFieldType::kINT8:
      return add<int8_t>(field, kind, into);
    case PluginFieldType::kINT16:
      return add<int16_t>(field, kind, into);
    case PluginFieldType::kINT32:
      return add<int32_t>(field, kind, into);
    case PluginFieldType::kINT64:
      return add<int64_t>(field, kind, into);
    default:
      throw failure(OPFORGE_STATUS_TYPE, where, "a field of a plugin has a type that is read nowhere",
                    "numbers or text", "type " + std::to_string(static_cast<int32_t>(field.type)));
  }
}

inline detail::AttributeValue value_of(const Plan& plan, const detail::Attribute& declared,
                                       const PluginField& field) {
  const std::string where = plan.where + ", attribute " + declared.name;
  const bool list = declared.kind >= OPFORGE_ATTRIBUTE_INTS;
  detail::Problem problem;
  detail::Literal literal;
  if (field.type == PluginFieldType::kCHAR) {
    const std::string text = text_of(field);
    literal = detail::Literal::of_string(text);
    if (declared.kind != OPFORGE_ATTRIBUTE_STRING) {
      detail::Cursor cursor(text, "field", where, &problem);
      if (!cursor.literal(&literal) || !cursor.end()) throw failure_of(problem);
    }
  } else {
    add_numbers(field, list ? declared.kind - 4 : declared.kind, where, &literal);
    literal.list = list;
    if (!list && literal.items.size() != 1) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, where, "a field holds more than one number", "one",
                    std::to_string(literal.items.size()));
    }
  }
  detail::AttributeValue value;
  if (!detail::coerce(declared, literal, plan.where, &value, &problem)) throw failure_of(problem);
  return value;
}

inline std::vector<int32_t> counts_of(const Plan& plan, const std::string& text) {
  std::vector<int32_t> counts;
  const auto& inputs = plan.signature.inputs;
  bool fits = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    fits =
        fits && !word.empty() && word.size() < 6 && word.find_first_not_of("0123456789") == std::string::npos;
    if (fits) counts.push_back(std::stoi(word));
  }
  fits = fits && (counts.empty() || counts.size() == inputs.size());
  for (size_t k = 0; fits && k < counts.size(); ++k) {
    fits = (counts[k] >= 1 || inputs[k].optional) && (counts[k] <= 1 || inputs[k].variadic);
  }
  if (!fits) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where + ", field " + kInputs,
                  "the inputs of a plugin are described wrongly",
                  "tensors for each of " + plan.signature.expected_inputs(), text);
  }
  return counts;
}

}  // namespace detail_fields

inline std::shared_ptr<const Content> read_fields(const Plan& plan, const PluginFieldCollection* given) {
  auto content = std::make_shared<Content>();
  const auto& declared = plan.signature.attributes;
  std::vector<const PluginField*> found(declared.size(), nullptr);
  for (int32_t k = 0; given != nullptr && k < given->nbFields; ++k) {
    const PluginField& field = given->fields[k];
    const std::string name = field.name == nullptr ? "" : field.name;
    if (name == kInputs) {
      content->counts = detail_fields::counts_of(plan, detail_fields::text_of(field));
      continue;
    }
    if (name == kSchema) {
      const std::string hash = detail_fields::text_of(field);
      if (!hash.empty() && hash != plan.table->schema_hash) {
        throw failure(OPFORGE_STATUS_CORRUPT, plan.key,
                      "the engine was built with another declaration of the operator",
                      plan.table->schema_hash, hash,
                      "build the engine again, or load the operator that it was built with");
      }
      continue;
    }
    size_t place = 0;
    while (place < declared.size() && declared[place].name != name) ++place;
    if (place == declared.size()) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "unknown field of a plugin", "", name);
    }
    found[place] = &field;
  }
  for (size_t a = 0; a < declared.size(); ++a) {
    if (found[a] == nullptr && declared[a].required) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "missing attribute", declared[a].name,
                    "nothing");
    }
    content->values.push_back(found[a] == nullptr ? declared[a].default_value
                                                  : detail_fields::value_of(plan, declared[a], *found[a]));
  }
  for (const detail::AttributeValue& value : content->values) content->packed.add_default(value);
  return content;
}

// What an engine keeps of a plugin, with the memory behind it.
class StoredFields {
 public:
  StoredFields(const Plan& plan, const Content& content) {
    const auto& declared = plan.signature.attributes;
    for (size_t a = 0; a < declared.size(); ++a) add(declared[a], content.values[a]);
    std::string counts;
    for (const int32_t count : content.counts) counts += (counts.empty() ? "" : " ") + std::to_string(count);
    add_text(kInputs, counts);
    add_text(kSchema, plan.table->schema_hash);
    for (const Row& row : rows_) {
      fields_.emplace_back(row.name, row.bytes.data(), row.type, row.length);
    }
    collection_.nbFields = static_cast<int32_t>(fields_.size());
    collection_.fields = fields_.data();
  }
  StoredFields(const StoredFields&) = delete;
  StoredFields& operator=(const StoredFields&) = delete;
  const PluginFieldCollection* get() const { return &collection_; }

 private:
  struct Row {
    const char* name;
    PluginFieldType type;
    int32_t length;
    std::vector<char> bytes;
  };
  template <class T>
  void put(const char* name, PluginFieldType type, const std::vector<T>& values) {
    Row row{name, type, static_cast<int32_t>(values.size()), std::vector<char>(values.size() * sizeof(T))};
    std::memcpy(row.bytes.data(), values.data(), row.bytes.size());
    rows_.push_back(std::move(row));
  }
  void add_text(const char* name, const std::string& text) {
    put(name, PluginFieldType::kCHAR, std::vector<char>(text.c_str(), text.c_str() + text.size() + 1));
  }
  void add(const detail::Attribute& declared, const detail::AttributeValue& value) {
    const char* const name = declared.name.c_str();
    const PluginFieldType type = field_type(declared.kind);
    if (type == PluginFieldType::kCHAR || (value.ints.empty() && value.floats.empty())) {
      const bool plain = declared.kind == OPFORGE_ATTRIBUTE_STRING;
      add_text(name, plain ? value.strings[0] : detail::format_literal(detail::to_literal(value)));
    } else if (type == PluginFieldType::kFLOAT32) {
      std::vector<float> numbers;
      for (const double number : value.floats) numbers.push_back(static_cast<float>(number));
      put(name, type, numbers);
    } else if (type == PluginFieldType::kINT32) {
      put(name, type, std::vector<int32_t>(value.ints.begin(), value.ints.end()));
    } else {
      put(name, type, value.ints);
    }
  }

  std::vector<Row> rows_;
  std::vector<PluginField> fields_;
  PluginFieldCollection collection_{};
};

}  // namespace opforge::tensorrt_host
