// operator.h: the operators that this process knows, under the names that nodes of a model call them by, and
// the meaning of a node's custom options.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/plan.h"
#include "litert/flexbuffer.h"
#include "tensorflow/definition.h"

namespace opforge::litert_host {

using namespace adapter;  // NOLINT: what every adapter shares

// An operator under one of its names. `domain::Name:version` is what our writer writes, with the declared
// names of attributes; TensorFlow's converter writes the name of the operation, with the names that our
// operations have there for attributes and for the lengths of optional and variadic inputs.
struct Named {
  const Plan* plan = nullptr;
  std::vector<std::string> attributes;     // the name in the options of each declared attribute
  std::vector<std::string> counts;         // the same of the length of each input; "" = one tensor
  std::vector<std::string> output_counts;  // names to leave alone
  bool converted = false;                  // by TensorFlow
};

inline constexpr char kCounts[] =
    "#inputs";  // tensors per input parameter, where one is optional or variadic

struct Registry {
  std::mutex lock, searching;
  std::map<std::string, std::unique_ptr<Plan>> plans;  // by domain::Name:version
  std::map<std::string, Named> names;
};

// Nothing here is freed: a compiled model may outlive static objects.
inline Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

// com.example::CustomGELU:1 is ComExampleCustomGELUV1, as opforge.frameworks.tensorflow names it.
inline std::string tensorflow_name(const opforge_operator& table) {
  std::string name;
  bool first = true;
  for (const char* c = table.domain; *c != '\0'; ++c) {
    const bool letter = std::isalnum(static_cast<unsigned char>(*c)) != 0;
    if (letter) name += first ? static_cast<char>(std::toupper(static_cast<unsigned char>(*c))) : *c;
    first = !letter;
  }
  std::string rest = table.name;
  if (!rest.empty()) rest[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(rest[0])));
  return name + rest + "V" + std::to_string(table.since_version);
}

// Enters an operator of a table. Doing it again changes nothing; another one of that name is an error.
inline void define(const opforge_operator* table) {
  auto plan = std::make_unique<Plan>(table);
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  const auto known = all.plans.find(plan->key);
  if (known != all.plans.end()) return merge(*known->second, *plan, plan->key, "LiteRT");
  Named own;
  own.plan = plan.get();
  for (const detail::Attribute& attribute : plan->signature.attributes)
    own.attributes.push_back(attribute.name);
  all.names[plan->key] = own;
  const std::string there = tensorflow_name(*table);
  try {
    const tensorflow_host::Definition definition(table, there);
    Named converted{plan.get(), definition.attributes, definition.input_counts, definition.output_counts,
                    true};
    all.names.emplace(there, std::move(converted));
  } catch (const Failure&) {
    // TensorFlow has no tensors of its types, so no model of TensorFlow's holds it.
  }
  std::string key = plan->key;
  all.plans.emplace(std::move(key), std::move(plan));
}

// The operator that a node's name means. Behind '#' is what tells nodes of one operator apart.
inline const Named& find(const std::string& code) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  const auto found = all.names.find(code.substr(0, code.find('#')));
  if (found == all.names.end()) {
    throw failure(OPFORGE_STATUS_NOT_FOUND, code, "the operator is not defined in this process", "", "",
                  "import the package that declares it, or name its library by OPFORGE_LIBRARY_PATH");
  }
  const Plan& plan = *found->second.plan;
  if (plan.data_dependent) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, plan.where, "LiteRT has no outputs whose size depends on data",
                  "outputs that follow from the inputs' shapes", plan.table->signature);
  }
  return found->second;
}

// What a node's options say.
struct NodeOptions {
  std::vector<detail::AttributeValue> values;
  Attributes attributes;          // leads into `values`
  std::vector<int64_t> integers;  // per declared attribute, for dimensions that read it
  std::vector<int64_t> counts;    // per input parameter; empty = from the left
};

namespace detail_options {

inline std::vector<int64_t> counts_of(const Plan& plan, const std::vector<detail::NamedLiteral>& entries,
                                      const Named& named) {
  const auto wrong = [&](const std::string& name) {
    return failure(OPFORGE_STATUS_CORRUPT, plan.where, "wrong numbers of inputs in the custom options",
                   "one count per input", name, "write the model again");
  };
  std::vector<int64_t> counts;
  for (const detail::NamedLiteral& entry : entries) {
    if (named.converted || entry.name != kCounts) continue;
    for (const detail::Scalar& item : entry.value.items) counts.push_back(item.i);
    if (counts.size() != plan.signature.inputs.size()) throw wrong(entry.name);
  }
  for (size_t k = 0; k < named.counts.size(); ++k) {
    counts.push_back(1);
    if (named.counts[k].empty()) continue;
    const detail::NamedLiteral* found = nullptr;
    for (const detail::NamedLiteral& entry : entries)
      if (entry.name == named.counts[k]) found = &entry;
    if (found == nullptr || found->value.items.size() != 1) throw wrong(named.counts[k]);
    counts.back() = found->value.items[0].i;
  }
  for (size_t k = 0; k < counts.size(); ++k) {
    const int64_t most = plan.signature.inputs[k].variadic ? INT32_MAX : 1;
    if (counts[k] < 0 || counts[k] > most) throw wrong(std::to_string(counts[k]));
  }
  return counts;
}

// Attributes under their declared names. TensorFlow adds the dtypes of type variables and, with a leading
// underscore, notes of its own; its lists of booleans are numbers, and its converter leaves out empty lists.
inline std::vector<detail::NamedLiteral> attributes_of(const Plan& plan,
                                                       std::vector<detail::NamedLiteral> entries,
                                                       const Named& named) {
  std::vector<detail::NamedLiteral> given;
  for (detail::NamedLiteral& entry : entries) {
    if (!named.converted && entry.name == kCounts) continue;
    bool skip = named.converted && entry.name[0] == '_';
    for (const detail::TypeVariable& type : plan.signature.types)
      skip = skip || (named.converted && entry.name == type.name);
    for (const auto* list : {&named.counts, &named.output_counts})
      for (const std::string& name : *list) skip = skip || entry.name == name;
    if (skip) continue;
    for (size_t k = 0; k < named.attributes.size(); ++k) {
      if (entry.name != named.attributes[k]) continue;
      const detail::Attribute& declared = plan.signature.attributes[k];
      entry.name = declared.name;
      if (declared.kind == OPFORGE_ATTRIBUTE_BOOLS && named.converted) {
        for (detail::Scalar& item : entry.value.items) item.kind = OPFORGE_ATTRIBUTE_BOOL;
      }
      break;
    }
    given.push_back(std::move(entry));
  }
  for (const detail::Attribute& declared : plan.signature.attributes) {
    bool empty = named.converted && declared.kind >= OPFORGE_ATTRIBUTE_INTS;
    for (const detail::NamedLiteral& entry : given) empty = empty && entry.name != declared.name;
    if (!empty) continue;
    given.emplace_back();
    given.back().name = declared.name;
    given.back().value.list = true;
  }
  return given;
}

}  // namespace detail_options

inline std::unique_ptr<NodeOptions> read_options(const Named& named, const void* bytes, size_t size) {
  const Plan& plan = *named.plan;
  auto options = std::make_unique<NodeOptions>();
  std::vector<detail::NamedLiteral> entries = FlexBuffer(bytes, size, plan.where).entries();
  options->counts = detail_options::counts_of(plan, entries, named);
  detail::Problem problem;
  if (!detail::coerce_all(plan.signature.attributes,
                          detail_options::attributes_of(plan, std::move(entries), named), plan.where,
                          &options->values, &problem)) {
    throw failure_of(problem);
  }
  for (const detail::AttributeValue& value : options->values) {
    options->attributes.add_default(value);
    options->integers.push_back(value.kind == OPFORGE_ATTRIBUTE_INT ? value.ints[0] : 0);
  }
  return options;
}

}  // namespace opforge::litert_host
