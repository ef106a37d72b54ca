// expand.cpp: Expand (broadcast to a shape) and Tile.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status expand_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  if (c.inputs[1].data == nullptr && c.inputs[1].shape.elements() != 0) return c.need_data(1);
  Shape wanted;
  int64_t count = 0;
  if (!read_values(c.inputs[1], wanted.dims, kMaxRank, &count)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shape is no short list of integers");
  }
  wanted.rank = static_cast<int32_t>(count);
  for (int k = 0; k < wanted.rank; ++k) {
    if (wanted.dims[k] < 0)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shape has a negative dimension");
  }
  if (!broadcast(c.inputs[0].shape, wanted, &c.outputs[0].shape)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the input cannot be broadcast to the shape");
  }
  if (same_shape(c.inputs[0].shape, c.outputs[0].shape)) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status expand_run(RunContext& c) {
  int64_t strides[kMaxRank];
  broadcast_strides(c.inputs[0].shape, c.outputs[0].shape, strides);
  copy_strided(c, c.outputs[0].data, c.inputs[0].data, c.outputs[0].shape, strides,
               element_bytes(c.inputs[0].dtype));
  return OPFORGE_STATUS_OK;
}

Status tile_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  if (c.inputs[1].data == nullptr && c.inputs[1].shape.elements() != 0) return c.need_data(1);
  int64_t repeats[kMaxRank], count = 0;
  const Shape& in = c.inputs[0].shape;
  if (!read_values(c.inputs[1], repeats, kMaxRank, &count) || count != in.rank) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "repeats are no list of %d integers", in.rank);
  }
  c.outputs[0].shape = in;
  for (int k = 0; k < in.rank; ++k) {
    if (repeats[k] < 0 || __builtin_mul_overflow(in.dims[k], repeats[k], &c.outputs[0].shape.dims[k])) {
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "repeat %d is not valid", k);
    }
  }
  return OPFORGE_STATUS_OK;
}

Status tile_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  const Tensor& out = c.outputs[0];
  if (out.shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (in.shape.rank == 0) {
    std::memcpy(out.data, in.data, static_cast<size_t>(element_bytes(in.dtype)));
    return OPFORGE_STATUS_OK;
  }
  // Row by row of the innermost dimension: each row of the result repeats one row of the input.
  const int64_t width = in.shape[-1], repeat = out.shape[-1] / width, element = element_bytes(in.dtype);
  const int64_t rows = out.shape.elements() / out.shape[-1], bytes = width * element;
  int64_t strides[kMaxRank];
  dense_strides(in.shape, strides);
  c.parallel(rows, greater<int64_t>(1, 65536 / (bytes * repeat)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, from = 0;
      for (int k = in.shape.rank - 2; k >= 0; --k) {
        from += rest % out.shape.dims[k] % in.shape.dims[k] * strides[k];
        rest /= out.shape.dims[k];
      }
      uint8_t* to = out.as<uint8_t>() + r * bytes * repeat;
      for (int64_t k = 0; k < repeat; ++k) {
        std::memcpy(to + k * bytes, in.as<uint8_t>() + from * element, static_cast<size_t>(bytes));
      }
    }
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Expand", 8, kNewest, nullptr, expand_infer, expand_run, kStrings, 2},
    {"", "Tile", 6, kNewest, nullptr, tile_infer, tile_run, kStrings, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(expand, opforge::kRows);
