// depth.cpp: DepthToSpace and SpaceToDepth: one strided copy over [N, C, H, block, W, block].
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status bad(InferContext& c, const char* what) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the input is not [N, C, H, W] with %s divisible by blocksize", what);
}

Status depth_to_space_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  const int64_t b = c.attributes->get_int("blocksize", 0);
  if (in.rank != 4 || b < 1 || b > 1 << 15 || in[1] % (b * b) != 0) return bad(c, "C");
  Shape& out = c.outputs[0].shape;
  out = in;
  out.dims[1] = in[1] / (b * b);
  out.dims[2] = in[2] * b;
  out.dims[3] = in[3] * b;
  return OPFORGE_STATUS_OK;
}

Status depth_to_space_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  const Shape& s = in.shape;
  const int64_t b = c.attributes->get_int("blocksize", 1), plane = s[2] * s[3], channels = s[1] / (b * b);
  const StringView mode = c.attributes->get_string("mode", "DCR");
  const bool depth_first = equals(mode, "DCR");
  Shape view;
  view.rank = 6;
  const int64_t dims[6] = {s[0], channels, s[2], b, s[3], b};
  const int64_t step = depth_first ? channels : 1;  // channels from one place in the block to the next
  const int64_t strides[6] = {s[1] * plane, (depth_first ? 1 : b * b) * plane, s[3], b * step * plane, 1,
                              step * plane};
  for (int k = 0; k < 6; ++k) view.dims[k] = dims[k];
  copy_strided(c, c.outputs[0].data, in.data, view, strides, element_bytes(in.dtype));
  return OPFORGE_STATUS_OK;
}

Status space_to_depth_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  const int64_t b = c.attributes->get_int("blocksize", 0);
  if (in.rank != 4 || b < 1 || b > 1 << 15 || in[2] % b != 0 || in[3] % b != 0) return bad(c, "H and W");
  Shape& out = c.outputs[0].shape;
  out = in;
  out.dims[1] = in[1] * b * b;
  out.dims[2] = in[2] / b;
  out.dims[3] = in[3] / b;
  return OPFORGE_STATUS_OK;
}

Status space_to_depth_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  const Shape& s = in.shape;
  const int64_t b = c.attributes->get_int("blocksize", 1), plane = s[2] * s[3];
  const StringView mode = c.attributes->get_string("mode", "DCR");
  const bool depth_first = equals(mode, "DCR");
  Shape view;
  view.rank = 6;
  const int64_t dims[6] = {s[0], depth_first ? b : s[1], b, depth_first ? s[1] : b, s[2] / b, s[3] / b};
  // The places of a block come before the channels (DCR) or behind them.
  const int64_t strides[6] = {
      s[1] * plane, depth_first ? s[3] : plane, depth_first ? 1 : s[3], depth_first ? plane : 1, b * s[3], b};
  for (int k = 0; k < 6; ++k) view.dims[k] = dims[k];
  copy_strided(c, c.outputs[0].data, in.data, view, strides, element_bytes(in.dtype));
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "DepthToSpace", 1, kNewest, nullptr, depth_to_space_infer, depth_to_space_run},
    {"", "SpaceToDepth", 1, kNewest, nullptr, space_to_depth_infer, space_to_depth_run},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(depth, opforge::kRows);
