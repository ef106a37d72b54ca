// context.cpp: the hot path. Everything that can be known before is prepared, so that a run patches the
// caller's pointers in and calls one kernel after another.
#include "session/context.h"

#include <chrono>

#include "session/plugin.h"
#include "threads/pool.h"

namespace opforge::session {

Context::Context(const Model& model, std::shared_ptr<const Plan> plan)
    : model_(model), plan_(std::move(plan)), tensors_(plan_->tensors), runs_(plan_->steps.size()) {
  for (size_t k = 0; k < plan_->places.size(); ++k) {
    const Place& place = plan_->places[k];
    if (place.kind == Place::kInput) input_patches_.push_back({static_cast<uint32_t>(k), place.index});
    if (place.kind == Place::kOutput) output_patches_.push_back({static_cast<uint32_t>(k), place.index});
  }
  for (size_t k = 0; k < runs_.size(); ++k) {
    const Step& step = plan_->steps[k];
    const NodeInfo& info = model_.node(step.node);
    RunContext& run = runs_[k];
    run.state = info.state;
    run.attributes = &info.attributes;
    run.inputs = tensors_.data() + step.first_tensor;
    run.outputs = tensors_.data() + step.first_tensor + step.n_inputs;
    run.n_inputs = step.n_inputs;
    run.n_outputs = step.n_outputs;
    run.threads = model_.threads();
    serve(&run);
  }
}

Status Context::bind(Arena* arena, Error* error) {
  if (arena->user == this && arena_ == arena && generation_ == arena->generation()) return OPFORGE_STATUS_OK;
  if (!arena->reserve(static_cast<size_t>(plan_->arena_bytes))) {
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for the run")
        .found("%lld bytes asked for", static_cast<long long>(plan_->arena_bytes));
  }
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const Place& place = plan_->places[k];
    if (place.kind == Place::kArena) tensors_[k].data = arena->data() + place.offset;
  }
  for (size_t k = 0; k < runs_.size(); ++k) {
    const int64_t scratch = plan_->steps[k].scratch;
    runs_[k].scratch = scratch < 0 ? nullptr : arena->data() + scratch;
  }
  for (const Halo& halo : plan_->halos) {
    if (!halo.every_run) clear_halo(tensors_[halo.tensor]);
  }
  arena->user = this;
  arena_ = arena;
  generation_ = arena->generation();
  return OPFORGE_STATUS_OK;
}

Status Context::run(void* const* inputs, void* const* outputs, Profile* profile, Error* error) {
  for (const Patch& patch : input_patches_) tensors_[patch.tensor].data = inputs[patch.index];
  for (const Patch& patch : output_patches_) tensors_[patch.tensor].data = outputs[patch.index];
  const PoolRun together(runs_.size() > 1 ? model_.threads() : 1, plan_.get());
  const bool timed = profile->on.load(std::memory_order_relaxed);
  for (size_t k = 0; k < runs_.size(); ++k) {
    if (Status status = step(k, timed ? profile : nullptr, error)) return status;
  }
  for (const Copy& copy : plan_->copies) {
    const void* from = copy.from.kind == Place::kFixed    ? copy.from.data
                       : copy.from.kind == Place::kInput  ? inputs[copy.from.index]
                       : copy.from.kind == Place::kOutput ? outputs[copy.from.index]
                                                          : arena_->data() + copy.from.offset;
    const int64_t bytes = storage_bytes(copy.tensor.dtype, copy.tensor.shape, copy.tensor.layout);
    if (bytes > 0) std::memcpy(outputs[copy.output], from, static_cast<size_t>(bytes));
  }
  return OPFORGE_STATUS_OK;
}

Status Context::step(size_t k, Profile* profile, Error* error) {
  const Step& step = plan_->steps[k];
  RunContext& run = runs_[k];
  const NodeInfo& info = model_.node(step.node);
  std::chrono::steady_clock::time_point begin;
  if (profile != nullptr) begin = std::chrono::steady_clock::now();
  for (uint32_t h = step.first_halo; h < step.first_halo + step.halos; ++h) {
    if (plan_->halos[h].every_run) clear_halo(tensors_[plan_->halos[h].tensor]);
  }
  run.host = error;
  const Status status =
      info.kernel != nullptr ? info.kernel->run(run) : plugin_run(*info.plugin, info.attributes, &run, error);
  if (status != OPFORGE_STATUS_OK) {
    if (error->status != status) error->fail(status, "the kernel failed");
    char where[Error::kText];
    model_.describe(step.node, where, sizeof where);
    return error->at("%s", where);
  }
  if (profile != nullptr) {
    const auto time = std::chrono::steady_clock::now() - begin;
    Profile::Row& row = profile->rows[step.node];
    row.runs.fetch_add(1, std::memory_order_relaxed);
    row.nanoseconds.fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(),
                              std::memory_order_relaxed);
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
