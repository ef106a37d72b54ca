// openvino.cpp: the entry points that OpenVINO and the Python side call. It is compiled on the user's machine
// against the OpenVINO that is installed there: its C++ interface changes with every version.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <openvino/core/extension.hpp>
#include <openvino/core/op_extension.hpp>
#include <openvino/frontend/onnx/extension/conversion.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>

#include "openvino/node.h"

namespace opforge::openvino_host {
namespace {

// What reads a layer of an IR.
class LayerExtension : public ov::BaseOpExtension {
 public:
  explicit LayerExtension(const Definition* definition) : definition_(definition) {}

  const ov::DiscreteTypeInfo& get_type_info() const override { return definition_->type; }
  ov::OutputVector create(const ov::OutputVector& inputs, ov::AttributeVisitor& visitor) const override {
    const auto node = make_node(Content(*definition_));
    node->set_arguments(inputs);
    node->visit_attributes(visitor);
    node->constructor_validate_and_infer_types();
    return node->outputs();
  }
  std::vector<ov::Extension::Ptr> get_attached_extensions() const override { return {}; }

 private:
  const Definition* definition_;
};

// ---- ONNX

bool absent(const ov::Output<ov::Node>& input) {
  return std::string(input.get_node()->get_type_info().name) == "NullNode";
}

std::vector<detail::AttributeValue> attributes_of(const Plan& plan,
                                                  const ov::frontend::NodeContext& context) {
  std::vector<detail::AttributeValue> values;
  for (const detail::Attribute& declared : plan.signature.attributes) {
    const ov::Any any = context.get_attribute_as_any(declared.name);
    if (any.empty() && declared.required) throw missing_attribute(plan, declared);
    values.push_back(any.empty() ? declared.default_value : value_of(plan, declared, any));
  }
  return values;
}

// The outputs in the model's dtypes and by their place in its node, as the front end takes them. An optional
// one that is not there leaves a gap before others, which nothing reads.
ov::OutputVector outputs_of(const std::shared_ptr<ov::Node>& node) {
  const Typing* typing = dynamic_cast<const Holder&>(*node).content_.typing();
  ov::OutputVector made = node->outputs();
  if (typing == nullptr) return made;
  ov::OutputVector placed;
  size_t tensor = 0;
  for (const int32_t count : typing->counts) {
    if (count == 0 && tensor < made.size())
      placed.push_back(ov::op::v0::Constant::create(ov::element::f32, ov::Shape{0}, std::vector<float>()));
    for (int32_t k = 0; k < count; ++k, ++tensor) {
      const bool same = detail::same(typing->made[tensor], typing->shown[tensor]);
      placed.push_back(
          same ? made[tensor]
               : std::make_shared<ov::op::v0::Convert>(made[tensor], element_type(typing->made[tensor])));
    }
  }
  return placed;
}

ov::OutputVector convert_node(const Definition& definition, const ov::frontend::NodeContext& context) {
  Content content(definition);
  ov::OutputVector inputs;
  Ports ports(context.get_input_size());
  for (size_t k = 0; k < ports.size(); ++k) {
    const ov::Output<ov::Node> input = context.get_input(static_cast<int>(k));
    ports[k].present = !absent(input);
    if (ports[k].present) inputs.push_back(input);
  }
  content.fill(attributes_of(definition, context), std::move(ports));
  const auto node = make_node(std::move(content));
  node->set_arguments(inputs);
  node->constructor_validate_and_infer_types();
  return outputs_of(node);
}

void add_extensions(std::vector<ov::Extension::Ptr>* extensions) {
  operators().search("opforge.openvino.add_to(core)");
  const Keys keys = std::exchange(selection(), {});
  const std::lock_guard<std::mutex> guard(operators().lock);
  std::set<std::string> converted;
  for (const Definition* definition : operators().chosen(keys)) {
    extensions->push_back(std::make_shared<LayerExtension>(definition));
    // The front end tells no versions apart: the first of those that are chosen is the model's.
    if (!converted.insert(definition->where).second) continue;
    extensions->push_back(std::make_shared<ov::frontend::onnx::ConversionExtension>(
        definition->table->name, definition->table->domain,
        [definition](const ov::frontend::NodeContext& context) {
          return told([&] { return convert_node(*definition, context); });
        }));
  }
}

}  // namespace
}  // namespace opforge::openvino_host

using namespace opforge::openvino_host;  // NOLINT: the entry points below

// What Core.add_extension calls.
OPENVINO_EXTENSION_C_API void OV_CREATE_EXTENSION(std::vector<ov::Extension::Ptr>& extensions) {
  told([&] { add_extensions(&extensions); });
}

extern "C" {

// Makes one operator of a table known to this process.
OPFORGE_EXPORT int32_t opforge_openvino_define(const opforge_operator* table, char* error, size_t size) {
  return opforge::adapter::guarded(error, size, [&] { operators().define(table); }, OPFORGE_STATUS_INTERNAL);
}

// The operators that the next extension made on this thread holds; none = the newest of each.
OPFORGE_EXPORT void opforge_openvino_select(const char* const* keys, size_t count) {
  selection().assign(keys, keys + count);
}

}  // extern "C"
