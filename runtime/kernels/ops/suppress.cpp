// suppress.cpp: NonMaxSuppression. The boxes of one class of one image are one unit of work; units run side
// by side and are gathered in order.
#include <algorithm>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

struct Corners {
  float x0, y0, x1, y1, area;
};

struct Plan {
  int64_t images, classes, boxes, most;
  int64_t units() const { return images * classes; }
  // Per image: its boxes. Per thread: the order of candidates and the corners of what was chosen. Per unit:
  // what was chosen, and how many.
  int64_t corners_bytes() const { return (images * boxes * int64_t{sizeof(Corners)} + 63) / 64 * 64; }
  int64_t slot_bytes() const { return (boxes * 4 + most * int64_t{sizeof(Corners)} + 127) / 64 * 64; }
  int64_t chosen_bytes() const { return units() * (most + 1) * 4; }
};

Status bad_arguments(InferContext& c) {
  return c.fail(
      &c, OPFORGE_STATUS_INVALID_ARGUMENT,
      "NonMaxSuppression takes f32 boxes [N, B, 4], f32 scores [N, C, B], an i64 count and f32 thresholds");
}

Plan plan_of(const Tensor* inputs, int64_t most) {
  const Shape& scores = inputs[1].shape;
  return {scores[0], scores[1], scores[2], lesser(greater<int64_t>(most, 0), scores[2])};
}

template <class Context>
int64_t most_of(const Context& c) {
  return given(c, 2) ? *c.inputs[2].template as<int64_t>() : 0;
}

Status suppress_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kI64)) return wrong;
  const Tensor &boxes = c.inputs[0], &scores = c.inputs[1];
  bool good = is_f32(boxes) && is_f32(scores) && is_plain(boxes) && is_plain(scores) &&
              boxes.shape.rank == 3 && scores.shape.rank == 3 && boxes.shape[2] == 4 &&
              boxes.shape[0] == scores.shape[0] && boxes.shape[1] == scores.shape[2] &&
              scores.shape[2] < INT32_MAX;
  if (given(c, 2)) good = good && c.inputs[2].dtype == DType::kI64 && c.inputs[2].shape.elements() == 1;
  for (int32_t k = 3; k < 5; ++k)
    if (given(c, k)) good = good && is_f32(c.inputs[k]) && c.inputs[k].shape.elements() == 1;
  if (!good) return bad_arguments(c);
  if (given(c, 2) && c.inputs[2].data == nullptr) return c.need_data(2);
  const Plan p = plan_of(c.inputs, most_of(c));
  Shape& y = c.outputs[0].shape;
  y.rank = 2;
  y.dims[0] = p.units() * p.most;
  y.dims[1] = 3;
  c.scratch_bytes = p.corners_bytes() + p.slot_bytes() * c.max_threads + p.chosen_bytes();
  return OPFORGE_STATUS_OK;
}

Corners corners_of(const float* box, bool centred) {
  Corners r;
  if (centred) {
    r.x0 = box[0] - box[2] / 2, r.x1 = box[0] + box[2] / 2;
    r.y0 = box[1] - box[3] / 2, r.y1 = box[1] + box[3] / 2;
  } else {
    r.y0 = lesser(box[0], box[2]), r.y1 = greater(box[0], box[2]);
    r.x0 = lesser(box[1], box[3]), r.x1 = greater(box[1], box[3]);
  }
  r.area = (r.x1 - r.x0) * (r.y1 - r.y0);
  return r;
}

bool overlap(const Corners& a, const Corners& b, float threshold) {
  const float width = lesser(a.x1, b.x1) - greater(a.x0, b.x0);
  const float height = lesser(a.y1, b.y1) - greater(a.y0, b.y0);
  if (!(width > 0) || !(height > 0)) return false;
  const float common = width * height, all = a.area + b.area - common;
  return common > 0 && a.area > 0 && b.area > 0 && all > 0 && common / all > threshold;
}

Status suppress_run(RunContext& c) {
  const Plan p = plan_of(c.inputs, most_of(c));
  const float limit = given(c, 3) ? *c.inputs[3].as<float>() : 0.0f;
  const bool filtered = given(c, 4), centred = c.attributes->get_int("center_point_box", 0) != 0;
  const float least = filtered ? *c.inputs[4].as<float>() : 0.0f;
  const float *boxes = c.inputs[0].as<float>(), *scores = c.inputs[1].as<float>();
  auto* corners = static_cast<Corners*>(c.scratch);
  uint8_t* slots = static_cast<uint8_t*>(c.scratch) + p.corners_bytes();
  auto* chosen = reinterpret_cast<int32_t*>(slots + p.slot_bytes() * c.threads);
  Shape& result = c.outputs[0].shape;
  result.dims[0] = 0;
  if (p.most == 0 || p.units() == 0) return OPFORGE_STATUS_OK;
  c.parallel(p.images * p.boxes, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) corners[k] = corners_of(boxes + 4 * k, centred);
  });
  for_units(c, p.units(), [&](int64_t slot, int64_t unit) {
    const float* score = scores + unit * p.boxes;
    const Corners* box = corners + unit / p.classes * p.boxes;
    auto* kept = reinterpret_cast<Corners*>(slots + slot * p.slot_bytes());
    auto* order = reinterpret_cast<int32_t*>(kept + p.most);
    int32_t* out = chosen + unit * (p.most + 1);
    int64_t n = 0, count = 0;
    for (int64_t k = 0; k < p.boxes; ++k)
      if (filtered ? score[k] > least : score[k] == score[k]) order[n++] = static_cast<int32_t>(k);
    // A heap yields candidates from the best on; of equal scores the first box comes first.
    const auto worse = [&](int32_t a, int32_t b) {
      return score[a] < score[b] || (score[a] == score[b] && a > b);
    };
    std::make_heap(order, order + n, worse);
    for (; n > 0 && count < p.most; --n) {
      std::pop_heap(order, order + n, worse);
      const int32_t best = order[n - 1];
      bool free = true;
      for (int64_t k = 0; free && k < count; ++k) free = !overlap(box[best], kept[k], limit);
      if (!free) continue;
      kept[count] = box[best];
      out[1 + count++] = best;
    }
    out[0] = static_cast<int32_t>(count);
  });
  int64_t* to = c.outputs[0].as<int64_t>();
  for (int64_t unit = 0; unit < p.units(); ++unit) {
    const int32_t* from = chosen + unit * (p.most + 1);
    for (int32_t k = 0; k < from[0]; ++k, to += 3) {
      to[0] = unit / p.classes;
      to[1] = unit % p.classes;
      to[2] = from[1 + k];
    }
    result.dims[0] += from[0];
  }
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "NonMaxSuppression", 10, kNewest, nullptr, suppress_infer, suppress_run, kBounded, 2, 5},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(suppress, opforge::kRows);
