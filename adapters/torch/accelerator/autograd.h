// autograd.h: the autograd kernel and the node that executes an operator's gradient program.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerator/execute.h"
#include "accelerator/kernel.h"

namespace opforge::torch_host {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// PyTorch keeps nodes in std::shared_ptr or, in newer versions, in its own pointer.
using NodePointer = decltype(Edge::function);

template <class T>
auto make_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) {
    // Found by its argument where it exists.
    return std::shared_ptr<T>(new T, [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

[[noreturn]] inline void not_differentiable(const std::string& where) {
  throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "the operator is not differentiable", "a gradient program",
                "none is declared", "declare the operator with gradient=, or detach the input");
}

struct GradientNode : Node {
  Operator* self = nullptr;
  std::vector<c10::IValue> attributes;
  Counts counts, output_counts;
  std::vector<SavedVariable> saved;  // as the program of `recorded` reads them: inputs, then outputs
  uint64_t recorded = 0;             // the inputs whose gradients were possible in the forward call

  std::string name() const override { return std::string(self->plan.table->name) + "Backward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (SavedVariable& one : saved) one.reset_data();
  }

  void save(const Tensors& inputs, const Tensors& outputs) {
    const Program& program = self->program(recorded);
    saved.reserve(program.reads_inputs.size() + program.reads_outputs.size());
    each_flat(program.reads_inputs, counts,
              [&](int32_t, size_t flat) { saved.emplace_back(inputs[flat], false); });
    each_flat(program.reads_outputs, output_counts,
              [&](int32_t, size_t flat) { saved.emplace_back(outputs[flat], true); });
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    variable_list results(num_outputs());
    raising([&] { differentiate(gradients, &results); });
    return results;
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  variable_list apply_with_saved(const variable_list& gradients,
                                 torch::dynamo::autograd::SwapSavedVariables& swap) override;

  // Calls f(parameter, flat index) for the tensors of some parameters.
  template <class F>
  static void each_flat(const std::vector<int32_t>& parameters, const Counts& counts, F f) {
    size_t flat = 0;
    size_t next = 0;
    for (size_t p = 0; p < counts.size() && next < parameters.size(); ++p) {
      const bool read = parameters[next] == static_cast<int32_t>(p);
      for (int32_t k = 0; read && k < counts[p]; ++k)
        f(static_cast<int32_t>(p), flat + static_cast<size_t>(k));
      flat += static_cast<size_t>(counts[p]);
      next += read ? 1 : 0;
    }
  }

  // How many of the saved tensors, the last ones, are outputs.
  size_t saved_outputs() const {
    size_t total = 0;
    if (self->gradient)
      each_flat(self->program(recorded).reads_outputs, output_counts, [&](int32_t, size_t) { ++total; });
    return total;
  }

  // The parameters whose gradients are asked for now.
  uint64_t asked() const {
    uint64_t mask = 0;
    size_t flat = 0;
    for (size_t p = 0; p < counts.size(); ++p) {
      for (int32_t k = 0; k < counts[p]; ++k, ++flat) {
        if (task_should_compute_output(flat)) mask |= uint64_t{1} << p;
      }
    }
    return mask & recorded;
  }

  void differentiate(variable_list& gradients, variable_list* results) {
    if (!self->gradient) not_differentiable(self->plan.where);
    bool any = false;
    for (const at::Tensor& gradient : gradients) any = any || gradient.defined();
    const uint64_t mask = asked();
    if (!any || mask == 0) return;
    const Program& program = self->program(mask);
    Operands operands;
    unpack(program, &operands);
    for (size_t k = 0; k < gradients.size(); ++k) {
      if (!gradients[k].defined()) gradients[k] = zeros(k);
    }
    give(program, gradients, &operands, results, [this](size_t flat, const at::Tensor& gradient) {
      const Edge& edge = next_edge(flat);
      return !edge.is_valid() || edge.function->input_metadata(edge.input_nr).is_same_shape(gradient);
    });
  }

  // A gradient that did not come counts as zeros, but only one that is read is made.
  at::Tensor zeros(size_t output) const { return input_metadata(output).zeros_like(); }

  void unpack(const Program& program, Operands* operands) {
    operands->inputs.resize(counts.size());
    operands->outputs.resize(output_counts.size());
    const Program& all = self->program(recorded);
    size_t position = 0;
    const auto read = [](const std::vector<int32_t>& list, int32_t parameter) {
      return std::binary_search(list.begin(), list.end(), parameter);
    };
    each_flat(all.reads_inputs, counts, [&](int32_t p, size_t) {
      if (read(program.reads_inputs, p))
        operands->inputs[static_cast<size_t>(p)].push_back(saved[position].unpack());
      ++position;
    });
    each_flat(all.reads_outputs, output_counts, [&](int32_t p, size_t) {
      if (read(program.reads_outputs, p)) {
        operands->outputs[static_cast<size_t>(p)].push_back(saved[position].unpack(pointer()));
      }
      ++position;
    });
  }

  // Runs the program and lays out its results; `fits(flat, gradient)` says whether a shape is its input's.
  template <class Fits>
  void give(const Program& program, const variable_list& gradients, Operands* operands,
            variable_list* results, Fits fits) const {
    operands->gradients.resize(output_counts.size());
    size_t flat = 0;
    for (size_t o = 0; o < output_counts.size(); ++o) {
      for (int32_t k = 0; k < output_counts[o]; ++k) operands->gradients[o].push_back(gradients[flat++]);
    }
    run_program(program, attributes, operands);
    flat = 0;
    for (size_t p = 0; p < counts.size(); ++p) {
      const Group& group = operands->of(program.results[p]);
      const bool whole = group.size() == static_cast<size_t>(counts[p]);
      for (int32_t k = 0; k < counts[p]; ++k, ++flat) {
        if (!whole) continue;
        const at::Tensor& gradient = group[static_cast<size_t>(k)];
        if (C10_UNLIKELY(gradient.defined() && !fits(flat, gradient))) {
          throw failure(OPFORGE_STATUS_INVALID_ARGUMENT,
                        self->plan.where + ", gradient of " + self->plan.signature.inputs[p].name,
                        "the gradient program gives a wrong shape", "the input's shape",
                        c10::str(gradient.sym_sizes()), "correct gradient= of the operator");
        }
        (*results)[flat] = gradient;
      }
    }
  }

  NodePointer pointer() { return pointer_of(static_cast<Node*>(this)); }

  template <class N>
  static NodePointer pointer_of(N* node) {
    if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) {
      return node->shared_from_this();
    } else {
      return node->getptr();
    }
  }
};

struct AutogradKernel final : c10::OperatorKernel {
  explicit AutogradKernel(Operator* one) : self(one) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const Plan& plan = self->plan;
    const size_t n_inputs = plan.signature.inputs.size();
    const size_t base = stack->size() - n_inputs - plan.signature.attributes.size();
    Tensors inputs;
    Counts counts;
    collect_inputs(plan, *stack, base, &inputs, &counts);
    bool recording = false;
    for (const at::Tensor& tensor : inputs) {
      recording = recording || tensor.requires_grad();
      if (C10_UNLIKELY(tensor._fw_grad(0).defined())) {
        raising([&] {
          throw failure(OPFORGE_STATUS_UNSUPPORTED, plan.where,
                        "forward-mode differentiation (jvp) is not implemented", "", "",
                        "use reverse mode: torch.func.grad, vjp, jacrev");
        });
      }
    }
    recording = recording && at::GradMode::is_enabled();
    if (!recording) {
      below(handle, keys, stack, inputs, counts, base, nullptr, nullptr);
      return;
    }

    auto node = make_node<GradientNode>();
    node->self = self;
    node->counts = counts;
    torch::autograd::edge_list edges;
    edges.reserve(inputs.size());
    size_t flat = 0;
    for (size_t p = 0; p < counts.size(); ++p) {
      for (int32_t k = 0; k < counts[p]; ++k, ++flat) {
        const at::Tensor& tensor = inputs[flat];
        if (tensor.requires_grad()) node->recorded |= uint64_t{1} << p;
        edges.push_back(tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge());
      }
    }
    node->attributes.assign(stack->begin() + static_cast<std::ptrdiff_t>(base + n_inputs), stack->end());
    node->set_next_edges(std::move(edges));

    const Tensors kept = inputs;  // densified ones replace `inputs`, but what is saved is what came
    Tensors outputs;
    below(handle, keys, stack, inputs, counts, base, &outputs, &node->output_counts);
    for (const at::Tensor& output : outputs) {
      if (torch::autograd::isDifferentiableType(output.scalar_type())) {
        torch::autograd::set_history(output, node);
      } else {
        node->add_input_metadata(Node::undefined_input());
      }
    }
    if (self->gradient) raising([&] { node->save(kept, outputs); });
  }

 private:
  // Computes the operator below autograd: our kernel at once where it is next, else by the dispatcher.
  // The results stay on the stack; copies of them go to `outputs` where that is asked for.
  void below(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack,
             Tensors& inputs, const Counts& counts, size_t base, Tensors* outputs, Counts* output_counts) {
    const Plan& plan = self->plan;
    const at::AutoDispatchBelowADInplaceOrView guard;
    const c10::DispatchKeySet after = keys & c10::after_autograd_keyset;
    Tensors own_outputs;
    Counts own_counts;
    Tensors& results = outputs != nullptr ? *outputs : own_outputs;
    Counts& result_counts = output_counts != nullptr ? *output_counts : own_counts;
    if (is_device((after - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView)).highestPriorityTypeId())) {
      raising([&] {
        Attributes attributes;
        read_attributes(plan, stack->data() + base + plan.signature.inputs.size(), &attributes);
        run_kernel(plan, inputs, counts, attributes, nullptr, &results, &result_counts);
      });
      stack->resize(base);
      Tensors pushed = results;
      push_outputs(plan, outputs != nullptr ? pushed : results, result_counts, stack);
      return;
    }
    handle.redispatchBoxed(after, stack);
    if (outputs == nullptr) return;
    for (size_t o = 0; o < plan.signature.outputs.size(); ++o) {
      const c10::IValue& value = (*stack)[base + o];
      const size_t before = outputs->size();
      if (value.isTensor()) {
        outputs->push_back(value.toTensor());
      } else if (!value.isNone()) {
        for (const at::Tensor& one : value.toTensorVector()) outputs->push_back(one);
      }
      output_counts->push_back(static_cast<int32_t>(outputs->size() - before));
    }
  }

  Operator* self;
};

}  // namespace opforge::torch_host
