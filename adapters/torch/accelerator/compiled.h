// compiled.h: the node under compiled autograd, which traces a backward pass into a graph: the node names
// what it depends on, and the gradient program becomes a function of saved tensors and gradients.
#pragma once

#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/autograd.h"

namespace opforge::torch_host {

namespace compiled {

using torch::autograd::InputMetadata;
using torch::dynamo::autograd::IValuePacker;
using torch::dynamo::autograd::PackedArgs;
using Metadata = std::vector<std::optional<InputMetadata>>;

inline std::vector<int64_t> plain(const Counts& counts) { return {counts.begin(), counts.end()}; }

// The gradient program as a function of the packed arguments; the order of unpacking is that of packing
// below.
inline variable_list differentiate(const variable_list& gradients,
                                   const std::vector<c10::IValue>& arguments) {
  PackedArgs packed(arguments);
  const auto key = packed.unpack<std::string>();
  const auto mask = static_cast<uint64_t>(packed.unpack<int64_t>());
  const auto recorded = static_cast<uint64_t>(packed.unpack<int64_t>());
  const auto counts = packed.unpack<std::vector<int64_t>>();
  const auto output_counts = packed.unpack<std::vector<int64_t>>();
  const auto saved = packed.unpack<std::vector<at::Tensor>>();
  const auto outputs = packed.unpack<Metadata>();
  const auto n_attributes = static_cast<size_t>(packed.unpack<int64_t>());

  Operator* self = Registry::instance().find(key);
  GradientNode node;
  node.self = self;
  node.counts.assign(counts.begin(), counts.end());
  node.output_counts.assign(output_counts.begin(), output_counts.end());
  node.attributes.assign(arguments.end() - static_cast<std::ptrdiff_t>(n_attributes), arguments.end());
  const Program& program = self->program(mask);
  const Program& all = self->program(recorded);
  Operands operands;
  operands.inputs.resize(counts.size());
  operands.outputs.resize(output_counts.size());
  size_t position = 0;
  GradientNode::each_flat(all.reads_inputs, node.counts, [&](int32_t p, size_t) {
    operands.inputs[static_cast<size_t>(p)].push_back(saved[position++]);
  });
  GradientNode::each_flat(all.reads_outputs, node.output_counts, [&](int32_t p, size_t) {
    operands.outputs[static_cast<size_t>(p)].push_back(saved[position++]);
  });
  variable_list whole(gradients);
  for (size_t k = 0; k < whole.size(); ++k) {
    if (!whole[k].defined() && outputs[k].has_value()) whole[k] = outputs[k]->zeros_like();
  }
  size_t total = 0;
  for (const int64_t count : counts) total += static_cast<size_t>(count);
  variable_list results(total);
  raising([&] {
    node.give(program, whole, &operands, &results, [](size_t, const at::Tensor&) { return true; });
  });
  return results;
}

}  // namespace compiled

inline void GradientNode::compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const {
  if (!self->gradient) raising([&] { not_differentiable(self->plan.where); });
  args.collect(self->plan.key);
  args.collect(static_cast<int64_t>(recorded));
  for (const int32_t count : counts) args.collect(static_cast<int64_t>(count));
  for (const c10::IValue& value : attributes) args.collect(value);
  const size_t inputs = saved.size() - saved_outputs();
  for (size_t k = 0; k < saved.size(); ++k) args.collect(saved[k], k >= inputs);
}

inline variable_list GradientNode::apply_with_saved(const variable_list& gradients,
                                                    torch::dynamo::autograd::SwapSavedVariables& swap) {
  for (SavedVariable& one : saved) swap.before(one);
  compiled::PackedArgs packed;
  packed.pack(self->plan.key);
  packed.pack(static_cast<int64_t>(asked()));
  packed.pack(static_cast<int64_t>(recorded));
  packed.pack(compiled::plain(counts));
  packed.pack(compiled::plain(output_counts));
  std::vector<at::Tensor> tensors;
  const size_t inputs = saved.size() - saved_outputs();
  for (size_t k = 0; k < saved.size(); ++k)
    tensors.push_back(saved[k].unpack(k >= inputs ? pointer() : NodePointer()));
  packed.pack(tensors);
  compiled::Metadata outputs;
  for (uint32_t k = 0; k < num_inputs(); ++k) outputs.emplace_back(input_metadata(k));
  packed.pack(outputs);
  packed.pack(static_cast<int64_t>(attributes.size()));
  std::vector<c10::IValue> arguments = packed.vec();
  arguments.insert(arguments.end(), attributes.begin(), attributes.end());

  std::vector<at::TypePtr> schema;
  for (const c10::IValue& value : arguments) {
    schema.push_back(value.isTensor() ? at::TypePtr(at::TensorType::get()) : value.type());
  }
  const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
  const std::string function = compiler->bind_function(
      swap.get_py_compiler(), name(), &compiled::differentiate, std::move(schema), true, true);
  const c10::IValue edges = compiled::IValuePacker<compiled::Metadata>::pack(
      torch::dynamo::autograd::get_input_metadata(next_edges()));
  variable_list results = compiler->call_function(swap.get_py_compiler(), "apply_functional", function,
                                                  gradients, arguments, edges);
  for (SavedVariable& one : saved) swap.after(one);
  return results;
}

}  // namespace opforge::torch_host
