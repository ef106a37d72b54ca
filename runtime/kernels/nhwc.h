// nhwc.h: images whose channels lie side by side: [N, H, W, C], dense (nhwc) or with each pixel filled up to
// a multiple of 16 channels (nhwc16), whose lanes beyond the last channel hold anything. Kernels read no halo
// around them.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

inline bool is_nhwc(const Tensor& t) {
  const Layout& l = t.layout;
  return (l.kind == LayoutKind::kNHWC || l.kind == LayoutKind::kNHWC16) && t.shape.rank == 4 &&
         (l.top | l.left | l.bottom | l.right) == 0;
}
// Whether the file says so of an output, whose shape is not known yet.
inline bool wants_nhwc(const Tensor& t) {
  return t.layout.kind == LayoutKind::kNHWC || t.layout.kind == LayoutKind::kNHWC16;
}
// Elements from one pixel to the next.
inline int64_t pixel_of(const Tensor& t) {
  return t.layout.kind == LayoutKind::kNHWC16 ? (t.shape[1] + 15) / 16 * 16 : t.shape[1];
}
inline int64_t pixels_of(const Tensor& t) { return t.shape[0] * t.shape[2] * t.shape[3]; }

// What Resize, ConcatChannels and Reorder do where a layout is nhwc; elements of whole bytes.
Status nhwc_resize_infer(InferContext& context, int64_t scale_h, int64_t scale_w);
void nhwc_resize(RunContext& context, int64_t scale_h, int64_t scale_w);
Status nhwc_concat_infer(InferContext& context);
void nhwc_concat(RunContext& context);
Status nhwc_reorder_infer(InferContext& context);
void nhwc_reorder(RunContext& context);

}  // namespace opforge::kernels
