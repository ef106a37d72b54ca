// gather.cpp: Gather, GatherElements, GatherND. Indices are checked before anything is read through them.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status bad_index(RunContext& c, int64_t index, int64_t size) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "index %lld is out of range for a dimension of %lld",
                static_cast<long long>(index), static_cast<long long>(size));
}

// Whether all indices are in [-size, size); else *bad is the first that is not.
bool all_inside(const Tensor& indices, int64_t size, int64_t* bad) {
  const int64_t n = indices.shape.elements();
  for (int64_t k = 0; k < n; ++k) {
    *bad = index_at(indices, k);
    if (*bad < -size || *bad >= size) return false;
  }
  return true;
}

Status gather_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &data = c.inputs[0].shape, &indices = c.inputs[1].shape;
  const int axis = axis_of(c.attributes->get_int("axis", 0), data.rank);
  if (axis < 0 || !is_index(c.inputs[1]))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis or indices are not valid");
  Shape& out = c.outputs[0].shape;
  out.rank = data.rank - 1 + indices.rank;
  if (out.rank > kMaxRank)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "the result has more than %d dimensions", kMaxRank);
  int at = 0;
  for (int k = 0; k < axis; ++k) out.dims[at++] = data.dims[k];
  for (int k = 0; k < indices.rank; ++k) out.dims[at++] = indices.dims[k];
  for (int k = axis + 1; k < data.rank; ++k) out.dims[at++] = data.dims[k];
  return OPFORGE_STATUS_OK;
}

Status gather_run(RunContext& c) {
  const Tensor &data = c.inputs[0], &indices = c.inputs[1];
  const AxisSplit split(data.shape, axis_of(c.attributes->get_int("axis", 0), data.shape.rank));
  const int64_t n = indices.shape.elements(), row = split.inner * element_bytes(data.dtype);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  int64_t bad = 0;
  if (!all_inside(indices, split.size, &bad)) return bad_index(c, bad, split.size);
  c.parallel(split.outer * n, greater<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t index = index_at(indices, k % n);
      const int64_t from = k / n * split.size + (index < 0 ? index + split.size : index);
      std::memcpy(c.outputs[0].as<uint8_t>() + k * row, data.as<uint8_t>() + from * row,
                  static_cast<size_t>(row));
    }
  });
  return OPFORGE_STATUS_OK;
}

Status elements_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &data = c.inputs[0].shape, &indices = c.inputs[1].shape;
  const int axis = axis_of(c.attributes->get_int("axis", 0), data.rank);
  bool good = axis >= 0 && is_index(c.inputs[1]) && indices.rank == data.rank;
  for (int k = 0; good && k < data.rank; ++k) good = k == axis || indices.dims[k] <= data.dims[k];
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the indices do not fit the data");
  c.outputs[0].shape = indices;
  return OPFORGE_STATUS_OK;
}

Status elements_run(RunContext& c) {
  const Tensor &data = c.inputs[0], &indices = c.inputs[1];
  const int axis = axis_of(c.attributes->get_int("axis", 0), data.shape.rank);
  const int64_t size = data.shape.dims[axis], element = element_bytes(data.dtype);
  int64_t bad = 0;
  if (!all_inside(indices, size, &bad)) return bad_index(c, bad, size);
  int64_t strides[kMaxRank];
  dense_strides(data.shape, strides);
  const int64_t width = indices.shape.rank == 0 ? 1 : indices.shape[-1],
                step = axis + 1 == data.shape.rank ? 0 : 1;
  const int64_t rows = width == 0 ? 0 : indices.shape.elements() / width;
  with_word(element, [&](auto word) {
    using Word = decltype(word);
    const Word* in = data.as<Word>();
    Word* out = c.outputs[0].as<Word>();
    c.parallel(rows, greater<int64_t>(1, 4096 / greater<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t rest = r, from = 0;
        for (int d = data.shape.rank - 2; d >= 0; --d) {
          if (d != axis) from += rest % indices.shape.dims[d] * strides[d];
          rest /= indices.shape.dims[d];
        }
        for (int64_t k = 0; k < width; ++k) {
          const int64_t index = index_at(indices, r * width + k);
          out[r * width + k] = in[from + k * step + (index < 0 ? index + size : index) * strides[axis]];
        }
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

Status nd_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &data = c.inputs[0].shape, &indices = c.inputs[1].shape;
  const int64_t batch = c.attributes->get_int("batch_dims", 0);
  bool good =
      is_index(c.inputs[1]) && indices.rank >= 1 && batch >= 0 && batch < indices.rank && batch < data.rank;
  const int64_t depth = good ? indices[-1] : 0;
  good = good && depth >= 1 && batch + depth <= data.rank;
  for (int64_t k = 0; good && k < batch; ++k) good = data.dims[k] == indices.dims[k];
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the indices do not fit the data");
  Shape out;
  for (int k = 0; k + 1 < indices.rank; ++k) out.dims[out.rank++] = indices.dims[k];
  for (int64_t k = batch + depth; k < data.rank; ++k) {
    if (out.rank == kMaxRank)
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "the result has too many dimensions");
    out.dims[out.rank++] = data.dims[k];
  }
  c.outputs[0].shape = out;
  return OPFORGE_STATUS_OK;
}

Status nd_run(RunContext& c) {
  const Tensor &data = c.inputs[0], &indices = c.inputs[1];
  const int64_t batch = c.attributes->get_int("batch_dims", 0), depth = indices.shape[-1];
  int64_t strides[kMaxRank], batches = 1, slice = 1, batch_size = 1;
  dense_strides(data.shape, strides);
  for (int64_t k = 0; k < batch; ++k) batches *= data.shape.dims[k];
  for (int64_t k = batch; k < data.shape.rank; ++k) batch_size *= data.shape.dims[k];
  for (int64_t k = batch + depth; k < data.shape.rank; ++k) slice *= data.shape.dims[k];
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  const int64_t rows = indices.shape.elements() / depth, row = slice * element_bytes(data.dtype);
  for (int64_t k = 0; k < rows * depth; ++k) {
    const int64_t size = data.shape.dims[batch + k % depth], index = index_at(indices, k);
    if (index < -size || index >= size) return bad_index(c, index, size);
  }
  c.parallel(rows, greater<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t from = r / (rows / batches) * batch_size;
      for (int64_t d = 0; d < depth; ++d) {
        const int64_t index = index_at(indices, r * depth + d);
        from += (index < 0 ? index + data.shape.dims[batch + d] : index) * strides[batch + d];
      }
      std::memcpy(c.outputs[0].as<uint8_t>() + r * row, data.as<uint8_t>() + from * element_bytes(data.dtype),
                  static_cast<size_t>(row));
    }
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Gather", 1, kNewest, nullptr, gather_infer, gather_run, kStrings, 2},
    {"", "GatherElements", 11, kNewest, nullptr, elements_infer, elements_run, kStrings, 2},
    {"", "GatherND", 11, kNewest, nullptr, nd_infer, nd_run, kStrings, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(gather, opforge::kRows);
