// where.cpp: Where on any whole-byte dtype (bytecode holds it only for some).
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status where_infer(InferContext& c) {
  if (Status status = check_movable(c, 1)) return status;
  Shape out;
  if (c.inputs[0].dtype != DType::kBool || c.inputs[1].dtype != c.inputs[2].dtype ||
      !broadcast(c.inputs[0].shape, c.inputs[1].shape, &out) || !broadcast(out, c.inputs[2].shape, &out)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the condition or the two values do not fit");
  }
  c.outputs[0].shape = out;
  return OPFORGE_STATUS_OK;
}

Status where_run(RunContext& c) {
  const Shape& out = c.outputs[0].shape;
  int64_t strides[3][kMaxRank];
  for (int i = 0; i < 3; ++i) broadcast_strides(c.inputs[i].shape, out, strides[i]);
  const int64_t element = element_bytes(c.outputs[0].dtype);
  c.parallel(out.elements(), 8192, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      int64_t at[3] = {}, rest = k;
      for (int d = out.rank - 1; d >= 0; --d) {
        for (int i = 0; i < 3; ++i) at[i] += rest % out.dims[d] * strides[i][d];
        rest /= out.dims[d];
      }
      const int from = c.inputs[0].as<uint8_t>()[at[0]] != 0 ? 1 : 2;
      std::memcpy(c.outputs[0].as<uint8_t>() + k * element, c.inputs[from].as<uint8_t>() + at[from] * element,
                  static_cast<size_t>(element));
    }
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Where", 9, kNewest, nullptr, where_infer, where_run, kStrings, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(where, opforge::kRows);
