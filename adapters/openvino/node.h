// node.h: a node of OpenVINO's graph that is an operator of ours. One class serves all operators: what type a
// node is, OpenVINO asks of the instance.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openvino/core/attribute_visitor.hpp>
#include <openvino/core/node.hpp>

#include "openvino/call.h"
#include "openvino/dimension.h"

namespace opforge::openvino_host {

// A failure in the words that the Python side finds again in OpenVINO's.
struct Told : Failure {
  explicit Told(const Failure& problem)
      : Failure(problem.status, "opforge(" + std::to_string(problem.status) + "): " + problem.text +
                                    "\n(end of opforge's words)") {}
};

template <class Body>
auto told(Body body) {
  try {
    return body();
  } catch (const Told&) {
    throw;
  } catch (const Failure& problem) {
    throw Told(problem);
  }
}

// What an operator adds to a node of OpenVINO. Copies of a node share all of it.
class Content {
 public:
  explicit Content(const Definition& definition) : definition_(&definition) {}

  const Definition& definition() const { return *definition_; }

  // ONNX: the attributes, and per input of the model's node whether it is there.
  void fill(std::vector<detail::AttributeValue> values, Ports ports) {
    attributes_ = std::make_shared<const NodeAttributes>(std::move(values));
    ports_ = std::make_shared<const Ports>(std::move(ports));
  }
  // IR: writes the attributes, or reads them where there are none yet.
  void visit(ov::AttributeVisitor& visitor);
  void validate(ov::Node& node);
  void evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const;
  // NULL where dtypes are not known yet.
  const Typing* typing() const { return typing_.get(); }
  bool pure() const { return (definition_->table->flags & OPFORGE_OPERATOR_PURE) != 0; }

 private:
  void set_ports(size_t count);
  void find_typing(const ov::Node& node);
  void show_known(ov::Node& node);
  void show_partial(ov::Node& node);

  const Definition* definition_;
  SharedAttributes attributes_;
  std::shared_ptr<const Ports> ports_;
  std::shared_ptr<const Typing> typing_;
};

// ---- IR

inline constexpr const char* kPortsAttribute = "opforge_inputs";
inline constexpr const char* kUnset = "\x01";

// "f32 - i64": the dtypes that a model gives the inputs, with a dash for one that is not there.
inline std::string ports_text(const Ports& ports) {
  std::vector<std::string> words;
  for (const Port& port : ports)
    words.push_back(!port.present                     ? "-"
                    : detail::is_known(port.original) ? detail::dtype_name(port.original)
                                                      : "?");
  return detail::join(words, " ");
}

inline Ports ports_of(const Plan& plan, const std::string& text) {
  Ports ports;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    Port port;
    port.present = word != "-";
    for (const DtypeRow& row : kDtypes) {
      if (detail::dtype_name(row.ours) == word) port.original = row.ours;
    }
    if (port.present && word != "?" && !detail::is_known(port.original)) {
      throw failure(OPFORGE_STATUS_CORRUPT, plan.where + ", attribute " + kPortsAttribute, "unknown word",
                    "a dtype, ? or -", word);
    }
    ports.push_back(port);
  }
  return ports;
}

inline void Content::visit(ov::AttributeVisitor& visitor) {
  const auto& declared = definition_->signature.attributes;
  const bool reading = attributes_ == nullptr;
  std::vector<detail::AttributeValue> values;
  for (size_t a = 0; a < declared.size(); ++a) {
    const std::string before = reading ? kUnset : text_of(attributes_->values[a]);
    std::string text = before;
    visitor.on_attribute(declared[a].name, text);
    if (reading && text == kUnset) {
      if (declared[a].required) throw missing_attribute(*definition_, declared[a]);
      values.push_back(declared[a].default_value);
    } else {
      values.push_back(!reading && text == before ? attributes_->values[a]
                                                  : value_of(*definition_, declared[a], text));
    }
  }
  const std::string before = ports_ == nullptr ? kUnset : ports_text(*ports_);
  std::string text = before;
  visitor.on_attribute(kPortsAttribute, text);
  if (text != before) ports_ = std::make_shared<const Ports>(ports_of(*definition_, text));
  attributes_ = std::make_shared<const NodeAttributes>(std::move(values));
}

// ---- types and shapes

inline void Content::set_ports(size_t count) {
  const auto wrong = [&] {
    return failure(OPFORGE_STATUS_INVALID_ARGUMENT, definition_->where, "wrong number of inputs",
                   definition_->signature.expected_inputs(), std::to_string(count));
  };
  if (ports_ == nullptr) ports_ = std::make_shared<const Ports>(count);
  const auto present =
      std::count_if(ports_->begin(), ports_->end(), [](const Port& port) { return port.present; });
  if (static_cast<size_t>(present) != count) throw wrong();
  const detail::Signature& signature = definition_->signature;
  if (ports_->size() > signature.inputs.size() && !signature.variadic()) throw wrong();
  for (size_t p = 0; p < signature.inputs.size(); ++p) {
    const bool there = p < ports_->size() && (*ports_)[p].present;
    if (!there && !signature.inputs[p].optional) throw wrong();
  }
}

inline void Content::find_typing(const ov::Node& node) {
  Dtypes given;
  bool known = true;
  for (size_t k = 0; k < node.get_input_size(); ++k) {
    const ov::element::Type& type = node.get_input_element_type(k);
    given.push_back(dtype_of(type));
    known = known && detail::is_known(given.back());
    if (type.is_static() && !detail::is_known(given.back())) {
      throw foreign_dtype(*definition_, std::min(k, definition_->signature.inputs.size() - 1),
                          type.to_string());
    }
  }
  if (!known) {
    typing_ = nullptr;
    return;
  }
  if (typing_ != nullptr && detail_typing::equal(typing_->given, given)) return;
  typing_ = type_node(*definition_, *ports_, attributes_->packed, given);
  bool fresh = false;
  for (const Port& port : *ports_) fresh = fresh || (port.present && !detail::is_known(port.original));
  if (!fresh) return;
  auto ports = std::make_shared<Ports>(*ports_);
  size_t tensor = 0;
  for (Port& port : *ports) {
    if (port.present) port.original = given[tensor++];
  }
  ports_ = std::move(ports);
}

// All shapes are numbers: the way of a running model.
inline void Content::show_known(ov::Node& node) {
  Small<opforge_tensor, 8> tensors;
  Small<int32_t, 8> counts;
  counts.resize(definition_->signature.inputs.size());
  size_t tensor = 0;
  for (size_t port = 0; port < ports_->size(); ++port) {
    if (!(*ports_)[port].present) continue;
    const ov::Shape& shape = node.get_input_shape(tensor);
    opforge_tensor view{};
    view.ndim = static_cast<int32_t>(shape.size());
    view.shape = reinterpret_cast<int64_t*>(const_cast<size_t*>(shape.data()));
    view.dtype = typing_->taken[tensor++];
    tensors.push_back(view);
    ++counts[parameter_of(*definition_, port)];
  }
  Bound bound;
  bind(*definition_, tensors.data(), counts.data(), attributes_->packed, &bound);
  node.set_output_size(static_cast<size_t>(bound.outputs()));
  for (int32_t k = 0; k < bound.outputs(); ++k) {
    ov::PartialShape shape(std::vector<ov::Dimension>(static_cast<size_t>(bound.rank(k))));
    for (int32_t d = 0; d < bound.rank(k); ++d) {
      const int64_t size = bound.sizes(k)[d];
      shape[static_cast<size_t>(d)] = size < 0 ? ov::Dimension::dynamic() : ov::Dimension(size);
    }
    node.set_output_type(static_cast<size_t>(k), element_type(typing_->shown[static_cast<size_t>(k)]), shape);
  }
}

inline void Content::show_partial(ov::Node& node) {
  std::vector<std::vector<Extent>> dims;
  std::vector<detail::ShapeView<Extent>> shapes;
  Dtypes dtypes;
  dims.reserve(ports_->size());
  size_t tensor = 0;
  for (const Port& port : *ports_) {
    if (!port.present) {
      shapes.push_back({nullptr, detail::kAbsent});
      dtypes.push_back({});
      continue;
    }
    const ov::PartialShape& shape = node.get_input_partial_shape(tensor);
    dtypes.push_back(typing_ ? typing_->taken[tensor] : dtype_of(node.get_input_element_type(tensor)));
    ++tensor;
    const bool ranked = shape.rank().is_static();
    dims.emplace_back();
    for (size_t d = 0; ranked && d < shape.size(); ++d) dims.back().push_back(extent_of(shape[d]));
    shapes.push_back(
        {dims.back().data(), ranked ? static_cast<int32_t>(shape.size()) : detail::kUnknownRank});
  }
  std::vector<int64_t> integers;
  const Attributes& attributes = attributes_->packed;
  for (size_t a = 0; a < attributes.size(); ++a)
    integers.push_back(attributes[a].kind == OPFORGE_ATTRIBUTE_INT ? attributes[a].value.i : 0);
  doubts() = {};
  detail::Binding<Extent> binding;
  detail::Problem problem;
  if (!detail::bind(definition_->signature, definition_->where, shapes, dtypes, integers.data(), &binding,
                    &problem))
    throw failure_of(problem);
  node.set_output_size(binding.shapes.size());
  for (size_t k = 0; k < binding.shapes.size(); ++k) {
    ov::PartialShape shape = ov::PartialShape::dynamic();
    if (binding.shapes[k].ranked) {
      std::vector<ov::Dimension> sizes;
      for (const Extent& extent : binding.shapes[k].dims) {
        const ov::Dimension size = dimension_of(extent);
        sizes.push_back(size.is_dynamic() && doubts().about(size) ? ov::Dimension::dynamic() : size);
      }
      shape = ov::PartialShape(std::move(sizes));
    }
    const opforge_dtype dtype = typing_ ? typing_->shown[k] : binding.dtypes[k];
    node.set_output_type(k, detail::is_known(dtype) ? element_type(dtype) : ov::element::dynamic, shape);
  }
}

inline void Content::validate(ov::Node& node) {
  set_ports(node.get_input_size());
  find_typing(node);
  bool known = typing_ != nullptr;
  for (size_t k = 0; known && k < node.get_input_size(); ++k)
    known = node.get_input_partial_shape(k).is_static();
  known ? show_known(node) : show_partial(node);
}

inline void Content::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
  bool fits = typing_ != nullptr;
  for (size_t k = 0; fits && k < inputs.size(); ++k)
    fits = detail::same(typing_->given[k], dtype_of(inputs[k].get_element_type()));
  std::shared_ptr<const Typing> other;
  if (!fits) {  // constants that are folded before the graph's types are changed
    Dtypes given;
    for (const ov::Tensor& input : inputs) given.push_back(dtype_of(input.get_element_type()));
    other = type_node(*definition_, *ports_, attributes_->packed, given);
  }
  Call(*definition_, attributes_->packed, *ports_, fits ? *typing_ : *other, outputs, inputs).run();
}

// ---- the class

struct Holder {
  Content content_;
};

template <class Base>
class Operation final : public Base, public Holder {
 public:
  explicit Operation(Content content);

  const ov::DiscreteTypeInfo& get_type_info() const override { return content_.definition().type; }
  void validate_and_infer_types() override {
    told([&] { content_.validate(*this); });
  }
  bool visit_attributes(ov::AttributeVisitor& visitor) override {
    told([&] { content_.visit(visitor); });
    return true;
  }
  std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
    const auto copy = std::make_shared<Operation>(content_);
    copy->set_arguments(inputs);
    copy->constructor_validate_and_infer_types();
    return copy;
  }
  bool has_evaluate() const override { return true; }
  bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override {
    told([&] { content_.evaluate(outputs, inputs); });
    return true;
  }
  // An operator that is not pure gives other values in every run.
  bool can_constant_fold(const ov::OutputVector& inputs) const override {
    return content_.pure() && Base::can_constant_fold(inputs);
  }
};

template <>
inline Operation<ov::op::Op>::Operation(Content content) : Holder{std::move(content)} {}
template <>
inline Operation<ov::op::util::UnaryElementwiseArithmetic>::Operation(Content content)
    : Holder{std::move(content)} {}
template <>
inline Operation<ov::op::util::BinaryElementwiseArithmetic>::Operation(Content content)
    : BinaryElementwiseArithmetic(ov::op::AutoBroadcastType::NUMPY), Holder{std::move(content)} {}

inline std::shared_ptr<ov::Node> make_node(Content content) {
  switch (content.definition().family) {
    case Family::kUnary:
      return std::make_shared<Operation<ov::op::util::UnaryElementwiseArithmetic>>(std::move(content));
    case Family::kBinary:
      return std::make_shared<Operation<ov::op::util::BinaryElementwiseArithmetic>>(std::move(content));
    default:
      return std::make_shared<Operation<ov::op::Op>>(std::move(content));
  }
}

}  // namespace opforge::openvino_host
