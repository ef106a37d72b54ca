// plain_conv.h: what Conv and ConvTranspose on plain tensors share.
#pragma once

#include "kernels/types.h"
#include "kernels/window.h"

namespace opforge::kernels {

struct PlainConv {
  Window w;
  int64_t images, channels_in, channels_out, groups;
  int64_t in_group() const { return channels_in / groups; }
  int64_t out_group() const { return channels_out / groups; }
  int64_t terms() const { return in_group() * w.taps(); }
};

// Whether X, W and perhaps the bias are plain tensors of one real dtype, and the bias has `outputs` elements.
inline bool conv_operands_fit(const Tensor* in, int32_t n, int64_t outputs) {
  for (int i = 0; i < n; ++i)
    if (in[i].present() && (!is_real(in[i].dtype) || in[i].dtype != in[0].dtype || !is_plain(in[i]) ||
                            in[i].packing != Packing::kNone))
      return false;
  return n < 3 || !in[2].present() || in[2].shape.elements() == outputs;
}

}  // namespace opforge::kernels
