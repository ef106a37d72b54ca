// shuffle16.cpp: moves of whole channels on c16 values: DepthToSpace and ShuffleChannels.
#include "kernels/common.h"

namespace opforge {
namespace {

using namespace kernels;

bool good(const InferContext& c) {
  return is_f32(c.inputs[0]) && is_c16(c.inputs[0]) && is_c16(c.outputs[0]) && c.inputs[0].shape.rank == 4;
}

// Lane of a channel at a pixel, and floats from it to the next pixel's.
struct Lane {
  float* at;
  int64_t step;
};
Lane lane(const Image& x, int64_t image, int64_t channel, int64_t row, int64_t column) {
  const int64_t step = channel / 16 < (x.channels + 7) / 16 ? 16 : 8;
  return {x.data + image * x.batch + channel / 16 * x.plane * 16 +
              ((x.top + row) * x.row + x.left + column) * step + channel % 16,
          step};
}

// n neighbouring channels of `width` pixels, which lie `apart` pixels apart in the output.
void move_lanes(Lane from, Lane to, int64_t apart, int64_t width, int64_t n) {
  for (int64_t i = 0; i < width; ++i, from.at += from.step, to.at += to.step * apart) {
    if (n == 8)
      std::memcpy(to.at, from.at, 32);
    else
      *to.at = *from.at;
  }
}

// ---- DepthToSpace: channel place*C + c becomes channel c at that place of the block (mode DCR)
Status depth_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const int64_t b = c.attributes->get_int("blocksize", 0);
  if (!good(c) || b < 1 || b > 1 << 15 || c.inputs[0].shape[1] % (b * b) != 0)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X is not f32 [N, C, H, W] in c16 with C divisible by blocksize squared");
  Shape& y = c.outputs[0].shape;
  y = c.inputs[0].shape;
  y.dims[1] /= b * b;
  y.dims[2] *= b, y.dims[3] *= b;
  return OPFORGE_STATUS_OK;
}

Status depth_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const Image x = image_of(c.inputs[0]), y = image_of(c.outputs[0]);
  const int64_t b = c.attributes->get_int("blocksize", 1), channels = y.channels;
  const int64_t n = channels % 8 == 0 ? 8 : 1;  // neighbours that stay neighbours in both
  for_units(c, int64_t{y.images} * y.height, [&](int64_t, int64_t unit) {
    const int64_t image = unit / y.height, row = unit % y.height;
    for (int64_t k = 0; k < b; ++k)
      for (int64_t o = 0; o < channels; o += n)
        move_lanes(lane(x, image, (row % b * b + k) * channels + o, row / b, 0), lane(y, image, o, row, k), b,
                   x.width, n);
  });
  return OPFORGE_STATUS_OK;
}

// ---- ShuffleChannels: channel i*(C/groups) + j becomes channel j*groups + i
Status shuffle_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const int64_t groups = c.attributes->get_int("groups", 0);
  if (!good(c) || groups < 1 || c.inputs[0].shape[1] % groups != 0)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X is not f32 [N, C, H, W] in c16 with C divisible by groups");
  c.outputs[0].shape = c.inputs[0].shape;
  return OPFORGE_STATUS_OK;
}

Status shuffle_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const Image x = image_of(c.inputs[0]), y = image_of(c.outputs[0]);
  const int64_t groups = c.attributes->get_int("groups", 1), each = y.channels / groups;
  const int64_t blocks = blocks16(y.channels);
  for_units(c, y.images * blocks, [&](int64_t, int64_t unit) {
    const int64_t image = unit / blocks, first = unit % blocks * 16;
    for (int64_t row = 0; row < y.height; ++row)
      for (int64_t o = first; o < lesser<int64_t>(y.channels, first + 16); ++o)
        move_lanes(lane(x, image, o % groups * each + o / groups, row, 0), lane(y, image, o, row, 0), 1,
                   x.width, 1);
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "DepthToSpace", 1, 1, nullptr, depth_infer, depth_run, kPerImage},
    {"opforge", "ShuffleChannels", 1, 1, nullptr, shuffle_infer, shuffle_run, kPerImage},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(shuffle16, opforge::kRows);
