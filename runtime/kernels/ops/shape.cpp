// shape.cpp: Shape, Size: known from shapes alone, so they are computed while planning.
#include <initializer_list>

#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

// The part [start, end) of the dimensions; negative counts from the end, both are clamped.
void range(const Attributes& attributes, int rank, int64_t* start, int64_t* end) {
  *start = attributes.get_int("start", 0);
  *end = attributes.get_int("end", rank);
  for (int64_t* at : {start, end}) {
    if (*at < 0) *at += rank;
    *at = *at < 0 ? 0 : *at > rank ? rank : *at;
  }
  if (*end < *start) *end = *start;
}

Status check_result(InferContext& c) {
  if (c.outputs[0].dtype == DType::kI64 && is_plain(c.outputs[0])) return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the result is not a plain i64");
}

Status shape_infer(InferContext& c) {
  int64_t start, end;
  range(*c.attributes, c.inputs[0].shape.rank, &start, &end);
  c.outputs[0].shape.rank = 1;
  c.outputs[0].shape.dims[0] = end - start;
  return check_result(c);
}

Status shape_run(RunContext& c) {
  int64_t start, end;
  range(*c.attributes, c.inputs[0].shape.rank, &start, &end);
  for (int64_t k = start; k < end; ++k) c.outputs[0].as<int64_t>()[k - start] = c.inputs[0].shape.dims[k];
  return OPFORGE_STATUS_OK;
}

Status size_infer(InferContext& c) {
  c.outputs[0].shape.rank = 0;
  return check_result(c);
}

Status size_run(RunContext& c) {
  *c.outputs[0].as<int64_t>() = c.inputs[0].shape.elements();
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Shape", 1, kNewest, nullptr, shape_infer, shape_run, kShapeOnly | kStrings},
    {"", "Size", 1, kNewest, nullptr, size_infer, size_run, kShapeOnly | kStrings},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(shape, opforge::kRows);
