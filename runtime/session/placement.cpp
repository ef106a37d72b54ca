// placement.cpp: lifetimes, in-place results, places in the arena, and the steps with their tensors.
#include "session/planner.h"

namespace opforge::session {

void Planner::lifetimes() {
  for (size_t s = 0; s < pending_.size(); ++s) {
    const NodeInfo& info = model_.node(pending_[s].node);
    auto touch = [&](int32_t id) {
      if (id < 0 || group_[id] < 0) return;
      Group& group = groups_[group_[id]];
      group.first = std::min(group.first, static_cast<int32_t>(s));
      group.last = std::max(group.last, static_cast<int32_t>(s));
    };
    for (uint32_t k = 0; k < info.record->inputs; ++k) touch(info.inputs[k]);
    for (uint32_t k = 0; k < info.record->outputs; ++k) touch(info.outputs[k]);
  }
}

void Planner::outputs() {
  const format::Graph& main = program_.graphs[0];
  for (uint32_t k = 0; k < main.outputs; ++k) {
    const int32_t id = program_.ids[main.first_output + k];
    Tensor tensor = tensors_[id];
    plan_.outputs.push_back(tensor);
    plan_.outputs.back().data = nullptr;
    const int32_t g = group_[id];
    if (g >= 0 && tensors_[id].data == nullptr && groups_[g].place.kind == Place::kNone &&
        groups_[g].bytes == bytes_of(tensor)) {
      groups_[g].place.kind = Place::kOutput;
      groups_[g].place.index = static_cast<int32_t>(k);
      continue;
    }
    if (g >= 0 && groups_[g].place.kind == Place::kNone)
      groups_[g].last = static_cast<int32_t>(pending_.size());
    copied_.push_back({id, static_cast<int32_t>(k)});
  }
}

void Planner::in_place() {
  if (!model_.options().reuse) return;
  joined_.assign(groups_.size(), -1);
  into_.assign(groups_.size(), -1);
  for (size_t s = 0; s < pending_.size(); ++s) {
    const Pending& step = pending_[s];
    const NodeInfo& info = model_.node(step.node);
    for (uint32_t k = 0; k < info.record->outputs && k < 4; ++k) {
      const int32_t from = step.in_place[k];
      if (info.outputs[k] < 0 || from < 0 || from >= static_cast<int32_t>(step.inputs.size())) continue;
      if (info.inputs[from] < 0) continue;
      const int32_t a = group_of(info.inputs[from]), b = group_of(info.outputs[k]);
      if (a < 0 || b < 0 || a == b || step.inputs[from].data != nullptr) continue;
      if (groups_[a].place.kind != Place::kNone || groups_[a].last != static_cast<int32_t>(s)) continue;
      // What other passes still read stays, and images of other sizes would lie at other places.
      if (step.stretch >= 0 &&
          (!step.sliced[static_cast<size_t>(from)] || groups_[a].bytes != groups_[b].bytes ||
           groups_[a].first < slices_[static_cast<size_t>(step.stretch)].first))
        continue;
      const bool external = groups_[b].place.kind != Place::kNone;
      if (external ? groups_[a].bytes != groups_[b].bytes : groups_[a].bytes < groups_[b].bytes) continue;
      if (!same_layout(step.inputs[from].layout, step.outputs[k].layout)) continue;
      if (has_halo(step.outputs[k].layout) && !same_shape(step.inputs[from].shape, step.outputs[k].shape))
        continue;
      if (reads_of(info, a) != 1 || joined_[a] == static_cast<int32_t>(s)) continue;
      joined_[a] = static_cast<int32_t>(s);
      groups_[a].last = groups_[b].last;
      groups_[a].place = groups_[b].place;
      groups_[b].absorbed = true;
      into_[b] = a;
      ++plan_.in_place;
    }
  }
}

int32_t Planner::group_of(int32_t value) const {
  int32_t g = group_[value];
  while (g >= 0 && g < static_cast<int32_t>(into_.size()) && into_[g] >= 0) g = into_[g];
  return g;
}

int32_t Planner::reads_of(const NodeInfo& info, int32_t g) const {
  int32_t reads = 0;
  for (uint32_t k = 0; k < info.record->inputs; ++k)
    reads += info.inputs[k] >= 0 && group_of(info.inputs[k]) == g;
  return reads;
}

Status Planner::overlap(int32_t a, int32_t b) {
  return error_->fail(OPFORGE_STATUS_INTERNAL, "the memory plan has an overlap")
      .found("buffers %d and %d", a, b);
}

Status Planner::place() {
  if (place_lanes()) return *error_;
  std::vector<Buffer> buffers;
  std::vector<int32_t> owner(groups_.size(), -1);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].absorbed || groups_[g].place.kind != Place::kNone || groups_[g].last < 0) continue;
    if (groups_[g].lane >= 0) continue;
    owner[g] = static_cast<int32_t>(buffers.size());
    buffers.push_back({groups_[g].bytes, groups_[g].first, groups_[g].last, 0});
  }
  const size_t values = buffers.size();
  for (size_t s = 0; s < pending_.size(); ++s) {
    if (pending_[s].scratch > 0 && pending_[s].stretch < 0)
      buffers.push_back({pending_[s].scratch, static_cast<int32_t>(s), static_cast<int32_t>(s), 0});
  }
  const size_t lanes = buffers.size();
  for (const Slices& s : slices_) buffers.push_back({s.lanes * s.lane_bytes, s.first, s.last, 0});
  const auto n = static_cast<int32_t>(buffers.size());
  std::vector<int32_t> order(2 * buffers.size() + 1), active(buffers.size() + 1);
  if (!stored(&buffers, owner, values, order.data(), active.data())) {
    plan_.arena_bytes = place_buffers(buffers.data(), n, order.data(), model_.options().reuse);
  }
  plan_.live_bytes = live_bytes(buffers.data(), n, order.data());
  int32_t a = 0, b = 0;
  if (!placement_good(buffers.data(), n, plan_.arena_bytes, order.data(), active.data(), &a, &b))
    return overlap(a, b);
  if (plan_.arena_bytes > static_cast<int64_t>(format::kMaxBytes))
    return error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "the run needs more memory than there can be");
  if (!model_.affordable(plan_.arena_bytes)) return model_.too_dear(plan_.arena_bytes, error_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (owner[g] < 0) continue;
    groups_[g].place.kind = Place::kArena;
    groups_[g].place.offset = buffers[owner[g]].offset;
  }
  for (size_t k = 0; k < slices_.size(); ++k) slices_[k].offset = buffers[lanes + k].offset;
  size_t scratch = values;
  for (Pending& step : pending_) {
    if (step.stretch >= 0 && step.scratch > 0)
      step.scratch_offset += slices_[static_cast<size_t>(step.stretch)].offset;
    else if (step.scratch > 0)
      step.scratch_offset = buffers[scratch++].offset;
  }
  for (Group& group : groups_) {
    if (group.lane >= 0) group.place.offset += slices_[static_cast<size_t>(group.lane)].offset;
  }
  describe(buffers, owner);
  emit(buffers);
  return OPFORGE_STATUS_OK;
}

bool Planner::stored(std::vector<Buffer>* buffers, const std::vector<int32_t>& owner, size_t values,
                     int32_t* order, int32_t* active) {
  if (program_.n_plan == 0 || !model_.options().reuse || !slices_.empty()) return false;
  std::vector<int64_t> offsets(buffers->size(), -1);
  for (uint32_t k = 0; k < program_.n_plan; ++k) {
    const format::PlanEntry& entry = program_.plan[k];
    size_t at = values;
    if (entry.kind == 0) {
      const int32_t g = group_of(static_cast<int32_t>(entry.id));
      if (g < 0 || owner[g] < 0) return false;
      at = static_cast<size_t>(owner[g]);
    } else {
      for (const Pending& step : pending_) {
        if (step.node == entry.id) break;
        at += step.scratch > 0;
      }
      if (at >= buffers->size()) return false;
    }
    const auto offset = static_cast<int64_t>(entry.offset);
    if (offsets[at] >= 0 && offsets[at] != offset) return false;
    offsets[at] = offset;
  }
  std::vector<Buffer> placed = *buffers;
  for (size_t k = 0; k < placed.size(); ++k) {
    if (offsets[k] < 0) return false;
    placed[k].offset = offsets[k];
  }
  const auto arena = static_cast<int64_t>(program_.plan_bytes);
  int32_t a = 0, b = 0;
  if (!placement_good(placed.data(), static_cast<int32_t>(placed.size()), arena, order, active, &a, &b))
    return false;
  *buffers = std::move(placed);
  plan_.arena_bytes = arena;
  return true;
}

Place Planner::place_of(int32_t value, const Tensor& tensor) const {
  Place place;
  if (value < 0) return place;
  if (tensor.data != nullptr) {
    place.kind = Place::kFixed;
    place.data = tensor.data;
    return place;
  }
  const int32_t g = group_of(value);
  return g < 0 ? place : groups_[g].place;
}

void Planner::emit(const std::vector<Buffer>& buffers) {
  const bool storable = slices_.empty();  // how many lanes there are is a matter of the session
  for (size_t s = 0; s < pending_.size(); ++s) {
    const Pending& step = pending_[s];
    const NodeInfo& info = model_.node(step.node);
    Step out{};
    out.node = step.node;
    out.first_tensor = static_cast<uint32_t>(plan_.tensors.size());
    out.n_inputs = static_cast<int32_t>(step.inputs.size());
    out.n_outputs = static_cast<int32_t>(step.outputs.size());
    out.scratch = step.scratch_offset;
    if (step.scratch > 0 && storable) {
      plan_.entries.push_back(
          {1, step.node, static_cast<uint64_t>(out.scratch), static_cast<uint64_t>(step.scratch)});
    }
    for (size_t k = 0; k < step.inputs.size(); ++k)
      add(info.inputs[k], step.inputs[k], step.stretch >= 0 && step.sliced[k]);
    out.first_halo = static_cast<uint32_t>(plan_.halos.size());
    for (size_t k = 0; k < step.outputs.size(); ++k) {
      add(info.outputs[k], step.outputs[k], step.stretch >= 0);
      const Place& place = plan_.places.back();
      if (place.kind != Place::kArena) continue;
      const uint64_t bytes = static_cast<uint64_t>(bytes_of(step.outputs[k]));
      if (storable) {
        plan_.entries.push_back(
            {0, static_cast<uint32_t>(info.outputs[k]), static_cast<uint64_t>(place.offset), bytes});
      }
      if (has_halo(step.outputs[k].layout)) plan_.halos.push_back(halo_of(step, buffers));
    }
    out.halos = static_cast<uint32_t>(plan_.halos.size()) - out.first_halo;
    plan_.steps.push_back(out);
  }
  for (const Slices& s : slices_) {
    const Step &first = plan_.steps[static_cast<size_t>(s.first)],
               &last = plan_.steps[static_cast<size_t>(s.last)];
    const uint32_t end = last.first_tensor + static_cast<uint32_t>(last.n_inputs + last.n_outputs);
    plan_.stretches.push_back({static_cast<uint32_t>(s.first), static_cast<uint32_t>(s.last - s.first + 1),
                               first.first_tensor, end - first.first_tensor, s.passes, s.lane_bytes,
                               s.lanes});
  }
  for (const auto& [id, output] : copied_) {
    plan_.copies.push_back({tensors_[id], place_of(id, tensors_[id]), output});
  }
}

void Planner::add(int32_t value, const Tensor& tensor, bool sliced) {
  plan_.tensors.push_back(tensor);
  Place place = place_of(value, tensor);
  if (sliced) {
    place.lane = groups_[group_of(value)].lane >= 0;
    place.pass = place.lane ? 0 : bytes_of(tensor);
  }
  plan_.places.push_back(place);
}

// Of the tensor that was added last. Where no other buffer ever lies on it, its halo stays zero.
Halo Planner::halo_of(const Pending& step, const std::vector<Buffer>& buffers) const {
  const Place& place = plan_.places.back();
  const int64_t bytes = bytes_of(plan_.tensors.back());
  Halo halo{static_cast<uint32_t>(plan_.tensors.size() - 1), false, 1, 0};
  if (step.stretch < 0) {
    halo.every_run = overlaps(buffers, place.offset, bytes);
    return halo;
  }
  const Slices& s = slices_[static_cast<size_t>(step.stretch)];
  halo.copies = place.lane ? s.lanes : s.passes;
  halo.apart = place.lane ? s.lane_bytes : bytes;
  if (place.lane)
    halo.every_run = overlaps(buffers, s.offset, s.lanes * s.lane_bytes) ||
                     overlaps(s.buffers, place.offset - s.offset, bytes);
  else
    halo.every_run = overlaps(buffers, place.offset, bytes * s.passes);
  return halo;
}

bool Planner::overlaps(const std::vector<Buffer>& buffers, int64_t offset, int64_t bytes) {
  int count = 0;
  for (const Buffer& b : buffers)
    count += b.bytes > 0 && b.offset < offset + bytes && offset < b.offset + b.bytes;
  return count > 1;
}

}  // namespace opforge::session
