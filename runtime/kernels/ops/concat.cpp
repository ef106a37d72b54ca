// concat.cpp: Concat and Split along an axis, on plain tensors.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status concat_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& first = c.inputs[0].shape;
  const int axis = axis_of(c.attributes->get_int("axis", 0), first.rank);
  if (axis < 0) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis is out of range");
  Shape out = first;
  for (int32_t i = 1; i < c.n_inputs; ++i) {
    const Shape& shape = c.inputs[i].shape;
    bool good = shape.rank == first.rank && c.inputs[i].dtype == c.inputs[0].dtype;
    for (int k = 0; good && k < first.rank; ++k) good = k == axis || shape.dims[k] == first.dims[k];
    if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "input %d does not fit the first one", i);
    out.dims[axis] += shape.dims[axis];
  }
  c.outputs[0].shape = out;
  return OPFORGE_STATUS_OK;
}

Status concat_run(RunContext& c) {
  Tensor& out = c.outputs[0];
  const int axis = axis_of(c.attributes->get_int("axis", 0), out.shape.rank);
  const AxisSplit all(out.shape, axis);
  const int64_t element = element_bytes(out.dtype), row = all.size * all.inner * element;
  int64_t at = 0;
  for (int32_t i = 0; i < c.n_inputs; ++i) {
    const AxisSplit part(c.inputs[i].shape, axis);
    const int64_t bytes = part.size * part.inner * element;
    const uint8_t* from = c.inputs[i].as<uint8_t>();
    uint8_t* to = out.as<uint8_t>() + at;
    if (bytes != 0) {
      c.parallel(part.outer, greater<int64_t>(1, 262144 / bytes), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          std::memcpy(to + r * row, from + r * bytes, static_cast<size_t>(bytes));
      });
    }
    at += bytes;
  }
  return OPFORGE_STATUS_OK;
}

// Sizes of the parts: the second input, else even parts (the last one smaller).
Status split_sizes(InferContext& c, int64_t size, int64_t* sizes, bool* unknown) {
  *unknown = false;
  int64_t count = 0, sum = 0;
  if (c.n_inputs > 1 && c.inputs[1].present()) {
    if (c.inputs[1].data == nullptr) {
      *unknown = true;
      return OPFORGE_STATUS_OK;
    }
    if (!read_values(c.inputs[1], sizes, c.n_outputs, &count) || count != c.n_outputs) {
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the sizes of the parts are no list of %d integers",
                    c.n_outputs);
    }
  } else {
    const int64_t even = (size + c.n_outputs - 1) / c.n_outputs;
    for (int32_t k = 0; k < c.n_outputs; ++k) sizes[k] = lesser(even, greater<int64_t>(0, size - even * k));
  }
  for (int32_t k = 0; k < c.n_outputs; ++k) {
    if (sizes[k] < 0 || sizes[k] > size)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "part %d has a bad size", k);
    sum += sizes[k];
  }
  if (sum == size) return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the parts have %lld elements together, the axis has %lld", static_cast<long long>(sum),
                static_cast<long long>(size));
}

Status split_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  const int axis = axis_of(c.attributes->get_int("axis", 0), in.rank);
  constexpr int kMost = 1024;
  if (axis < 0 || c.n_outputs < 1 || c.n_outputs > kMost) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis is out of range or there are too many parts");
  }
  int64_t sizes[kMost];
  bool unknown = false;
  if (Status status = split_sizes(c, in.dims[axis], sizes, &unknown)) return status;
  if (unknown) return c.need_data(1);
  for (int32_t k = 0; k < c.n_outputs; ++k) {
    c.outputs[k].shape = in;
    c.outputs[k].shape.dims[axis] = sizes[k];
  }
  return OPFORGE_STATUS_OK;
}

Status split_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  const int axis = axis_of(c.attributes->get_int("axis", 0), in.shape.rank);
  const AxisSplit all(in.shape, axis);
  const int64_t element = element_bytes(in.dtype);
  int64_t given[1024], count = 0;
  const bool listed =
      c.n_inputs > 1 && c.inputs[1].present() && read_values(c.inputs[1], given, 1024, &count);
  const int64_t even = (all.size + c.n_outputs - 1) / c.n_outputs;
  int64_t at = 0;
  for (int32_t k = 0; k < c.n_outputs; ++k) {
    // The sizes come from the arguments: an output that nobody reads has no shape here.
    const int64_t size = listed ? given[k] : lesser(even, greater<int64_t>(0, all.size - even * k));
    const int64_t bytes = size * all.inner * element;
    const uint8_t* from = in.as<uint8_t>() + at;
    uint8_t* to = c.outputs[k].as<uint8_t>();
    if (c.outputs[k].present() && bytes != 0) {
      const int64_t row = all.size * all.inner * element;
      c.parallel(all.outer, greater<int64_t>(1, 262144 / bytes), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          std::memcpy(to + r * bytes, from + r * row, static_cast<size_t>(bytes));
      });
    }
    at += bytes;
  }
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Concat", 4, kNewest, nullptr, concat_infer, concat_run, kAllInputs | kStrings},
    {"", "Split", 13, kNewest, nullptr, split_infer, split_run, kAnyOutput | kStrings, 1, 2, kMany},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(concat, opforge::kRows);
