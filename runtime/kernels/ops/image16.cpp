// image16.cpp: the other nodes on c16 values: Pool, GlobalAveragePool, Resize, ConcatChannels, Reorder. The
// last three also serve nhwc (kernels/nhwc.cpp).
#include "kernels/nhwc.h"
#include "kernels/part.h"

namespace opforge {
namespace {

using namespace kernels;

Status not_c16(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the operands are not f32 [N, C, H, W] in c16");
}
bool good_image(const Tensor& t) { return is_f32(t) && is_c16(t) && t.shape.rank == 4; }

// ---- Pool
// ---------------------------------------------------------------------------------------------------
struct PoolState {
  int32_t kernel[2], strides[2], dilations[2], pads[4];
  bool average = false, ceil = false, count_padding = false;
};

Status pool_load(LoadContext& c) {
  PoolState* s = new_state<PoolState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  read_ints(a, "kernel_shape", 2, 1, s->kernel);
  read_ints(a, "strides", 2, 1, s->strides);
  read_ints(a, "dilations", 2, 1, s->dilations);
  read_ints(a, "pads", 4, 0, s->pads);
  for (int i = 0; i < 2; ++i) {
    if (s->kernel[i] < 1 || s->strides[i] < 1 || s->dilations[i] < 1 || s->pads[i] < 0 ||
        s->pads[2 + i] < 0 || s->pads[i] >= s->kernel[i] * int64_t(s->dilations[i]) ||
        s->pads[2 + i] >= s->kernel[i] * int64_t(s->dilations[i]))
      return c.fail(&c, OPFORGE_STATUS_CORRUPT, "kernel_shape, strides, dilations or pads out of range");
  }
  const StringView mode = a.get_string("mode", "max");
  if (!equals(mode, "max") && !equals(mode, "average"))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "mode is neither max nor average");
  s->average = equals(mode, "average");
  s->ceil = a.get_int("ceil_mode", 0) != 0;
  s->count_padding = a.get_int("count_include_pad", 0) != 0;
  return OPFORGE_STATUS_OK;
}

Status pool_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const PoolState& s = *static_cast<PoolState*>(c.state);
  if (!good_image(c.inputs[0]) || !is_c16(c.outputs[0])) return not_c16(c);
  const Shape& x = c.inputs[0].shape;
  Shape& y = c.outputs[0].shape;
  y = x;
  for (int i = 0; i < 2; ++i) {
    const int64_t room =
        x[2 + i] + s.pads[i] + s.pads[2 + i] - ((s.kernel[i] - 1) * int64_t(s.dilations[i]) + 1);
    int64_t n = room < 0 ? 0 : (s.ceil ? ceil_div(room, s.strides[i]) : room / s.strides[i]) + 1;
    // A window that would begin in the padding behind the image does not exist.
    if (s.ceil && n > 0 && (n - 1) * s.strides[i] >= x[2 + i] + s.pads[i]) --n;
    y.dims[2 + i] = n;
  }
  return OPFORGE_STATUS_OK;
}

Status pool_run(RunContext& c) {
  const PoolState& s = *static_cast<PoolState*>(c.state);
  const Tensor& y = c.outputs[0];
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  PoolArgs a{};
  a.x = image_of(c.inputs[0]), a.y = image_of(y);
  a.kernel_h = s.kernel[0], a.kernel_w = s.kernel[1];
  a.stride_h = s.strides[0], a.stride_w = s.strides[1];
  a.dilation_h = s.dilations[0], a.dilation_w = s.dilations[1];
  a.pad_top = s.pads[0], a.pad_left = s.pads[1], a.pad_bottom = s.pads[2], a.pad_right = s.pads[3];
  a.average = s.average, a.count_include_pad = s.count_padding;
  for_strips(c, a.y.images, blocks16(a.y.channels), y.shape[2], y.shape[2] * y.shape[3] / 4096,
             [&](int64_t image, int64_t block, int64_t y0, int64_t y1) {
               isa_table().pool(a, image, block, y0, y1);
             });
  return OPFORGE_STATUS_OK;
}

// ---- GlobalAveragePool
// --------------------------------------------------------------------------------------
Status global_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  if (!good_image(c.inputs[0]) || !is_c16(c.outputs[0])) return not_c16(c);
  c.outputs[0].shape = c.inputs[0].shape;
  c.outputs[0].shape.dims[2] = c.outputs[0].shape.dims[3] = 1;
  return OPFORGE_STATUS_OK;
}

Status global_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const Image x = image_of(c.inputs[0]), y = image_of(c.outputs[0]);
  const int64_t blocks = blocks16(x.channels);
  for_units(c, x.images * blocks,
            [&](int64_t, int64_t unit) { isa_table().global_average(x, y, unit / blocks, unit % blocks); });
  return OPFORGE_STATUS_OK;
}

// ---- Resize
// -------------------------------------------------------------------------------------------------
struct ResizeState {
  int64_t h = 1, w = 1;
  Part part;
  int64_t channels = 0;  // of X, where the output is a part
};

Status resize_load(LoadContext& c) {
  ResizeState* s = new_state<ResizeState>(c);
  if (s == nullptr) return no_memory(c);
  s->h = c.attributes->get_int("scales_h", 1);
  s->w = c.attributes->get_int("scales_w", 1);
  if (s->h < 1 || s->w < 1 || s->h > 1 << 16 || s->w > 1 << 16)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "scales_h or scales_w out of range");
  if (!equals(c.attributes->get_string("mode", "nearest"), "nearest"))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Resize on c16 has the mode nearest only");
  s->channels = c.attributes->get_int("channels_in", 0);
  return load_part(c, s->channels, 1, &s->part);
}

Status resize_infer(InferContext& c) {
  const ResizeState& s = *static_cast<ResizeState*>(c.state);
  if (is_nhwc(c.inputs[0]) && !s.part.any()) return nhwc_resize_infer(c, s.h, s.w);
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  if (!good_image(c.inputs[0]) || !is_c16(c.outputs[0])) return not_c16(c);
  c.outputs[0].shape = c.inputs[0].shape;
  c.outputs[0].shape.dims[2] *= s.h;
  c.outputs[0].shape.dims[3] *= s.w;
  if (!s.part.any()) return OPFORGE_STATUS_OK;
  if (c.inputs[0].shape[1] != s.channels)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "X does not have channels_in channels");
  c.outputs[0].shape.dims[1] = s.part.channels;
  return infer_part(c, s.part);
}

Status resize_run(RunContext& c) {
  const ResizeState& s = *static_cast<ResizeState*>(c.state);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (is_nhwc(c.inputs[0])) return nhwc_resize(c, s.h, s.w), OPFORGE_STATUS_OK;
  keep_others(c, s.part);
  const Image x = image_of(c.inputs[0]), y = s.part.of(image_of(c.outputs[0]), s.channels);
  for_strips(c, x.images, blocks16(x.channels), x.height, int64_t(y.height) * y.width / 16384,
             [&](int64_t image, int64_t block, int64_t y0, int64_t y1) {
               isa_table().resize_nearest(x, y, s.h, s.w, image, block, y0, y1);
             });
  return OPFORGE_STATUS_OK;
}

// ---- ConcatChannels
// -----------------------------------------------------------------------------------------
Status concat_infer(InferContext& c) {
  if (c.n_inputs > 0 && is_nhwc(c.inputs[0])) return nhwc_concat_infer(c);
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  if (c.n_inputs < 1 || !is_c16(c.outputs[0])) return not_c16(c);
  Shape& y = c.outputs[0].shape;
  int64_t channels = 0;
  for (int i = 0; i < c.n_inputs; ++i) {
    const Shape& x = c.inputs[i].shape;
    if (!good_image(c.inputs[i])) return not_c16(c);
    const Shape& first = c.inputs[0].shape;
    if (x[0] != first[0] || x[2] != first[2] || x[3] != first[3])
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "the inputs of ConcatChannels differ in more than channels");
    channels += x[1];
  }
  y = c.inputs[0].shape;
  y.dims[1] = channels;
  return OPFORGE_STATUS_OK;
}

Status concat_run(RunContext& c) {
  const Tensor& out = c.outputs[0];
  if (out.shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (is_nhwc(out)) return nhwc_concat(c), OPFORGE_STATUS_OK;
  const Image y = image_of(out);
  const int64_t strips = greater<int64_t>(1, lesser<int64_t>(y.height, out.shape.elements() / 65536));
  for_units(c, y.images * strips, [&](int64_t, int64_t unit) {
    const int64_t strip = unit % strips;
    int64_t channel = 0;
    for (int i = 0; i < c.n_inputs; ++i) {
      if (c.inputs[i].shape[1] == 0) continue;
      isa_table().concat_channels(image_of(c.inputs[i]), y, channel, unit / strips,
                                  cut(y.height, strips, strip), cut(y.height, strips, strip + 1));
      channel += c.inputs[i].shape[1];
    }
  });
  return OPFORGE_STATUS_OK;
}

// ---- Reorder
// ------------------------------------------------------------------------------------------------
// Attribute `plain`: "" = a plain side is [N, C, H, W], "nhwc" = it is [N, H, W, C].
bool plain_is_nhwc(const Attributes& a) { return equals(a.get_string("plain", ""), "nhwc"); }

Status reorder_infer(InferContext& c) {
  if (wants_nhwc(c.inputs[0]) || wants_nhwc(c.outputs[0])) return nhwc_reorder_infer(c);
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  const bool known = (is_plain(x) || is_c16(x)) && (is_plain(y) || is_c16(y)),
             nhwc = plain_is_nhwc(*c.attributes);
  if (!known || !is_f32(x) || ((is_c16(x) || is_c16(y)) && x.shape.rank != 4) ||
      (nhwc && is_plain(x) == is_plain(y)) || (!nhwc && !equals(c.attributes->get_string("plain", ""), "")))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED,
                  "Reorder takes f32 [N, C, H, W] or [N, H, W, C], plain or c16");
  y.shape = x.shape;
  const int from_plain[4] = {0, 3, 1, 2}, to_plain[4] = {0, 2, 3, 1};
  for (int k = 0; nhwc && k < 4; ++k) y.shape.dims[k] = x.shape[(is_plain(x) ? from_plain : to_plain)[k]];
  if (same_layout(x.layout, y.layout)) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

// Rows [y0, y1) of one image between c16 and [N, H, W, C].
void copy_nhwc(const Image& x, float* plain, int64_t image, int64_t y0, int64_t y1, bool to_plain) {
  const int64_t channels = x.channels;
  for (int64_t b = 0; b < blocks16(channels); ++b) {
    const int64_t lanes = b < (channels + 7) / 16 ? 16 : 8, real = lesser(lanes, channels - b * 16);
    for (int64_t r = y0; r < y1; ++r) {
      float* blocked = x.data + image * x.batch + b * x.plane * 16 + ((x.top + r) * x.row + x.left) * lanes;
      float* flat = plain + ((image * x.height + r) * x.width) * channels + b * 16;
      for (int64_t i = 0; i < x.width; ++i, blocked += lanes, flat += channels) {
        if (to_plain) {
          std::memcpy(flat, blocked, sizeof(float) * real);
        } else {
          std::memcpy(blocked, flat, sizeof(float) * real);
          for (int64_t k = real; k < lanes; ++k) blocked[k] = 0;
        }
      }
    }
  }
}

Status reorder_run(RunContext& c) {
  const Tensor &from = c.inputs[0], &to = c.outputs[0];
  if (to.shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (is_nhwc(from) || is_nhwc(to)) return nhwc_reorder(c), OPFORGE_STATUS_OK;
  if (is_plain(from) && is_plain(to)) {
    std::memcpy(to.data, from.data, sizeof(float) * to.shape.elements());
    return OPFORGE_STATUS_OK;
  }
  const bool nhwc = plain_is_nhwc(*c.attributes);
  const Image x = image_of(from), y = image_of(to);
  const Image& blocked = is_c16(from) ? x : y;
  const int64_t height = blocked.height,
                strips = greater<int64_t>(1, lesser<int64_t>(height, to.shape.elements() / 65536));
  for_units(c, x.images * strips, [&](int64_t, int64_t unit) {
    const int64_t image = unit / strips, y0 = cut(height, strips, unit % strips),
                  y1 = cut(height, strips, unit % strips + 1);
    if (nhwc)
      copy_nhwc(blocked, is_plain(to) ? y.data : x.data, image, y0, y1, is_plain(to));
    else if (is_plain(from))
      isa_table().from_plain(x.data, y, image, y0, y1);
    else if (is_plain(to))
      isa_table().to_plain(x, y.data, image, y0, y1);
    else
      isa_table().concat_channels(x, y, 0, image, y0, y1);
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "Pool", 1, 1, pool_load, pool_infer, pool_run, kPerImage},
    {"opforge", "GlobalAveragePool", 1, 1, nullptr, global_infer, global_run, kPerImage},
    {"opforge", "Resize", 1, 1, resize_load, resize_infer, resize_run, kPerImage},
    {"opforge", "ConcatChannels", 1, 1, nullptr, concat_infer, concat_run, kAllInputs | kPerImage},
    {"opforge", "Reorder", 1, 1, nullptr, reorder_infer, reorder_run, kPerImage},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(image16, opforge::kRows);
