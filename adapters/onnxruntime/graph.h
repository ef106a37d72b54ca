// graph.h: a graph that ONNX Runtime shows to an execution provider: nodes, names of values, attributes.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnxruntime/attributes.h"

namespace opforge::onnxruntime_host {

using Names = std::vector<std::string>;

inline std::string value_name(const ValueInfo* value) {
  const char* name = nullptr;
  if (value == nullptr || !good(api().GetValueInfoName(value, &name)) || name == nullptr) return {};
  return name;
}

inline std::vector<const GraphNode*> nodes_of(const Graph* graph) {
  size_t count = 0;
  check(api().Graph_GetNumNodes(graph, &count), "graph");
  std::vector<const GraphNode*> nodes(count);
  if (count > 0) check(api().Graph_GetNodes(graph, nodes.data(), count), "graph");
  return nodes;
}

// The values that a pair of functions lists.
template <class Of>
std::vector<const ValueInfo*> values_of(const Of* of, Status* (*number)(const Of*, size_t*),
                                        Status* (*list)(const Of*, const ValueInfo**, size_t)) {
  size_t count = 0;
  check(number(of, &count), "graph");
  std::vector<const ValueInfo*> values(count);
  if (count > 0) check(list(of, values.data(), count), "graph");
  return values;
}

// Names; "" where a value is left out.
inline Names names_of(const std::vector<const ValueInfo*>& values) {
  Names names;
  for (const ValueInfo* value : values) names.push_back(value_name(value));
  return names;
}
inline Names input_names(const GraphNode* node) {
  return names_of(values_of(node, api().Node_GetNumInputs, api().Node_GetInputs));
}
inline Names output_names(const GraphNode* node) {
  return names_of(values_of(node, api().Node_GetNumOutputs, api().Node_GetOutputs));
}
inline Names input_names(const Graph* graph) {
  return names_of(values_of(graph, api().Graph_GetNumInputs, api().Graph_GetInputs));
}

// Who makes and who reads each value of a graph.
struct Links {
  std::map<std::string, const GraphNode*> makers;
  std::map<std::string, std::vector<const GraphNode*>> readers;  // the node itself for what its branches read
  std::set<std::string> inputs, results;                         // of the graph

  Links(const Graph* graph, const std::vector<const GraphNode*>& nodes) {
    for (const GraphNode* node : nodes) {
      for (const std::string& name : output_names(node)) {
        if (!name.empty()) makers[name] = node;
      }
      for (const std::string& name : input_names(node)) readers[name].push_back(node);
      for (const std::string& name :
           names_of(values_of(node, api().Node_GetNumImplicitInputs, api().Node_GetImplicitInputs)))
        readers[name].push_back(node);
    }
    for (const std::string& name : input_names(graph)) inputs.insert(name);
    for (const std::string& name :
         names_of(values_of(graph, api().Graph_GetNumOutputs, api().Graph_GetOutputs)))
      results.insert(name);
  }

  // Whether only these nodes read the value.
  bool within(const std::string& name, const std::set<const GraphNode*>& nodes) const {
    if (results.count(name) > 0) return false;
    const auto found = readers.find(name);
    return found == readers.end() ||
           std::all_of(found->second.begin(), found->second.end(),
                       [&](const GraphNode* node) { return nodes.count(node) > 0; });
  }
};

inline std::string text_of(Status* (*get)(const GraphNode*, const char**), const GraphNode* node) {
  const char* text = nullptr;
  check(get(node, &text), "node");
  return text ? text : "";
}

// Per name its place in `among`; -1 where it is not there. ONNX Runtime gives a fused node equal inputs once,
// and no outputs that nobody reads.
inline std::vector<int32_t> places(const Names& names, const Names& among) {
  std::vector<int32_t> found;
  for (const std::string& name : names) {
    int32_t place = -1;
    for (size_t k = 0; !name.empty() && k < among.size() && place < 0; ++k) {
      if (among[k] == name) place = static_cast<int32_t>(k);
    }
    found.push_back(place);
  }
  return found;
}

// Element type of each input; 0 where it is absent or unknown.
inline std::vector<int32_t> input_types(const GraphNode* node) {
  const std::vector<const ValueInfo*> values = values_of(node, api().Node_GetNumInputs, api().Node_GetInputs);
  std::vector<int32_t> types;
  for (const ValueInfo* value : values) {
    const TypeInfo* type = nullptr;
    const TensorInfo* tensor = nullptr;
    int32_t element = 0;
    if (value != nullptr && good(api().GetValueInfoTypeInfo(value, &type)) && type != nullptr &&
        good(api().CastTypeInfoToTensorInfo(type, &tensor)) && tensor != nullptr) {
      check(api().GetTensorElementType(tensor, &element), "node");
    }
    types.push_back(element);
  }
  return types;
}

// Reads a node's attributes. Here every name is seen, so an unknown one is refused.
class GraphAttributes {
 public:
  GraphAttributes(const GraphNode* node, const Plan& plan) : plan_(plan) {
    size_t count = 0;
    check(api().Node_GetNumAttributes(node, &count), plan.where);
    std::vector<const Attribute*> attributes(count);
    if (count > 0) check(api().Node_GetAttributes(node, attributes.data(), count), plan.where);
    for (const Attribute* attribute : attributes) {
      const char* name = nullptr;
      check(api().OpAttr_GetName(attribute, &name), plan.where);
      given_[name] = attribute;
    }
  }

  void read(NodeAttributes* into) {
    std::vector<std::string> known;
    for (const detail::Attribute& declared : plan_.signature.attributes) {
      known.push_back(declared.name);
      const auto found = given_.find(declared.name);
      if (found != given_.end()) {
        one(declared, found->second, into);
        given_.erase(found);
      } else if (declared.required) {
        throw missing_attribute(plan_, declared);
      } else {
        into->values.add_default(declared.default_value);
      }
    }
    if (!given_.empty()) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "unknown attribute",
                    known.empty() ? "no attributes" : detail::join(known), given_.begin()->first);
    }
  }

 private:
  template <class T>
  std::vector<T> items(const Attribute* attribute, AttributeType type) {
    size_t bytes = 0;
    good(api().ReadOpAttr(attribute, type, nullptr, 0, &bytes));  // says how large it is, and complains
    std::vector<T> values(bytes / sizeof(T));
    if (bytes > 0) check(api().ReadOpAttr(attribute, type, values.data(), bytes, &bytes), plan_.where);
    return values;
  }

  void one(const detail::Attribute& declared, const Attribute* attribute, NodeAttributes* into) {
    int32_t got = 0;
    check(api().OpAttr_GetType(attribute, &got), plan_.where);
    const AttributeType type = type_of_kind(declared.kind);
    if (got != type)
      throw wrong_type(plan_, declared, got <= kStrings ? static_cast<AttributeType>(got) : kUndefined);
    size_t size = 0;
    switch (declared.kind) {
      case OPFORGE_ATTRIBUTE_INT:
      case OPFORGE_ATTRIBUTE_BOOL: {
        int64_t value = 0;
        check(api().ReadOpAttr(attribute, kInt, &value, sizeof value, &size), plan_.where);
        declared.kind == OPFORGE_ATTRIBUTE_BOOL ? into->values.add_bool(value != 0)
                                                : into->values.add_int(value);
        break;
      }
      case OPFORGE_ATTRIBUTE_FLOAT: {
        float value = 0;
        check(api().ReadOpAttr(attribute, kFloat, &value, sizeof value, &size), plan_.where);
        into->values.add_float(value);
        break;
      }
      case OPFORGE_ATTRIBUTE_INTS:
      case OPFORGE_ATTRIBUTE_BOOLS:
        into->values.add_ints(items<int64_t>(attribute, kInts), declared.kind);
        break;
      case OPFORGE_ATTRIBUTE_FLOATS: {
        const std::vector<float> values = items<float>(attribute, kFloats);
        into->values.add_floats(std::vector<double>(values.begin(), values.end()));
        break;
      }
      default: {  // texts, each with a zero behind it
        const std::vector<char> bytes = items<char>(attribute, type);
        std::vector<opforge_string> views;
        for (size_t begin = 0; begin < bytes.size(); begin += std::strlen(&bytes[begin]) + 1)
          views.push_back(into->keep(&bytes[begin]));
        if (declared.kind == OPFORGE_ATTRIBUTE_STRINGS) {
          into->values.add_strings(std::move(views));
        } else {
          into->values.add_string(views.empty() ? into->keep("") : views[0]);
        }
      }
    }
  }

  const Plan& plan_;
  std::map<std::string, const Attribute*> given_;
};

}  // namespace opforge::onnxruntime_host
