// context.cpp: the hot path. Everything that can be known before is prepared, so that a run patches the
// caller's pointers in and calls one kernel after another.
#include "session/context.h"

#include "session/plugin.h"
#include "threads/claims.h"
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
    prepare(step, tensors_.data() + step.first_tensor, model_.threads(), &runs_[k]);
  }
  for (const Stretch& stretch : plan_->stretches) {
    lanes_.emplace_back(static_cast<size_t>(stretch.lanes));
    for (Lane& lane : lanes_.back()) {
      const auto begin = tensors_.begin() + stretch.first_tensor;
      lane.tensors.assign(begin, begin + stretch.tensors);
      lane.runs.resize(stretch.steps);
      for (uint32_t k = 0; k < stretch.steps; ++k) {
        const Step& step = plan_->steps[stretch.first_step + k];
        prepare(step, lane.tensors.data() + (step.first_tensor - stretch.first_tensor),
                stretch.lanes > 1 ? 1 : model_.threads(), &lane.runs[k]);
      }
    }
  }
}

void Context::prepare(const Step& step, Tensor* tensors, int32_t threads, RunContext* run) const {
  const NodeInfo& info = model_.node(step.node);
  run->state = info.state;
  run->attributes = &info.attributes;
  run->inputs = tensors;
  run->outputs = tensors + step.n_inputs;
  run->n_inputs = step.n_inputs;
  run->n_outputs = step.n_outputs;
  run->threads = threads;
  serve(run);
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
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Stretch& stretch = plan_->stretches[i];
    for (size_t lane = 0; lane < lanes_[i].size(); ++lane) {
      for (uint32_t k = 0; k < stretch.steps; ++k) {
        const int64_t scratch = plan_->steps[stretch.first_step + k].scratch;
        lanes_[i][lane].runs[k].scratch =
            scratch < 0 ? nullptr : arena->data() + scratch + static_cast<int64_t>(lane) * stretch.lane_bytes;
      }
    }
  }
  for (const Halo& halo : plan_->halos) {
    Tensor tensor = tensors_[halo.tensor];
    for (int64_t k = 0; k < halo.copies && !halo.every_run; ++k) {
      clear_halo(tensor);
      tensor.data = tensor.as<uint8_t>() + halo.apart;
    }
  }
  arena->user = this;
  arena_ = arena;
  generation_ = arena->generation();
  return OPFORGE_STATUS_OK;
}

Status Context::run(void* const* inputs, void* const* outputs, Recorder* recorder, Error* error) {
  if (recorder == nullptr) {
    Unwatched nobody;
    return run_all(inputs, outputs, &nobody, error);
  }
  make_room();
  Watch watch(recorder, events_.data(), events_.size());
  return run_all(inputs, outputs, &watch, error);
}

// Where the events of a watched run lie until it ends; made once.
void Context::make_room() {
  events_.resize(runs_.size() + 2);
  for (std::vector<Lane>& lanes : lanes_)
    for (Lane& lane : lanes) lane.events.resize(lane.runs.size());
}

template <class W>
Status Context::run_all(void* const* inputs, void* const* outputs, W* watch, Error* error) {
  for (const Patch& patch : input_patches_) tensors_[patch.tensor].data = inputs[patch.index];
  for (const Patch& patch : output_patches_) tensors_[patch.tensor].data = outputs[patch.index];
  const PoolRun together(runs_.size() > 1 ? model_.threads() : 1, plan_.get());
  size_t stretch = 0;
  for (size_t k = 0; k < runs_.size();) {
    if (stretch < lanes_.size() && plan_->stretches[stretch].first_step == k) {
      if (Status status = run_stretch(stretch, watch, error)) return status;
      k += plan_->stretches[stretch++].steps;
      continue;
    }
    if (Status status = step(plan_->steps[k], &runs_[k], tensors_.data(), 0, true, watch, error))
      return status;
    ++k;
  }
  for (const Copy& copy : plan_->copies) {
    const void* from = copy.from.kind == Place::kFixed    ? copy.from.data
                       : copy.from.kind == Place::kInput  ? inputs[copy.from.index]
                       : copy.from.kind == Place::kOutput ? outputs[copy.from.index]
                                                          : arena_->data() + copy.from.offset;
    const int64_t bytes = storage_bytes(copy.tensor.dtype, copy.tensor.shape, copy.tensor.layout);
    if (bytes > 0) std::memcpy(outputs[copy.output], from, static_cast<size_t>(bytes));
  }
  if (!plan_->copies.empty()) watch->copies_end();
  return OPFORGE_STATUS_OK;
}

template <class W>
Status Context::run_pass(const Stretch& stretch, Lane* lane, int64_t number, int64_t pass, W* watch,
                         Error* error) const {
  for (uint32_t k = 0; k < stretch.tensors; ++k) {
    const Place& place = plan_->places[stretch.first_tensor + k];
    auto* data = tensors_[stretch.first_tensor + k].as<uint8_t>();
    if (data != nullptr) data += pass * place.pass + (place.lane ? number * stretch.lane_bytes : 0);
    lane->tensors[k].data = data;
  }
  for (uint32_t k = 0; k < stretch.steps; ++k) {
    const Step& next = plan_->steps[stretch.first_step + k];
    if (Status status =
            step(next, &lane->runs[k], lane->tensors.data(), stretch.first_tensor, pass == 0, watch, error))
      return status;
  }
  return OPFORGE_STATUS_OK;
}

template <class W>
Status Context::run_stretch(size_t index, W* watch, Error* error) {
  const Stretch& stretch = plan_->stretches[index];
  std::vector<Lane>& lanes = lanes_[index];
  if (stretch.lanes == 1) {
    for (int64_t pass = 0; pass < stretch.passes; ++pass) {
      if (Status status = run_pass(stretch, lanes.data(), 0, pass, watch, error)) return status;
    }
    return OPFORGE_STATUS_OK;
  }
  watch->lanes_begin();
  Claims claims(stretch.passes, stretch.lanes);
  std::atomic<int32_t> failed{0};  // a word: riscv64 exchanges no bytes without a library
  const auto work = [&](int64_t begin, int64_t end) {
    Error mine;
    for (int64_t lane = begin; lane < end; ++lane) {
      Lane& here = lanes[static_cast<size_t>(lane)];
      auto own = watch->lane(here.events.data(), here.events.size());
      for (int64_t first = 0, last = 0; claims.next(lane == 0 ? last : -1, &first, &last);) {
        for (int64_t pass = first; pass < last && failed.load(std::memory_order_relaxed) == 0; ++pass) {
          if (run_pass(stretch, &here, lane, pass, &own, &mine) && !failed.exchange(1)) *error = mine;
        }
      }
    }
  };
  parallel_for(
      stretch.lanes, 1,
      [](void* user, int64_t begin, int64_t end) { (*static_cast<decltype(&work)>(user))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&work)), stretch.lanes,
      reinterpret_cast<uint64_t>(&stretch));
  watch->lanes_end();
  return failed != 0 ? error->status : OPFORGE_STATUS_OK;
}

template <class W>
Status Context::step(const Step& step, RunContext* run, const Tensor* tensors, uint32_t first, bool counts,
                     W* watch, Error* error) const {
  const NodeInfo& info = model_.node(step.node);
  watch->begin(step.node);
  for (uint32_t h = step.first_halo; h < step.first_halo + step.halos; ++h) {
    if (plan_->halos[h].every_run) clear_halo(tensors[plan_->halos[h].tensor - first]);
  }
  run->host = error;
  const Status status =
      info.kernel != nullptr ? info.kernel->run(*run) : plugin_run(*info.plugin, info.attributes, run, error);
  watch->end(step.node, counts);
  if (status != OPFORGE_STATUS_OK) {
    if (error->status != status) error->fail(status, "the kernel failed");
    char where[Error::kText];
    model_.describe(step.node, where, sizeof where);
    return error->at("%s", where);
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
