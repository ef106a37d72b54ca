// part.h: nodes on images that write some channels of their output and keep the others: concatenations whose
// parts are made where they will lie.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

// Attributes channels_total and channel_offset (0, 0 = the whole output). `input`: the value whose other
// channels the output keeps, in place where the session allows; absent in the first node of such a chain.
struct Part {
  int64_t channels = 0, offset = 0;
  int32_t input = -1;

  bool any() const { return channels > 0; }
  int64_t total(int64_t own) const { return any() ? channels : own; }
  // The image of the node's own channels within that of the output.
  Image of(Image y, int64_t own) const {
    if (!any()) return y;
    if (y.data != nullptr) y.data += y.plane * offset;  // infer asks for sizes only
    y.channels = static_cast<int32_t>(own);
    return y;
  }
};

// Own channels begin at a whole block (16 of c16, 1 of nhwc), and end at one unless they are the last.
inline Status load_part(LoadContext& c, int64_t own, int32_t input, Part* part, int64_t block = 16) {
  part->channels = c.attributes->get_int("channels_total", 0);
  part->offset = c.attributes->get_int("channel_offset", 0);
  if (part->channels == 0 && part->offset == 0) return OPFORGE_STATUS_OK;
  const int64_t most = int64_t{1} << 30;
  if (part->channels < 1 || part->channels > most || part->offset < 0 || part->offset > most || own < 1 ||
      own > most || part->offset % block != 0 || part->offset + own > part->channels ||
      (own % block != 0 && part->offset + own != part->channels))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "channel_offset or channels_total cut a block of channels");
  if (c.n_inputs > input && c.inputs[input].present()) part->input = input;
  return OPFORGE_STATUS_OK;
}

// After the output's shape is set.
inline Status infer_part(InferContext& c, const Part& part, DType dtype = DType::kF32) {
  if (part.input < 0) return OPFORGE_STATUS_OK;
  const Tensor &kept = c.inputs[part.input], &y = c.outputs[0];
  if (kept.dtype != dtype || !same_shape(kept.shape, y.shape) || !same_layout(kept.layout, y.layout))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the value whose channels are kept is not laid out as the output");
  c.inplace_input[0] = part.input;
  return OPFORGE_STATUS_OK;
}

// Before the own channels are written: brings the others along where the output is memory of its own.
inline void keep_others(RunContext& c, const Part& part) {
  if (part.input < 0 || c.outputs[0].data == c.inputs[part.input].data) return;
  const Tensor& y = c.outputs[0];
  std::memcpy(y.data, c.inputs[part.input].data, storage_bytes(y.dtype, y.shape, y.layout));
}

}  // namespace opforge::kernels
