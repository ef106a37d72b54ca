// view.cpp: Reshape, Flatten, Identity, Unsqueeze, Squeeze: the same bytes under another shape. As a rule
// they cost nothing (the planner makes a view); run() copies where a view is not possible.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status view_of_input(InferContext& c) {
  c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status copy_run(RunContext& c) {
  const Tensor& x = c.inputs[0];
  const int64_t bytes = storage_bytes(x.dtype, x.shape, x.layout);
  if (c.outputs[0].data == x.data || bytes == 0) return OPFORGE_STATUS_OK;
  c.parallel(bytes, 1 << 18, [&](int64_t begin, int64_t end) {
    std::memcpy(c.outputs[0].as<uint8_t>() + begin, x.as<uint8_t>() + begin,
                static_cast<size_t>(end - begin));
  });
  return OPFORGE_STATUS_OK;
}

Status identity_infer(InferContext& c) {
  const Layout &a = c.inputs[0].layout, &b = c.outputs[0].layout;
  if (c.inputs[0].dtype != c.outputs[0].dtype) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "Identity cannot change a dtype");
  }
  if (!same_layout(a, b)) return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Identity cannot change a layout");
  c.outputs[0].shape = c.inputs[0].shape;
  return view_of_input(c);
}

Status reshape_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  if (c.inputs[1].data == nullptr && c.inputs[1].shape.elements() != 0) return c.need_data(1);
  int64_t wanted[kMaxRank], count = 0;
  if (!read_values(c.inputs[1], wanted, kMaxRank, &count)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shape is no list of at most %d integers",
                  kMaxRank);
  }
  const Shape& in = c.inputs[0].shape;
  const bool allow_zero = c.attributes->get_int("allowzero", 0) != 0;
  Shape out;
  out.rank = static_cast<int32_t>(count);
  int64_t known = 1;
  int open = -1;
  for (int k = 0; k < out.rank; ++k) {
    int64_t d = wanted[k];
    if (d == 0 && !allow_zero) d = k < in.rank ? in.dims[k] : -2;
    if (d == -1 && open < 0) {
      open = k;
      continue;
    }
    if (d < 0 || (d != 0 && known > INT64_MAX / d)) {
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "dimension %d of the new shape is not valid: %lld",
                    k, static_cast<long long>(wanted[k]));
    }
    out.dims[k] = d;
    known *= d;
  }
  const int64_t n = in.elements();
  if (open >= 0) out.dims[open] = known == 0 ? 0 : n / known;
  if ((open >= 0 ? known * out.dims[open] : known) != n) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "%lld elements cannot take the new shape",
                  static_cast<long long>(n));
  }
  c.outputs[0].shape = out;
  return view_of_input(c);
}

Status flatten_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  int64_t axis = c.attributes->get_int("axis", 1);
  if (axis < 0) axis += in.rank;
  if (axis < 0 || axis > in.rank) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis is out of range");
  Shape& out = c.outputs[0].shape;
  out.rank = 2;
  out.dims[0] = out.dims[1] = 1;
  for (int k = 0; k < in.rank; ++k) out.dims[k < axis ? 0 : 1] *= in.dims[k];
  return view_of_input(c);
}

Status unsqueeze_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  if (c.inputs[1].data == nullptr) return c.need_data(1);
  int64_t axes[kMaxRank], count = 0;
  const Shape& in = c.inputs[0].shape;
  if (!read_values(c.inputs[1], axes, kMaxRank, &count) || in.rank + count > kMaxRank) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the axes are no short list of integers");
  }
  Shape& out = c.outputs[0].shape;
  out.rank = in.rank + static_cast<int32_t>(count);
  bool added[kMaxRank] = {};
  for (int64_t k = 0; k < count; ++k) {
    const int axis = axis_of(axes[k], out.rank);
    if (axis < 0 || added[axis])
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the axes are out of range or repeat");
    added[axis] = true;
  }
  for (int k = 0, from = 0; k < out.rank; ++k) out.dims[k] = added[k] ? 1 : in.dims[from++];
  return view_of_input(c);
}

Status squeeze_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  bool gone[kMaxRank] = {};
  if (c.n_inputs > 1 && c.inputs[1].present()) {
    if (c.inputs[1].data == nullptr && c.inputs[1].shape.elements() != 0) return c.need_data(1);
    int64_t axes[kMaxRank], count = 0;
    bool good = read_values(c.inputs[1], axes, kMaxRank, &count);
    for (int64_t k = 0; good && k < count; ++k) {
      const int axis = axis_of(axes[k], in.rank);
      good = axis >= 0 && in.dims[axis] == 1;
      if (good) gone[axis] = true;
    }
    if (!good)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the axes do not name dimensions of size 1");
  } else {
    for (int k = 0; k < in.rank; ++k) gone[k] = in.dims[k] == 1;
  }
  Shape& out = c.outputs[0].shape;
  out.rank = 0;
  for (int k = 0; k < in.rank; ++k) {
    if (!gone[k]) out.dims[out.rank++] = in.dims[k];
  }
  return view_of_input(c);
}

constexpr OpKernel kRows[] = {
    {"", "Identity", 1, kNewest, nullptr, identity_infer, copy_run, kStrings},
    {"", "Reshape", 5, kNewest, nullptr, reshape_infer, copy_run, kStrings, 2},
    {"", "Flatten", 1, kNewest, nullptr, flatten_infer, copy_run, kStrings},
    {"", "Unsqueeze", 13, kNewest, nullptr, unsqueeze_infer, copy_run, kStrings, 2},
    {"", "Squeeze", 13, kNewest, nullptr, squeeze_infer, copy_run, kStrings, 1, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(view, opforge::kRows);
