// program.h: a compiled part of a graph inside ONNX Runtime: a .bin whose inputs and outputs have the names
// of the graph's values, run by the runtime on ONNX Runtime's tensors without a copy.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "onnxruntime/dtypes.h"
#include "onnxruntime/graph.h"
#include "opforge/runtime.h"

namespace opforge::onnxruntime_host {

inline Failure runtime_failure() {
  const opforge_error* const error = opforge_last_error();
  return Failure(error->status, error->text);
}

class Program {
 public:
  Program(const std::string& path, int32_t threads) : path_(path) {
    opforge_session_options options{};
    options.size = sizeof options;
    options.threads = threads;
    opforge_session* session = nullptr;
    if (opforge_session_open(path.c_str(), &options, &session) != OPFORGE_STATUS_OK) throw runtime_failure();
    session_.reset(session);
    for (int32_t k = 0; k < opforge_session_input_count(session); ++k)
      inputs_.emplace_back(opforge_session_input(session, k)->name);
    for (int32_t k = 0; k < opforge_session_output_count(session); ++k)
      outputs_.emplace_back(opforge_session_output(session, k)->name);
  }

  const Names& inputs() const { return inputs_; }
  const Names& outputs() const { return outputs_; }
  opforge_session* session() const { return session_.get(); }

  // The nodes of a graph that compute the outputs from the inputs: what a walk from the outputs meets until
  // it comes to inputs and constants. A name of a value keeps its meaning whatever ONNX Runtime has done to
  // the graph, so they compute what the program does. Empty where the graph has lost an output or an input,
  // or where other nodes read what the program keeps to itself: ONNX Runtime makes one of two equal nodes.
  std::set<const GraphNode*> region(const Links& links) const {
    std::set<const GraphNode*> found;
    std::set<std::string> met;
    Names pending = outputs_;
    for (const std::string& output : outputs_) {
      if (links.makers.count(output) == 0) return {};
    }
    while (!pending.empty()) {
      const std::string name = std::move(pending.back());
      pending.pop_back();
      if (std::find(inputs_.begin(), inputs_.end(), name) != inputs_.end()) {
        met.insert(name);
        continue;
      }
      if (links.inputs.count(name) > 0) return {};
      const auto maker = links.makers.find(name);
      if (maker == links.makers.end() || !found.insert(maker->second).second) continue;
      size_t subgraphs = 0;
      check(api().Node_GetNumSubgraphs(maker->second, &subgraphs), path_);
      if (subgraphs > 0) return {};
      for (std::string& input : input_names(maker->second)) pending.push_back(std::move(input));
    }
    for (const GraphNode* node : found) {
      for (const std::string& name : output_names(node)) {
        const bool own = std::find(outputs_.begin(), outputs_.end(), name) == outputs_.end();
        if (own && !name.empty() && !links.within(name, found)) return {};
      }
    }
    return met.size() == inputs_.size() ? found : std::set<const GraphNode*>{};
  }

 private:
  struct Close {
    void operator()(opforge_session* session) const { opforge_session_close(session); }
  };
  std::string path_;
  std::unique_ptr<opforge_session, Close> session_;
  Names inputs_, outputs_;
};

// A program as one node: where its inputs and outputs are in the context.
struct ProgramNode {
  std::shared_ptr<const Program> program;
  std::vector<int32_t> inputs, outputs;
};

class ProgramRun {
 public:
  ProgramRun(const ProgramNode& node, KernelContext* context) : node_(node), context_(context) {}

  void run() {
    const Program& program = *node_.program;
    std::vector<opforge_tensor> inputs, outputs;
    for (size_t k = 0; k < node_.inputs.size(); ++k) inputs.push_back(input(k));
    std::vector<const char*> names;
    for (size_t k = 0; k < node_.outputs.size(); ++k) {
      if (node_.outputs[k] < 0) continue;
      names.push_back(program.outputs()[k].c_str());
      places_.push_back(node_.outputs[k]);
    }
    outputs.resize(names.size());
    opforge_run run{};
    run.size = sizeof run;
    run.inputs = inputs.data();
    run.n_inputs = static_cast<int32_t>(inputs.size());
    run.outputs = outputs.data();
    run.n_outputs = static_cast<int32_t>(outputs.size());
    run.output_names = names.data();
    run.allocate = &allocate;
    run.allocate_user = this;
    if (opforge_session_run(program.session(), &run) != OPFORGE_STATUS_OK) throw runtime_failure();
  }

 private:
  opforge_tensor input(size_t index) {
    const Value* value = nullptr;
    const std::string& where = node_.program->inputs()[index];
    check(api().KernelContext_GetInput(context_, static_cast<size_t>(node_.inputs[index]), &value), where);
    if (value == nullptr)
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, where, "missing input", "a tensor", "nothing");
    TensorInfo* made = nullptr;
    check(api().GetTensorTypeAndShape(value, &made), where);
    const std::unique_ptr<TensorInfo, void (*)(TensorInfo*)> info(made, api().ReleaseTensorTypeAndShapeInfo);
    opforge_tensor view{};
    view.device = {OPFORGE_DEVICE_CPU, 0};
    size_t rank = 0;
    int32_t type = 0;
    check(api().GetDimensionsCount(made, &rank), where);
    check(api().GetTensorElementType(made, &type), where);
    dims_.push_back(std::make_unique<int64_t[]>(rank + 1));
    check(api().GetDimensions(made, dims_.back().get(), rank), where);
    view.shape = dims_.back().get();
    view.ndim = static_cast<int32_t>(rank);
    view.dtype = dtype_of(type);
    check(api().GetTensorMutableData(value, &view.data), where);
    return view;
  }

  static void* allocate(void* user, int32_t index, int32_t, const int64_t* shape, int32_t rank, size_t) {
    auto& self = *static_cast<ProgramRun*>(user);
    Value* value = nullptr;
    void* data = nullptr;
    const auto place = static_cast<size_t>(self.places_[static_cast<size_t>(index)]);
    if (!good(
            api().KernelContext_GetOutput(self.context_, place, shape, static_cast<size_t>(rank), &value)) ||
        value == nullptr || !good(api().GetTensorMutableData(value, &data)))
      return nullptr;
    static char nothing[64];
    return data != nullptr ? data : nothing;  // of an empty tensor
  }

  const ProgramNode& node_;
  KernelContext* context_;
  std::vector<int32_t> places_;
  std::vector<std::unique_ptr<int64_t[]>> dims_;
};

}  // namespace opforge::onnxruntime_host
