// attributes.h: declared attributes, the coercion of a caller's value, and their form in the ABI.
// The counterpart of src/opforge/schema/attributes.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "opforge/detail/lexer.h"

namespace opforge::detail {

inline constexpr const char* kAttributeKinds[] = {"",     "int",    "float",   "string", "bool",
                                                  "ints", "floats", "strings", "bools"};

// A coerced value of one kind; a scalar is a list of one.
struct AttributeValue {
  int32_t kind = 0;                  // OPFORGE_ATTRIBUTE_*, 0 = none
  std::vector<int64_t> ints;         // int, bool, ints, bools
  std::vector<double> floats;        // float, floats: float32 values
  std::vector<std::string> strings;  // string, strings

  bool operator==(const AttributeValue& other) const {
    return kind == other.kind && ints == other.ints && floats == other.floats && strings == other.strings;
  }
};

struct Attribute {
  std::string name;
  int32_t kind = 0;
  bool required = true;
  AttributeValue default_value;  // where not required
};

inline Literal to_literal(const AttributeValue& value) {
  Literal literal;
  literal.list = value.kind >= OPFORGE_ATTRIBUTE_INTS;
  const int32_t scalar = literal.list ? value.kind - 4 : value.kind;
  for (const int64_t i : value.ints) literal.items.push_back({scalar, i, 0, {}});
  for (const double f : value.floats) literal.items.push_back({scalar, 0, f, {}});
  for (const std::string& s : value.strings) literal.items.push_back({scalar, 0, 0, s});
  return literal;
}

inline std::string kind_of(const Literal& value) {
  std::vector<std::string> kinds;
  for (const Scalar& item : value.items) {
    const std::string kind = kAttributeKinds[item.kind];
    bool known = false;
    for (const std::string& other : kinds) known |= other == kind;
    if (!known) kinds.push_back(kind);
  }
  if (!value.list) return kinds[0];
  if (kinds.empty()) return "an empty list";
  return kinds.size() == 1 ? kinds[0] + "s" : "a list of " + join(kinds, " and ");
}

// Turns a caller's value into an attribute value: floats are rounded once to float32, integers may stand for
// floats, nothing else is converted.
inline bool coerce(const Attribute& attribute, const Literal& value, const std::string& where,
                   AttributeValue* out, Problem* problem) {
  const std::string place = (where.empty() ? "" : where + ", ") + "attribute " + attribute.name;
  const bool list = attribute.kind >= OPFORGE_ATTRIBUTE_INTS;
  const int32_t wanted = list ? attribute.kind - 4 : attribute.kind;
  *out = AttributeValue();
  out->kind = attribute.kind;
  for (const Scalar& item : value.items) {
    const bool fits =
        item.kind == wanted || (wanted == OPFORGE_ATTRIBUTE_FLOAT && item.kind == OPFORGE_ATTRIBUTE_INT);
    if (!fits || list != value.list) break;
    if (wanted == OPFORGE_ATTRIBUTE_STRING) {
      out->strings.push_back(item.s);
    } else if (wanted == OPFORGE_ATTRIBUTE_FLOAT) {
      const double given = item.kind == OPFORGE_ATTRIBUTE_INT ? static_cast<double>(item.i) : item.f;
      const double rounded = static_cast<float>(given);
      if (std::isinf(rounded) && !std::isinf(given)) {
        char text[40];
        const auto end = std::to_chars(text, text + sizeof text, given);
        return problem->set(Problem::kArgument, "value out of range", place, "a float32",
                            std::string(text, end.ptr));
      }
      out->floats.push_back(rounded);
    } else {
      out->ints.push_back(item.i);
    }
  }
  if (list != value.list || out->ints.size() + out->floats.size() + out->strings.size() != value.items.size())
    return problem->set(Problem::kDtype, "wrong attribute type", place, kAttributeKinds[attribute.kind],
                        kind_of(value));
  return true;
}

struct NamedLiteral {
  std::string name;
  Literal value;
};

// Coerces a call's attributes and fills in defaults; `out` has one value per declared attribute, in order.
inline bool coerce_all(const std::vector<Attribute>& attributes, const std::vector<NamedLiteral>& given,
                       const std::string& where, std::vector<AttributeValue>* out, Problem* problem) {
  out->clear();
  std::vector<std::string> known;
  for (const Attribute& attribute : attributes) {
    known.push_back(attribute.name);
    const NamedLiteral* found = nullptr;
    for (const NamedLiteral& entry : given)
      if (entry.name == attribute.name) found = &entry;
    out->push_back(attribute.default_value);
    if (found != nullptr) {
      if (!coerce(attribute, found->value, where, &out->back(), problem)) return false;
    } else if (attribute.required) {
      return problem->set(Problem::kArgument, "missing attribute", where,
                          attribute.name + ": " + kAttributeKinds[attribute.kind], "nothing");
    }
  }
  for (const NamedLiteral& entry : given) {
    bool declared = false;
    for (const std::string& name : known) declared |= name == entry.name;
    if (!declared)
      return problem->set(Problem::kArgument, "unknown attribute", where,
                          known.empty() ? "no attributes" : join(known), entry.name);
  }
  return true;
}

// Attribute values in the form of the ABI. The pointers lead into `values`, which must outlive this and stay
// unchanged.
class PackedAttributes {
 public:
  explicit PackedAttributes(const std::vector<AttributeValue>& values)
      : packed_(values.size()), strings_(values.size()) {
    for (size_t k = 0; k < values.size(); ++k) {
      const AttributeValue& value = values[k];
      opforge_attribute& to = packed_[k];
      to.kind = value.kind;
      to.count = static_cast<int64_t>(value.ints.size() + value.floats.size() + value.strings.size());
      for (const std::string& s : value.strings)
        strings_[k].push_back({s.data(), static_cast<int64_t>(s.size())});
      switch (value.kind) {
        case OPFORGE_ATTRIBUTE_INT:
        case OPFORGE_ATTRIBUTE_BOOL:
          to.value.i = value.ints[0];
          break;
        case OPFORGE_ATTRIBUTE_FLOAT:
          to.value.f = value.floats[0];
          break;
        case OPFORGE_ATTRIBUTE_STRING:
          to.value.s = strings_[k][0];
          break;
        case OPFORGE_ATTRIBUTE_INTS:
        case OPFORGE_ATTRIBUTE_BOOLS:
          to.value.ints = value.ints.data();
          break;
        case OPFORGE_ATTRIBUTE_FLOATS:
          to.value.floats = value.floats.data();
          break;
        default:
          to.value.strings = strings_[k].data();
          break;
      }
    }
  }
  const opforge_attribute* data() const { return packed_.data(); }

 private:
  std::vector<opforge_attribute> packed_;
  std::vector<std::vector<opforge_string>> strings_;
};

}  // namespace opforge::detail
