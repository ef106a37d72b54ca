// attributes.h: the attributes of one call in the ABI's form, with the memory behind lists.
#pragma once

#include <utility>
#include <vector>

#include "common/small.h"
#include "opforge/abi.h"
#include "opforge/detail/attributes.h"

namespace opforge::adapter {

class Attributes {
 public:
  const opforge_attribute* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }
  const opforge_attribute& operator[](size_t i) const { return values_[i]; }

  void add_int(int64_t value) { next(OPFORGE_ATTRIBUTE_INT).value.i = value; }
  void add_bool(bool value) { next(OPFORGE_ATTRIBUTE_BOOL).value.i = value ? 1 : 0; }
  // A float attribute is a float32 value, rounded once on entry.
  void add_float(double value) { next(OPFORGE_ATTRIBUTE_FLOAT).value.f = round_float(value); }
  void add_string(opforge_string value) { next(OPFORGE_ATTRIBUTE_STRING).value.s = value; }

  void add_ints(std::vector<int64_t> values, int32_t kind = OPFORGE_ATTRIBUTE_INTS) {
    ints_.push_back(std::move(values));
    opforge_attribute& entry = next(kind);
    entry.count = static_cast<int64_t>(ints_.back().size());
    entry.value.ints = ints_.back().data();
  }
  void add_floats(std::vector<double> values) {
    for (double& value : values) value = round_float(value);
    floats_.push_back(std::move(values));
    opforge_attribute& entry = next(OPFORGE_ATTRIBUTE_FLOATS);
    entry.count = static_cast<int64_t>(floats_.back().size());
    entry.value.floats = floats_.back().data();
  }
  void add_strings(std::vector<opforge_string> values) {
    strings_.push_back(std::move(values));
    opforge_attribute& entry = next(OPFORGE_ATTRIBUTE_STRINGS);
    entry.count = static_cast<int64_t>(strings_.back().size());
    entry.value.strings = strings_.back().data();
  }
  // The declared default; `value` must outlive this.
  void add_default(const detail::AttributeValue& value) {
    switch (value.kind) {
      case OPFORGE_ATTRIBUTE_INT:
        return add_int(value.ints[0]);
      case OPFORGE_ATTRIBUTE_FLOAT:
        return add_float(value.floats[0]);
      case OPFORGE_ATTRIBUTE_BOOL:
        return add_bool(value.ints[0] != 0);
      case OPFORGE_ATTRIBUTE_STRING:
        return add_string(view(value.strings[0]));
      case OPFORGE_ATTRIBUTE_FLOATS:
        return add_floats(value.floats);
      case OPFORGE_ATTRIBUTE_STRINGS: {
        std::vector<opforge_string> views;
        for (const std::string& text : value.strings) views.push_back(view(text));
        return add_strings(std::move(views));
      }
      default:
        return add_ints(value.ints, value.kind);
    }
  }

 private:
  static opforge_string view(const std::string& text) {
    return {text.data(), static_cast<int64_t>(text.size())};
  }
  static double round_float(double value) { return static_cast<double>(static_cast<float>(value)); }

  opforge_attribute& next(int32_t kind) {
    opforge_attribute entry{};
    entry.kind = kind;
    entry.count = 1;
    values_.push_back(entry);
    return values_.back();
  }

  Small<opforge_attribute, 6> values_;
  std::vector<std::vector<int64_t>> ints_;  // an inner buffer stays where it is when the outer vector grows
  std::vector<std::vector<double>> floats_;
  std::vector<std::vector<opforge_string>> strings_;
};

}  // namespace opforge::adapter
