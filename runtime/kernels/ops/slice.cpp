// slice.cpp: Slice with starts, ends, axes and steps as inputs (since version 10).
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

struct Range {
  int64_t start = 0, step = 1, size = 0;
};

// Fills a range for every dimension; false where the arguments are not valid. missing: an input whose values
// are not known.
bool ranges(const Tensor* inputs, int32_t n_inputs, Range* out, int32_t* missing) {
  const Shape& shape = inputs[0].shape;
  int64_t values[5][kMaxRank], counts[5] = {};
  *missing = -1;
  for (int32_t i = 1; i < n_inputs && i < 5; ++i) {
    if (!inputs[i].present()) continue;
    if (inputs[i].data == nullptr && inputs[i].shape.elements() != 0) {
      *missing = i;
      return false;
    }
    if (!read_values(inputs[i], values[i], kMaxRank, &counts[i])) return false;
  }
  const bool has_axes = n_inputs > 3 && inputs[3].present(), has_steps = n_inputs > 4 && inputs[4].present();
  if (counts[1] != counts[2] || (has_axes && counts[3] != counts[1]) || (has_steps && counts[4] != counts[1]))
    return false;
  for (int k = 0; k < shape.rank; ++k) out[k] = {0, 1, shape.dims[k]};
  for (int64_t k = 0; k < counts[1]; ++k) {
    const int axis = axis_of(has_axes ? values[3][k] : k, shape.rank);
    const int64_t step = has_steps ? values[4][k] : 1;
    if (axis < 0 || step == 0 || step == INT64_MIN) return false;
    const int64_t d = shape.dims[axis];
    auto clamp = [d](int64_t at, int64_t least, int64_t most) {
      if (at < 0) at = at < -d - 1 ? -1 - d : at;
      if (at < 0) at += d;
      return at < least ? least : at > most ? most : at;
    };
    const int64_t start = step > 0 ? clamp(values[1][k], 0, d) : clamp(values[1][k], 0, d - 1);
    const int64_t end = step > 0 ? clamp(values[2][k], 0, d) : clamp(values[2][k], -1, d - 1);
    const int64_t distance = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    out[axis] = {start, step, d == 0 || distance <= 0 ? 0 : (distance - 1) / stride + 1};
  }
  return true;
}

Status slice_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  Range range[kMaxRank];
  int32_t missing = -1;
  if (!ranges(c.inputs, c.n_inputs, range, &missing)) {
    return missing >= 0
               ? c.need_data(missing)
               : c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "starts, ends, axes or steps are not valid");
  }
  Shape& out = c.outputs[0].shape;
  out.rank = c.inputs[0].shape.rank;
  for (int k = 0; k < out.rank; ++k) out.dims[k] = range[k].size;
  return OPFORGE_STATUS_OK;
}

Status slice_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  Range range[kMaxRank];
  int32_t missing = -1;
  if (!ranges(c.inputs, c.n_inputs, range, &missing)) return OPFORGE_STATUS_INTERNAL;
  int64_t strides[kMaxRank], start = 0;
  dense_strides(in.shape, strides);
  for (int k = 0; k < in.shape.rank; ++k) {
    start += range[k].start * strides[k];
    // One element along a dimension: its stride is never used, and step * stride could overflow.
    strides[k] = range[k].size <= 1 ? 0 : strides[k] * range[k].step;
  }
  const int64_t element = element_bytes(in.dtype);
  copy_strided(c, c.outputs[0].data, in.as<uint8_t>() + start * element, c.outputs[0].shape, strides,
               element);
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Slice", 10, kNewest, nullptr, slice_infer, slice_run, kStrings, 3, 5},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(slice, opforge::kRows);
