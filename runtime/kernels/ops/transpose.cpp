// transpose.cpp: Transpose of plain tensors; where only dimensions of size 1 move it is a view.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

// The permutation; false when it is none.
bool permutation(const Attributes& attributes, int rank, int* perm) {
  const int64_t* given = nullptr;
  int64_t count = 0;
  if (!attributes.get_ints("perm", &given, &count)) {
    for (int k = 0; k < rank; ++k) perm[k] = rank - 1 - k;
    return true;
  }
  bool seen[kMaxRank] = {};
  for (int64_t k = 0; k < count && count == rank; ++k) {
    const int axis = axis_of(given[k], rank);
    if (axis < 0 || seen[axis]) return false;
    seen[axis] = true;
    perm[k] = axis;
  }
  return count == rank;
}

Status transpose_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  int perm[kMaxRank], last = -1;
  if (!permutation(*c.attributes, in.rank, perm)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "perm is no permutation of %d dimensions", in.rank);
  }
  Shape& out = c.outputs[0].shape;
  out.rank = in.rank;
  bool ordered = true;
  for (int k = 0; k < in.rank; ++k) {
    out.dims[k] = in.dims[perm[k]];
    if (out.dims[k] == 1) continue;
    ordered = ordered && perm[k] > last;
    last = perm[k];
  }
  if (ordered) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status transpose_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  int perm[kMaxRank];
  permutation(*c.attributes, in.shape.rank, perm);
  int64_t dense[kMaxRank], strides[kMaxRank];
  dense_strides(in.shape, dense);
  for (int k = 0; k < in.shape.rank; ++k) strides[k] = dense[perm[k]];
  copy_strided(c, c.outputs[0].data, in.data, c.outputs[0].shape, strides, element_bytes(in.dtype));
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Transpose", 1, kNewest, nullptr, transpose_infer, transpose_run, kStrings},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(transpose, opforge::kRows);
