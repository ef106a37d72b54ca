// stretches.cpp: steps that run a few images at a time. Run step after step, a batch of images sends every
// intermediate result through memory; run image after image, what a step makes is in cache when the next
// reads it, and threads that take images of their own need not meet after every step.
#include "session/planner.h"

namespace opforge::session {
namespace {

constexpr int64_t kWorthIt = int64_t{4} << 20;    // bytes that a stretch must save
constexpr int64_t kBeyond = int64_t{1} << 50;     // bytes, more than any gain
constexpr int64_t kPassBytes = int64_t{1} << 20;  // images of a pass: while their largest results are smaller
constexpr int64_t kUneven = 4;                    // passes per lane from which the last ones hardly count

bool follows(const Tensor& tensor, const Tensor& output) {
  return tensor.present() && tensor.data == nullptr && tensor.shape.rank == output.shape.rank &&
         tensor.shape.dims[0] == output.shape.dims[0];
}

// A constant that holds values for each image; packed ones are weights.
bool holds_images(const Tensor& tensor, const Tensor& output) {
  return tensor.data != nullptr && tensor.packing == Packing::kNone &&
         tensor.shape.rank == output.shape.rank && tensor.shape.dims[0] == output.shape.dims[0];
}

}  // namespace

// The first dimension of what the step makes, 0 where it cannot be in a stretch.
int64_t Planner::images_of(const Pending& step) const {
  const NodeInfo& info = model_.node(step.node);
  if (info.kernel == nullptr || (info.kernel->flags & kPerImage) == 0 || step.outputs.empty()) return 0;
  for (const Tensor& output : step.outputs) {
    if (!output.present() || output.shape.rank < 2 || output.shape.dims[0] != step.outputs[0].shape.dims[0] ||
        bytes_of(output) == 0)
      return 0;
  }
  const Tensor& first = step.outputs[0];
  for (const Tensor& input : step.inputs) {
    // One of more dimensions was summed: its images are not those of the output.
    if (input.present() && (input.shape.rank > first.shape.rank || holds_images(input, first))) return 0;
  }
  return first.shape.dims[0];
}

// Bytes that need not go through memory, less those of weights that are read once for each image.
int64_t Planner::gain_of(const Pending& step, int64_t images) const {
  int64_t gain = 0;
  for (const Tensor& input : step.inputs) {
    if (follows(input, step.outputs[0]))
      gain += bytes_of(input);
    else if (input.present())
      gain -= std::min(images - 1, kBeyond / std::max<int64_t>(bytes_of(input), 1)) * bytes_of(input);
  }
  for (const Tensor& output : step.outputs) gain += bytes_of(output);
  return gain;
}

void Planner::stretches() {
  if (!model_.options().reuse) return;
  int64_t images = 0, sum = 0, best = 0;
  size_t from = 0, to = 0;
  const auto close = [&] {
    if (best >= kWorthIt && to - from >= 2) slice(from, to, images);
    sum = best = 0;
  };
  for (size_t s = 0; s < pending_.size(); ++s) {
    const int64_t here = images_of(pending_[s]);
    if (here != images) close();
    images = here;
    if (images < 2) continue;
    if (sum <= 0) from = s, sum = best = 0;
    sum += gain_of(pending_[s], images);
    if (sum > best) best = sum, to = s + 1;
    if (sum < best - kWorthIt) close();
  }
  close();
}

bool Planner::slice(size_t first, size_t end, int64_t images) {
  int64_t largest = 1;
  for (size_t s = first; s < end; ++s)
    for (const Tensor& output : pending_[s].outputs) largest = std::max(largest, bytes_of(output) / images);
  const int64_t threads = model_.threads();
  int64_t pass = std::max<int64_t>(1, std::min(images / std::min(threads, images), kPassBytes / largest));
  while (images % pass != 0) --pass;
  Slices slices{static_cast<int32_t>(first), static_cast<int32_t>(end) - 1, images / pass, 1};
  if (slices.passes % threads == 0 || slices.passes >= kUneven * threads)
    slices.lanes = static_cast<int32_t>(threads);
  std::vector<bool> written(groups_.size());
  std::vector<Pending> made(pending_.begin() + static_cast<std::ptrdiff_t>(first),
                            pending_.begin() + static_cast<std::ptrdiff_t>(end));
  for (Pending& step : made) {
    step.stretch = static_cast<int32_t>(slices_.size());
    if (!slice_step(&step, images, pass, slices.lanes > 1 ? 1 : model_.threads(), &written)) return false;
  }
  std::move(made.begin(), made.end(), pending_.begin() + static_cast<std::ptrdiff_t>(first));
  slices_.push_back(std::move(slices));
  return true;
}

// Infers the step anew for the images of a pass. False where it does not fit.
bool Planner::slice_step(Pending* step, int64_t images, int64_t pass, int32_t threads,
                         std::vector<bool>* written) {
  const NodeInfo& info = model_.node(step->node);
  const std::vector<Tensor> whole = step->outputs;
  step->sliced.assign(step->inputs.size(), false);
  for (size_t k = 0; k < step->inputs.size(); ++k) {
    Tensor& input = step->inputs[k];
    if (!input.present()) continue;
    if (follows(input, whole[0])) {
      const int64_t bytes = bytes_of(input);
      step->sliced[k] = true;
      input.shape.dims[0] = pass;
      if (bytes_of(input) * (images / pass) != bytes) return false;
    } else if (const int32_t g = group_[info.inputs[k]]; g >= 0 && (*written)[static_cast<size_t>(g)]) {
      return false;  // it wants images of all passes
    }
  }
  for (size_t k = 0; k < step->outputs.size(); ++k) step->outputs[k] = declared(model_, info.outputs[k]);
  Inferred inferred;
  Error refused;
  if (infer_node(model_, step->node, step->inputs.data(), step->outputs.data(), threads, &inferred,
                 &refused) ||
      inferred.needs_data)
    return false;
  for (size_t k = 0; k < step->outputs.size(); ++k) {
    Shape shape = whole[k].shape;
    shape.dims[0] = pass;
    if (!same_shape(step->outputs[k].shape, shape) ||
        bytes_of(step->outputs[k]) * (images / pass) != bytes_of(whole[k]))
      return false;
    (*written)[static_cast<size_t>(group_[info.outputs[k]])] = true;
  }
  step->scratch = inferred.context.scratch_bytes;
  std::copy(inferred.context.inplace_input, inferred.context.inplace_input + 4, step->in_place);
  return true;
}

Status Planner::place_lanes() {
  for (size_t k = 0; k < slices_.size(); ++k) {
    Slices& slices = slices_[k];
    std::vector<bool> seen(groups_.size());
    for (int32_t s = slices.first; s <= slices.last; ++s) {
      Pending& step = pending_[static_cast<size_t>(s)];
      const NodeInfo& info = model_.node(step.node);
      for (uint32_t i = 0; i < info.record->inputs + info.record->outputs; ++i) {
        const int32_t id = i < info.record->inputs ? info.inputs[i] : info.outputs[i - info.record->inputs];
        const int32_t g = id < 0 ? -1 : group_of(id);
        if (g < 0 || seen[static_cast<size_t>(g)]) continue;
        seen[static_cast<size_t>(g)] = true;
        Group& group = groups_[static_cast<size_t>(g)];
        if (group.place.kind != Place::kNone) continue;
        if (group.first >= slices.first && group.last <= slices.last) {
          group.lane = static_cast<int32_t>(k);
          slices.groups.push_back(g);
          slices.buffers.push_back({group.bytes / slices.passes, group.first, group.last, 0});
        } else {
          group.first = std::min(group.first, slices.first);
          group.last = std::max(group.last, slices.last);
        }
      }
    }
    for (int32_t s = slices.first; s <= slices.last; ++s) {
      if (pending_[static_cast<size_t>(s)].scratch <= 0) continue;
      slices.scratch.push_back(s);
      slices.buffers.push_back({pending_[static_cast<size_t>(s)].scratch, s, s, 0});
    }
    const auto n = static_cast<int32_t>(slices.buffers.size());
    std::vector<int32_t> order(slices.buffers.size() + 1), active(slices.buffers.size() + 1);
    slices.lane_bytes = place_buffers(slices.buffers.data(), n, order.data(), true);
    int32_t x = 0, y = 0;
    if (!placement_good(slices.buffers.data(), n, slices.lane_bytes, order.data(), active.data(), &x, &y))
      return overlap(x, y);
    for (size_t b = 0; b < slices.buffers.size(); ++b) {  // in the lane, until the lanes have their place
      const int64_t offset = slices.buffers[b].offset;
      if (b >= slices.groups.size()) {
        pending_[static_cast<size_t>(slices.scratch[b - slices.groups.size()])].scratch_offset = offset;
        continue;
      }
      Place& place = groups_[static_cast<size_t>(slices.groups[b])].place;
      place.kind = Place::kArena;
      place.offset = offset;
    }
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
