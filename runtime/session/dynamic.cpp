// dynamic.cpp: the dynamic mode. Values are shared by all graphs of a program, so a subgraph reads what it
// captures where it lies.
#include "session/dynamic.h"

#include <chrono>
#include <cstdlib>

#include "session/planner.h"
#include "session/plugin.h"
#include "threads/pool.h"

namespace opforge::session {
namespace {

std::shared_ptr<void> new_memory(int64_t bytes) {
  void* data = nullptr;
  if (::posix_memalign(&data, 64, static_cast<size_t>(bytes < 64 ? 64 : bytes)) != 0) return nullptr;
  return std::shared_ptr<void>(data, std::free);
}

}  // namespace

DynamicRun::DynamicRun(const Model& model, Profile* profile, Error* error)
    : model_(model), program_(model.program()), profile_(profile), error_(error), slots_(program_.n_values) {
  for (uint32_t v = 0; v < program_.n_values; ++v) {
    if (program_.is_constant(v)) slots_[v].tensor = model_.constant(v);
  }
}

Status DynamicRun::run(const Tensor* inputs) {
  const PoolRun together(model_.threads(), &model_);
  const format::Graph& main = program_.graphs[0];
  for (uint32_t k = 0; k < main.inputs; ++k) slots_[program_.ids[main.first_input + k]].tensor = inputs[k];
  if (graph(0)) return *error_;
  for (uint32_t k = 0; k < main.outputs; ++k) {
    const auto id = static_cast<uint32_t>(program_.ids[main.first_output + k]);
    if (program_.is_constant(id) && model_.check_constant(id, error_)) return *error_;
  }
  return OPFORGE_STATUS_OK;
}

const Tensor& DynamicRun::output(int32_t k) const {
  const format::Graph& main = program_.graphs[0];
  return slots_[program_.ids[main.first_output + static_cast<uint32_t>(k)]].tensor;
}

Status DynamicRun::graph(uint32_t g) {
  const format::Graph& graph = program_.graphs[g];
  for (uint32_t n = graph.first_node; n < graph.first_node + graph.nodes; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    if (node(n)) return *error_;
    for (uint32_t value : model_.node(n).dead) slots_[value] = Slot();
    if (profile_->on.load(std::memory_order_relaxed)) {
      const auto time = std::chrono::steady_clock::now() - begin;
      profile_->rows[n].runs.fetch_add(1, std::memory_order_relaxed);
      profile_->rows[n].nanoseconds.fetch_add(
          std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(), std::memory_order_relaxed);
    }
  }
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  if (info.control == Control::kLeftOut) return OPFORGE_STATUS_OK;
  for (uint32_t k = 0; k < info.record->inputs; ++k) {
    const int32_t id = info.inputs[k];
    if (id >= 0 && program_.is_constant(static_cast<uint32_t>(id)) &&
        model_.check_constant(static_cast<uint32_t>(id), error_)) {
      return *error_;
    }
  }
  switch (info.control) {
    case Control::kIf:
      return if_node(n);
    case Control::kLoop:
      return loop_node(n);
    default:
      return kernel_node(n);
  }
}

Status DynamicRun::allocate(Slot* slot) {
  const int64_t bytes = storage_bytes(slot->tensor.dtype, slot->tensor.shape, slot->tensor.layout);
  slot->memory = new_memory(bytes);
  if (!slot->memory) {
    return error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for a tensor")
        .found("%lld bytes asked for", static_cast<long long>(bytes));
  }
  slot->tensor.data = slot->memory.get();
  clear_halo(slot->tensor);
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::kernel_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  std::vector<Tensor> inputs(info.record->inputs), outputs(info.record->outputs);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (info.inputs[k] >= 0) inputs[k] = slots_[info.inputs[k]].tensor;
  }
  for (size_t k = 0; k < outputs.size(); ++k) outputs[k] = declared(model_, info.outputs[k]);
  if (info.plugin != nullptr && plugin_decides_shapes(*info.plugin)) {
    std::vector<std::shared_ptr<void>> memory(outputs.size());
    if (plugin_run_dynamic(*info.plugin, model_, n, inputs.data(), outputs.data(), memory.data(), error_))
      return *error_;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (info.outputs[k] >= 0) slots_[info.outputs[k]] = {outputs[k], memory[k]};
    }
    return OPFORGE_STATUS_OK;
  }
  Inferred inferred;
  if (infer_node(model_, n, inputs.data(), outputs.data(), &inferred, error_)) return *error_;
  if (inferred.needs_data) {
    char where[Error::kText];
    model_.describe(n, where, sizeof where);
    return error_->fail(OPFORGE_STATUS_INTERNAL, "a kernel asks for values that it has been given")
        .at("%s", where);
  }
  bool views = true;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const int32_t from = k < 4 ? inferred.context.alias_input[k] : -1;
    if (info.outputs[k] < 0) continue;
    if (from < 0 || from >= inferred.context.n_inputs || info.inputs[from] < 0) {
      views = false;
      continue;
    }
    const Tensor& source = inputs[static_cast<size_t>(from)];
    views =
        views && same_layout(source.layout, outputs[k].layout) && bytes_of(source) == bytes_of(outputs[k]);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (info.outputs[k] < 0) continue;
    Slot& slot = slots_[info.outputs[k]];
    slot.tensor = outputs[k];
    if (views) {
      const Slot& source = slots_[info.inputs[inferred.context.alias_input[k]]];
      slot.tensor.data = source.tensor.data;
      slot.memory = source.memory;
    } else if (allocate(&slot)) {
      return *error_;
    }
    outputs[k] = slot.tensor;
  }
  if (views) return OPFORGE_STATUS_OK;
  std::shared_ptr<void> scratch;
  if (inferred.context.scratch_bytes > 0) {
    scratch = new_memory(inferred.context.scratch_bytes);
    if (!scratch) return error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for scratch");
  }
  if (run_node(model_, n, inputs.data(), outputs.data(), scratch.get(), model_.threads(), error_))
    return *error_;
  for (size_t k = 0; k < outputs.size(); ++k)
    if (info.outputs[k] >= 0)
      slots_[info.outputs[k]].tensor.shape = outputs[k].shape;  // smaller where kBounded
  return OPFORGE_STATUS_OK;
}

bool DynamicRun::scalar(int32_t value, int64_t* number) const {
  const Tensor& tensor = slots_[value].tensor;
  if (!tensor.present() || tensor.data == nullptr || tensor.shape.rank < 0 || tensor.shape.elements() != 1)
    return false;
  if (tensor.dtype == DType::kBool)
    *number = *tensor.as<uint8_t>() != 0;
  else if (tensor.dtype == DType::kI64)
    *number = *tensor.as<int64_t>();
  else
    return false;
  return true;
}

Status DynamicRun::if_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  int64_t condition = 0;
  const int32_t branches[2] = {info.attributes.get_graph("else_branch"),
                               info.attributes.get_graph("then_branch")};
  bool good = info.record->inputs == 1 && info.inputs[0] >= 0 && scalar(info.inputs[0], &condition);
  for (int32_t branch : branches) {
    good = good && branch >= 0 && program_.graphs[branch].outputs == info.record->outputs &&
           program_.graphs[branch].inputs == 0;
  }
  if (!good) return error_->fail(OPFORGE_STATUS_CORRUPT, "an If node is not valid").at("node %u", n);
  const auto chosen = static_cast<uint32_t>(branches[condition != 0]);
  if (graph(chosen)) return *error_;
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    const int32_t from = program_.ids[program_.graphs[chosen].first_output + k];
    if (info.outputs[k] < 0) continue;
    if (program_.is_constant(static_cast<uint32_t>(from)) &&
        model_.check_constant(static_cast<uint32_t>(from), error_)) {
      return *error_;
    }
    if (assign(info.outputs[k], slots_[from])) return *error_;
  }
  return OPFORGE_STATUS_OK;
}

// Gives a value the tensor of another one; a subgraph of a hostile file may disagree about the dtype.
Status DynamicRun::assign(int32_t value, const Slot& slot) {
  const Tensor wanted = declared(model_, value);
  if (slot.tensor.dtype != wanted.dtype || !same_layout(slot.tensor.layout, wanted.layout)) {
    return error_
        ->fail(OPFORGE_STATUS_CORRUPT, "a subgraph's value has another dtype or layout than its node says")
        .at("value %d", value);
  }
  slots_[value] = slot;
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::loop_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const int32_t body = info.attributes.get_graph("body");
  const int64_t inputs = info.record->inputs, outputs = info.record->outputs, carried = inputs - 2;
  const format::Graph* graph_record = body >= 0 ? &program_.graphs[body] : nullptr;
  if (graph_record == nullptr || carried < 0 || graph_record->inputs != inputs ||
      graph_record->outputs != 1 + outputs || outputs < carried) {
    return error_->fail(OPFORGE_STATUS_CORRUPT, "a Loop node is not valid").at("node %u", n);
  }
  int64_t trips = INT64_MAX, keep = 1;
  const bool known = (info.inputs[0] < 0 || scalar(info.inputs[0], &trips)) &&
                     (info.inputs[1] < 0 || scalar(info.inputs[1], &keep));
  if (!known)
    return error_->fail(OPFORGE_STATUS_CORRUPT, "a Loop node has no valid count or condition")
        .at("node %u", n);
  if (declared(model_, program_.ids[graph_record->first_input]).dtype != DType::kI64 ||
      declared(model_, program_.ids[graph_record->first_input + 1]).dtype != DType::kBool) {
    return error_->fail(OPFORGE_STATUS_CORRUPT, "a Loop body's counter or condition has a wrong dtype")
        .at("node %u", n);
  }
  const int32_t* ins = program_.ids + graph_record->first_input;
  const int32_t* outs = program_.ids + graph_record->first_output;
  std::vector<Slot> state;
  for (int64_t k = 0; k < carried; ++k)
    state.push_back(info.inputs[2 + k] < 0 ? Slot() : slots_[info.inputs[2 + k]]);
  std::vector<std::vector<Slot>> scans(static_cast<size_t>(outputs - carried));
  for (int64_t trip = 0; trip < trips && keep != 0; ++trip) {
    if (model_.options().loop_limit != 0 && trip >= model_.options().loop_limit) {
      return error_->fail(OPFORGE_STATUS_UNSUPPORTED, "a Loop runs more often than the session allows")
          .at("node %u", n)
          .wanted("at most %lld iterations", static_cast<long long>(model_.options().loop_limit));
    }
    int64_t counter = trip;
    uint8_t going = 1;
    slots_[ins[0]].tensor = declared(model_, ins[0]);
    slots_[ins[0]].tensor.shape.rank = 0;
    slots_[ins[0]].tensor.data = &counter;
    slots_[ins[0]].memory = slots_[ins[1]].memory = nullptr;
    slots_[ins[1]].tensor = declared(model_, ins[1]);
    slots_[ins[1]].tensor.shape.rank = 0;
    slots_[ins[1]].tensor.data = &going;
    for (int64_t k = 0; k < carried; ++k) {
      if (assign(ins[2 + k], state[static_cast<size_t>(k)])) return *error_;
    }
    if (graph(static_cast<uint32_t>(body))) return *error_;
    if (!scalar(outs[0], &keep))
      return error_->fail(OPFORGE_STATUS_CORRUPT, "a Loop body has no condition").at("node %u", n);
    for (int64_t k = 0; k < outputs; ++k) {
      Slot result = slots_[outs[1 + k]];
      // The counter lives in this frame: what is kept beyond the iteration needs memory of its own.
      if (result.tensor.data == &counter || result.tensor.data == &going) {
        const void* from = result.tensor.data;
        if (allocate(&result)) return *error_;
        std::memcpy(result.tensor.data, from,
                    static_cast<size_t>(storage_bytes(result.tensor.dtype, result.tensor.shape, Layout())));
      }
      if (k < carried)
        state[static_cast<size_t>(k)] = result;
      else
        scans[static_cast<size_t>(k - carried)].push_back(result);
    }
  }
  for (int64_t k = 0; k < outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    if (k < carried) {
      if (assign(info.outputs[k], state[static_cast<size_t>(k)])) return *error_;
      continue;
    }
    Slot& slot = slots_[info.outputs[k]];
    slot = Slot();
    slot.tensor = declared(model_, info.outputs[k]);
    if (scan_output(&scans[static_cast<size_t>(k - carried)], &slot)) return *error_;
  }
  return OPFORGE_STATUS_OK;
}

// Stacks the results of the iterations along a new first axis.
Status DynamicRun::scan_output(std::vector<Slot>* rows, Slot* result) {
  Shape shape;
  if (!rows->empty()) shape = (*rows)[0].tensor.shape;
  if (shape.rank >= kMaxRank || result->tensor.layout.kind != LayoutKind::kPlain ||
      dtype_bits(result->tensor.dtype) % 8 != 0) {
    return error_->fail(OPFORGE_STATUS_UNSUPPORTED,
                        "a scan output has too many dimensions, a layout or a sub-byte dtype");
  }
  for (int k = shape.rank; k > 0; --k) shape.dims[k] = shape.dims[k - 1];
  shape.dims[0] = static_cast<int64_t>(rows->size());
  ++shape.rank;
  result->tensor.shape = shape;
  if (!good_shape(result->tensor.dtype, shape, Layout()) ||
      !model_.affordable(storage_bytes(result->tensor.dtype, shape, Layout()))) {
    return error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "a scan output has an impossible size");
  }
  if (allocate(result)) return *error_;
  auto* to = result->tensor.as<uint8_t>();
  const int64_t bytes =
      rows->empty() ? 0 : storage_bytes(result->tensor.dtype, (*rows)[0].tensor.shape, Layout());
  for (const Slot& row : *rows) {
    if (row.tensor.dtype != result->tensor.dtype || row.tensor.layout.kind != LayoutKind::kPlain ||
        storage_bytes(row.tensor.dtype, row.tensor.shape, Layout()) != bytes) {
      return error_->fail(OPFORGE_STATUS_INVALID_ARGUMENT,
                          "the iterations of a Loop give scan outputs of different shapes");
    }
    if (bytes > 0) std::memcpy(to, row.tensor.data, static_cast<size_t>(bytes));
    to += bytes;
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
