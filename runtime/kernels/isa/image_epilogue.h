// image_epilogue.h: calls a convolution's epilogue over finished rows of a c16 output.
#pragma once

#include "kernels/isa/simd.h"
#include "kernels/isa/table.h"

namespace opforge {
namespace OPFORGE_ISA {

static inline void image_epilogue(const ConvArgs& a, int64_t image, int64_t y0, int64_t y1, int64_t block0,
                                  int64_t block1) {
  const Image& y = a.y;
  for (int64_t b = block0; b < block1; ++b) {
    const int64_t lanes = b < whole_blocks(y.channels) ? 16 : 8;
    float* plane = y.data + image * y.batch + b * y.plane * 16;
    if (y.row == y.width) {  // no halo between rows: one call
      const int64_t first = (y.top + y0) * y.row;
      a.epilogue(a.user, plane + first * lanes, (y1 - y0) * y.row, lanes, first, b * 16, lanes);
      continue;
    }
    for (int64_t r = y0; r < y1; ++r) {
      const int64_t first = (y.top + r) * y.row + y.left;
      a.epilogue(a.user, plane + first * lanes, y.width, lanes, first, b * 16, lanes);
    }
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
