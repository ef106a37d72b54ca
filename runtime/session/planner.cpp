// planner.cpp: infers all shapes in order and computes at once what depends on shapes only.
#include "session/planner.h"

namespace opforge::session {
namespace {

constexpr int64_t kMaxFolded = 4096;  // elements of a result that is computed while planning

}  // namespace

Status Planner::run(bool* dynamic) {
  if (start()) return *error_;
  const format::Graph& main = program_.graphs[0];
  for (uint32_t n = main.first_node; n < main.first_node + main.nodes; ++n) {
    if (infer(n, dynamic)) return *error_;
    if (*dynamic) return OPFORGE_STATUS_OK;
  }
  lifetimes();
  outputs();
  stretches();
  in_place();
  if (place()) return *error_;
  return check_weights();
}

Status Planner::start() {
  for (uint32_t v = 0; v < program_.n_values; ++v) {
    if (program_.is_constant(v)) tensors_[v] = model_.constant(v);
  }
  const format::Graph& main = program_.graphs[0];
  for (uint32_t k = 0; k < main.inputs; ++k) {
    const int32_t id = program_.ids[main.first_input + k];
    tensors_[id] = declared(model_, id);
    tensors_[id].shape = plan_.inputs[k];
    Place place;
    place.kind = Place::kInput;
    place.index = static_cast<int32_t>(k);
    new_group(id, place);
  }
  return OPFORGE_STATUS_OK;
}

int32_t Planner::new_group(int32_t value, Place place) {
  groups_.emplace_back();
  groups_.back().bytes = bytes_of(tensors_[value]);
  groups_.back().place = place;
  return group_[value] = static_cast<int32_t>(groups_.size()) - 1;
}

Status Planner::infer(uint32_t n, bool* dynamic) {
  const NodeInfo& info = model_.node(n);
  if (info.control == Control::kLeftOut) return OPFORGE_STATUS_OK;
  Pending step;
  step.node = n;
  bool known = true, plain = true;
  for (uint32_t k = 0; k < info.record->inputs; ++k) {
    const int32_t id = info.inputs[k];
    step.inputs.push_back(id < 0 ? Tensor() : tensors_[id]);
    if (id < 0) continue;
    known = known && (tensors_[id].data != nullptr || bytes_of(tensors_[id]) == 0);
  }
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    step.outputs.push_back(declared(model_, info.outputs[k]));
    plain = plain && step.outputs.back().layout.kind == LayoutKind::kPlain;
  }
  Inferred inferred;
  if (infer_node(model_, n, step.inputs.data(), step.outputs.data(), model_.threads(), &inferred, error_))
    return *error_;
  if (inferred.needs_data) {
    *dynamic = true;
    return OPFORGE_STATUS_OK;
  }
  const uint32_t flags = info.kernel != nullptr ? info.kernel->flags : static_cast<uint32_t>(kNotPure);
  int64_t elements = 0;
  for (const Tensor& output : step.outputs) elements += output.present() ? output.shape.elements() : 0;
  if ((known || (flags & kShapeOnly) != 0) && (flags & kNotPure) == 0 && plain && elements <= kMaxFolded) {
    return fold(&step, inferred.context);
  }
  if ((flags & kBounded) != 0) {
    *dynamic = true;
    return OPFORGE_STATUS_OK;
  }
  if (model_.options().reuse && view(info, &step, inferred.context)) return OPFORGE_STATUS_OK;
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    tensors_[info.outputs[k]] = step.outputs[k];
    new_group(info.outputs[k], Place());
  }
  step.scratch = inferred.context.scratch_bytes;
  std::copy(inferred.context.inplace_input, inferred.context.inplace_input + 4, step.in_place);
  pending_.push_back(std::move(step));
  return OPFORGE_STATUS_OK;
}

uint8_t* Planner::constant_memory(int64_t bytes) {
  plan_.constants.emplace_back(new uint8_t[static_cast<size_t>(bytes) + 64]());
  const auto address = (reinterpret_cast<uintptr_t>(plan_.constants.back().get()) + 63) / 64 * 64;
  return reinterpret_cast<uint8_t*>(address);
}

Status Planner::fold(Pending* step, const InferContext& context) {
  const NodeInfo& info = model_.node(step->node);
  for (uint32_t k = 0; k < info.record->inputs; ++k) {
    const int32_t id = info.inputs[k];
    if (id >= 0 && program_.is_constant(static_cast<uint32_t>(id)) &&
        model_.check_constant(static_cast<uint32_t>(id), error_)) {
      return *error_;
    }
  }
  for (Tensor& output : step->outputs) {
    if (output.present()) output.data = constant_memory(bytes_of(output));
  }
  const std::unique_ptr<uint8_t[]> scratch(new uint8_t[static_cast<size_t>(context.scratch_bytes) + 64]);
  const auto address = (reinterpret_cast<uintptr_t>(scratch.get()) + 63) / 64 * 64;
  if (run_node(model_, step->node, step->inputs.data(), step->outputs.data(),
               reinterpret_cast<void*>(address), 1, error_)) {
    return *error_;
  }
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    if (info.outputs[k] >= 0) tensors_[info.outputs[k]] = step->outputs[k];
  }
  return OPFORGE_STATUS_OK;
}

bool Planner::view(const NodeInfo& info, Pending* step, const InferContext& context) {
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    const int32_t from = k < 4 ? context.alias_input[k] : -1;
    if (from < 0 || from >= context.n_inputs || info.inputs[from] < 0) return false;
    const Tensor &input = step->inputs[from], &output = step->outputs[k];
    if (!same_layout(input.layout, output.layout) || bytes_of(input) != bytes_of(output)) return false;
  }
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    const int32_t from = info.inputs[context.alias_input[k]];
    tensors_[info.outputs[k]] = step->outputs[k];
    tensors_[info.outputs[k]].data = tensors_[from].data;  // known values stay known
    group_[info.outputs[k]] = group_[from];
    ++plan_.views;
  }
  return true;
}

Status Planner::check_weights() {
  std::vector<uint32_t> constants;
  uint64_t bytes = 0;
  auto touch = [&](int32_t id) {
    if (id < 0 || !program_.is_constant(static_cast<uint32_t>(id))) return;
    constants.push_back(static_cast<uint32_t>(id));
    bytes += program_.values[id].size;
  };
  for (const Pending& step : pending_) {
    const NodeInfo& info = model_.node(step.node);
    for (uint32_t k = 0; k < info.record->inputs; ++k) touch(info.inputs[k]);
  }
  for (const auto& copy : copied_) touch(copy.first);
  if (bytes > model_.weights_size() / 2) return model_.check_constants(error_);
  for (uint32_t id : constants) {
    if (model_.check_constant(id, error_)) return *error_;
  }
  return OPFORGE_STATUS_OK;
}

Status make_plan(const Model& model, const std::vector<Shape>& inputs, std::unique_ptr<Plan>* plan,
                 bool* dynamic, Error* error) {
  *dynamic = model.needs_dynamic();
  if (*dynamic) return OPFORGE_STATUS_OK;
  auto made = std::make_unique<Plan>();
  made->inputs = inputs;
  if (Planner(model, made.get(), error).run(dynamic)) return *error;
  if (!*dynamic) *plan = std::move(made);
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
