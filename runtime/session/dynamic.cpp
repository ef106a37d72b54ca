// dynamic.cpp: the dynamic mode: schedule, kernels, memory. What a node's infer gave is kept while the shapes
// of its inputs are the same, so that the iterations of a loop do not infer again.
#include "session/dynamic.h"

#include <algorithm>

#include "session/planner.h"
#include "session/plugin.h"
#include "threads/pool.h"

namespace opforge::session {
namespace {

constexpr size_t kEvents = 1024;  // of a watched run before they are handed over

}  // namespace

DynamicRun::DynamicRun(const Model& model)
    : model_(model),
      program_(model.program()),
      texts_(program_, &pool_, model.options().memory_limit),
      slots_(program_.n_values),
      memory_(program_.counts.nodes) {
  for (uint32_t v = 0; v < program_.n_values; ++v) {
    if (program_.is_constant(v)) slots_[v].tensor = model_.constant(v);
  }
}

Status DynamicRun::run(Recorder* recorder, Error* error) {
  if (recorder == nullptr) return run_all(error);
  events_.resize(kEvents);
  Watch watch(recorder, events_.data(), events_.size());
  watch_ = &watch;
  const Status status = run_all(error);
  watch_ = nullptr;
  return status;
}

Status DynamicRun::run_all(Error* error) {
  error_ = error;
  pool_.restart();
  const PoolRun together(model_.threads(), &model_);
  const format::Graph& main = program_.graphs[0];
  input_shapes_.resize(main.inputs);
  for (uint32_t k = 0; k < main.inputs; ++k) input_shapes_[k] = input(k).tensor.shape;
  if (graph(0)) return *error_;
  for (uint32_t k = 0; k < main.outputs; ++k) {
    const auto id = static_cast<uint32_t>(program_.ids[main.first_output + k]);
    if (program_.is_constant(id) && model_.check_constant(id, error_)) return *error_;
  }
  return OPFORGE_STATUS_OK;
}

void DynamicRun::reset() {
  for (uint32_t v = 0; v < program_.n_values; ++v) {
    if (!program_.is_constant(v)) slots_[v] = Slot();
  }
  texts_.clear();
}

Status DynamicRun::graph(uint32_t g) {
  const format::Graph& graph = program_.graphs[g];
  for (uint32_t n = graph.first_node; n < graph.first_node + graph.nodes; ++n) {
    if (watch_ != nullptr) {
      const uint64_t begin = watch_->open_at(n);
      const Status status = node(n);
      watch_->close_at(n, begin);
      if (status) return *error_;
    } else if (node(n)) {
      return *error_;
    }
    for (uint32_t value : model_.node(n).dead) slots_[value] = Slot();
  }
  return OPFORGE_STATUS_OK;
}

Error& DynamicRun::fail(uint32_t n, Status status, const char* what) const {
  char where[Error::kText];
  model_.describe(n, where, sizeof where);
  return error_->fail(status, "%s", what).at("%s", where);
}

Status DynamicRun::node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  if (info.control == Control::kLeftOut) return OPFORGE_STATUS_OK;
  Memory& memory = memory_[n];
  if (!memory.ready) {
    for (uint32_t k = 0; k < info.record->inputs; ++k) {
      const int32_t id = info.inputs[k];
      if (id >= 0 && program_.is_constant(static_cast<uint32_t>(id)) &&
          model_.check_constant(static_cast<uint32_t>(id), error_)) {
        return *error_;
      }
    }
    memory.inputs.resize(info.record->inputs);
    memory.outputs.resize(info.record->outputs);
    memory.ready = true;
  }
  return info.control == Control::kNone ? kernel_node(n) : control(n);
}

Status DynamicRun::control(uint32_t n) {
  switch (model_.node(n).control) {
    case Control::kIf:
      return if_node(n);
    case Control::kLoop:
      return loop_node(n);
    default:
      return value_node(n);
  }
}

Status DynamicRun::allocate_bytes(int64_t bytes, BlockRef* memory) {
  const bool affordable = model_.affordable(pool_.live_bytes() + bytes);
  if (affordable) *memory = pool_.get(bytes);
  if (affordable && *memory) return OPFORGE_STATUS_OK;
  if (affordable) {
    error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for a tensor");
  } else {
    error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "the values of a run take more memory than the session allows")
        .wanted("at most %lld bytes (memory_limit)", static_cast<long long>(model_.options().memory_limit));
  }
  return error_->found("%lld bytes asked for, %lld in use", static_cast<long long>(bytes),
                       static_cast<long long>(pool_.live_bytes()));
}

Status DynamicRun::allocate(Slot* slot) {
  if (allocate_bytes(bytes_of(slot->tensor), &slot->memory)) return *error_;
  slot->tensor.data = slot->memory.data();
  clear_halo(slot->tensor);
  return OPFORGE_STATUS_OK;
}

bool DynamicRun::dies(uint32_t n, int32_t value) const {
  const std::vector<uint32_t>& dead = model_.node(n).dead;
  return std::find(dead.begin(), dead.end(), static_cast<uint32_t>(value)) != dead.end();
}

Slot DynamicRun::take(uint32_t n, int32_t value) {
  return dies(n, value) ? std::move(slots_[value]) : slots_[value];
}

// An infer that does not ask for data holds for these shapes; one that asks is done anew each time.
Status DynamicRun::infer(uint32_t n, Memory* memory) {
  const NodeInfo& info = model_.node(n);
  std::vector<Tensor>& inputs = memory->inputs;
  for (size_t k = 0; k < memory->outputs.size(); ++k) memory->outputs[k] = declared(model_, info.outputs[k]);
  memory->holds = false;
  if (!memory->needs_data) {
    std::vector<Tensor> shapes = inputs;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const int32_t id = info.inputs[k];
      if (id >= 0 && !program_.is_constant(static_cast<uint32_t>(id))) shapes[k].data = nullptr;
    }
    if (infer_node(model_, n, shapes.data(), memory->outputs.data(), model_.threads(), &memory->inferred,
                   error_, &texts_))
      return *error_;
    memory->needs_data = memory->inferred.needs_data;
    memory->holds = !memory->needs_data;
  }
  if (memory->needs_data) {
    for (size_t k = 0; k < memory->outputs.size(); ++k)
      memory->outputs[k] = declared(model_, info.outputs[k]);
    if (infer_node(model_, n, inputs.data(), memory->outputs.data(), model_.threads(), &memory->inferred,
                   error_, &texts_))
      return *error_;
    if (memory->inferred.needs_data)
      return fail(n, OPFORGE_STATUS_INTERNAL, "a kernel asks for values that it has been given");
  }
  memory->shapes.resize(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) memory->shapes[k] = inputs[k].shape;
  memory->views = views(info, *memory);
  return OPFORGE_STATUS_OK;
}

// A node all of whose outputs are views of inputs need not run.
bool DynamicRun::views(const NodeInfo& info, const Memory& memory) const {
  bool views = true;
  for (size_t k = 0; k < memory.outputs.size(); ++k) {
    if (info.outputs[k] < 0) continue;
    const int32_t from = k < 4 ? memory.inferred.context.alias_input[k] : -1;
    if (from < 0 || from >= memory.inferred.context.n_inputs || info.inputs[from] < 0) return false;
    const Tensor &source = memory.inputs[static_cast<size_t>(from)], &output = memory.outputs[k];
    views = views && same_layout(source.layout, output.layout) && bytes_of(source) == bytes_of(output);
  }
  return views;
}

// Whether output k may be written over an input: its kernel allows it, and nobody else has that memory.
bool DynamicRun::take_over(uint32_t n, size_t k, const Memory& memory, Slot* slot) {
  const int32_t from = k < 4 ? memory.inferred.context.inplace_input[k] : -1;
  const NodeInfo& info = model_.node(n);
  if (from < 0 || from >= memory.inferred.context.n_inputs || info.inputs[from] < 0) return false;
  const int32_t id = info.inputs[from];
  Slot& source = slots_[id];
  const Tensor& input = memory.inputs[static_cast<size_t>(from)];
  if (!source.memory.alone() || !dies(n, id) || has_halo(slot->tensor.layout) ||
      !same_layout(input.layout, slot->tensor.layout) || bytes_of(input) != bytes_of(slot->tensor) ||
      std::count(info.inputs, info.inputs + info.record->inputs, id) != 1) {
    return false;
  }
  slot->tensor.data = input.data;
  slot->memory = std::move(source.memory);
  return true;
}

Status DynamicRun::kernel_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  Memory& memory = memory_[n];
  std::vector<Tensor>&inputs = memory.inputs, &outputs = memory.outputs;
  bool same = memory.holds;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (info.inputs[k] < 0) continue;
    inputs[k] = slots_[info.inputs[k]].tensor;
    same = same && same_shape(inputs[k].shape, memory.shapes[k]);
  }
  if (info.plugin != nullptr && plugin_decides_shapes(*info.plugin)) return plugin_node(n, &memory);
  if (!same && infer(n, &memory)) return *error_;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (info.outputs[k] < 0) continue;
    Slot& slot = slots_[info.outputs[k]];
    slot.tensor = outputs[k];
    if (memory.views) {
      const Slot& source = slots_[info.inputs[memory.inferred.context.alias_input[k]]];
      slot.tensor.data = source.tensor.data;
      slot.memory = source.memory;
    } else if (!take_over(n, k, memory, &slot) && allocate(&slot)) {
      return *error_;
    }
    outputs[k].data = slot.tensor.data;
  }
  if (memory.views) return OPFORGE_STATUS_OK;
  BlockRef scratch;
  const int64_t bytes = memory.inferred.context.scratch_bytes;
  if (bytes > 0 && allocate_bytes(bytes, &scratch)) return *error_;
  if (run_node(model_, n, inputs.data(), outputs.data(), scratch ? scratch.data() : nullptr, model_.threads(),
               error_, &texts_))
    return *error_;
  if (info.kernel == nullptr || (info.kernel->flags & kBounded) == 0) return OPFORGE_STATUS_OK;
  memory.holds = false;  // the kernel has made its outputs smaller than infer said
  for (size_t k = 0; k < outputs.size(); ++k)
    if (info.outputs[k] >= 0) slots_[info.outputs[k]].tensor.shape = outputs[k].shape;
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::plugin_node(uint32_t n, Memory* memory) {
  const NodeInfo& info = model_.node(n);
  std::vector<Tensor>& outputs = memory->outputs;
  for (size_t k = 0; k < outputs.size(); ++k) outputs[k] = declared(model_, info.outputs[k]);
  std::vector<std::shared_ptr<void>> blocks(outputs.size());
  if (plugin_run_dynamic(*info.plugin, model_, n, memory->inputs.data(), outputs.data(), blocks.data(),
                         error_))
    return *error_;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (info.outputs[k] < 0) continue;
    Slot& slot = slots_[info.outputs[k]];
    slot = Slot();
    slot.tensor = outputs[k];
    slot.memory = pool_.wrap(std::move(blocks[k]));
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
