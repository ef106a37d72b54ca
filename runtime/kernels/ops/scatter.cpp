// scatter.cpp: ScatterND, ScatterElements (with reductions) and NonZero. Updates run in order on one thread,
// so that repeated indices give the same result every time.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

enum class Reduce { kNone, kAdd, kMul, kMin, kMax, kUnknown };

Reduce reduce_of(const Attributes& attributes) {
  const StringView name = attributes.get_string("reduction", "none");
  return equals(name, "none")  ? Reduce::kNone
         : equals(name, "add") ? Reduce::kAdd
         : equals(name, "mul") ? Reduce::kMul
         : equals(name, "min") ? Reduce::kMin
         : equals(name, "max") ? Reduce::kMax
                               : Reduce::kUnknown;
}

bool reducible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32 || dtype == DType::kI64;
}

template <class T>
void combine(Reduce reduce, T* to, const T* from, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    if (reduce == Reduce::kAdd) to[k] = to[k] + from[k];
    if (reduce == Reduce::kMul) to[k] = to[k] * from[k];
    if (reduce == Reduce::kMin) to[k] = from[k] < to[k] || from[k] != from[k] ? from[k] : to[k];
    if (reduce == Reduce::kMax) to[k] = from[k] > to[k] || from[k] != from[k] ? from[k] : to[k];
  }
}

void update(Reduce reduce, DType dtype, uint8_t* to, const uint8_t* from, int64_t n) {
  if (reduce == Reduce::kNone) {
    std::memcpy(to, from, static_cast<size_t>(n * element_bytes(dtype)));
    return;
  }
  // Integers wrap: added and multiplied as unsigned numbers.
  switch (dtype) {
    case DType::kF32:
      return combine(reduce, reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), n);
    case DType::kF64:
      return combine(reduce, reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), n);
    case DType::kI32:
      if (reduce == Reduce::kAdd || reduce == Reduce::kMul) {
        return combine(reduce, reinterpret_cast<uint32_t*>(to), reinterpret_cast<const uint32_t*>(from), n);
      }
      return combine(reduce, reinterpret_cast<int32_t*>(to), reinterpret_cast<const int32_t*>(from), n);
    default:
      if (reduce == Reduce::kAdd || reduce == Reduce::kMul) {
        return combine(reduce, reinterpret_cast<uint64_t*>(to), reinterpret_cast<const uint64_t*>(from), n);
      }
      return combine(reduce, reinterpret_cast<int64_t*>(to), reinterpret_cast<const int64_t*>(from), n);
  }
}

Status check_reduction(InferContext& c) {
  const Reduce reduce = reduce_of(*c.attributes);
  if (reduce == Reduce::kUnknown) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "unknown reduction");
  if (reduce != Reduce::kNone && !reducible(c.inputs[0].dtype)) {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "no reduction for this dtype");
  }
  if (!is_index(c.inputs[1]) || c.inputs[2].dtype != c.inputs[0].dtype) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "indices or updates have a wrong dtype");
  }
  c.outputs[0].shape = c.inputs[0].shape;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

void copy_data(RunContext& c) {
  const Tensor& data = c.inputs[0];
  const int64_t bytes = storage_bytes(data.dtype, data.shape, data.layout);
  if (c.outputs[0].data != data.data && bytes != 0)
    std::memcpy(c.outputs[0].data, data.data, static_cast<size_t>(bytes));
}

Status bad_index(RunContext& c, int64_t index, int64_t size) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "index %lld is out of range for a dimension of %lld",
                static_cast<long long>(index), static_cast<long long>(size));
}

Status nd_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &data = c.inputs[0].shape, &indices = c.inputs[1].shape, &updates = c.inputs[2].shape;
  const int64_t depth = indices.rank >= 1 ? indices[-1] : 0;
  bool good = depth >= 1 && depth <= data.rank && updates.rank == indices.rank - 1 + data.rank - depth;
  for (int k = 0; good && k < updates.rank; ++k) {
    good = updates.dims[k] ==
           (k < indices.rank - 1 ? indices.dims[k] : data.dims[k - (indices.rank - 1) + depth]);
  }
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "indices and updates do not fit the data");
  return check_reduction(c);
}

Status nd_run(RunContext& c) {
  const Tensor &data = c.inputs[0], &indices = c.inputs[1], &updates = c.inputs[2];
  const Reduce reduce = reduce_of(*c.attributes);
  const int64_t depth = indices.shape[-1], rows = indices.shape.elements() / depth;
  int64_t strides[kMaxRank], slice = 1;
  dense_strides(data.shape, strides);
  for (int64_t k = depth; k < data.shape.rank; ++k) slice *= data.shape.dims[k];
  const int64_t element = element_bytes(data.dtype);
  copy_data(c);
  for (int64_t r = 0; r < rows && slice != 0; ++r) {
    int64_t to = 0;
    for (int64_t d = 0; d < depth; ++d) {
      const int64_t size = data.shape.dims[d], index = index_at(indices, r * depth + d);
      if (index < -size || index >= size) return bad_index(c, index, size);
      to += (index < 0 ? index + size : index) * strides[d];
    }
    update(reduce, data.dtype, c.outputs[0].as<uint8_t>() + to * element,
           updates.as<uint8_t>() + r * slice * element, slice);
  }
  return OPFORGE_STATUS_OK;
}

Status elements_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &data = c.inputs[0].shape, &indices = c.inputs[1].shape;
  const int axis = axis_of(c.attributes->get_int("axis", 0), data.rank);
  bool good = axis >= 0 && indices.rank == data.rank && same_shape(indices, c.inputs[2].shape);
  for (int k = 0; good && k < data.rank; ++k) good = k == axis || indices.dims[k] <= data.dims[k];
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "indices and updates do not fit the data");
  return check_reduction(c);
}

Status elements_run(RunContext& c) {
  const Tensor &data = c.inputs[0], &indices = c.inputs[1], &updates = c.inputs[2];
  const Reduce reduce = reduce_of(*c.attributes);
  const int axis = axis_of(c.attributes->get_int("axis", 0), data.shape.rank);
  int64_t strides[kMaxRank];
  dense_strides(data.shape, strides);
  const int64_t element = element_bytes(data.dtype), n = indices.shape.elements(),
                size = data.shape.dims[axis];
  copy_data(c);
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k, to = 0;
    for (int d = data.shape.rank - 1; d >= 0; --d) {
      if (d != axis) to += rest % indices.shape.dims[d] * strides[d];
      rest /= indices.shape.dims[d];
    }
    const int64_t index = index_at(indices, k);
    if (index < -size || index >= size) return bad_index(c, index, size);
    to += (index < 0 ? index + size : index) * strides[axis];
    update(reduce, data.dtype, c.outputs[0].as<uint8_t>() + to * element, updates.as<uint8_t>() + k * element,
           1);
  }
  return OPFORGE_STATUS_OK;
}

// ---- NonZero
// Calls f(k) for the elements that differ from zero: -0.0 does not, NaN does.
template <class F>
void each_non_zero(const Tensor& x, F&& f) {
  const int64_t n = x.shape.elements();
  const bool real =
      x.dtype == DType::kF32 || x.dtype == DType::kF64 || x.dtype == DType::kF16 || x.dtype == DType::kBF16;
  const auto scan = [&](auto* words) {
    using Word = std::remove_const_t<std::remove_pointer_t<decltype(words)>>;
    const Word mask =
        real ? static_cast<Word>(~Word{0}) >> 1 : static_cast<Word>(~Word{0});  // without the sign
    for (int64_t k = 0; k < n; ++k)
      if ((words[k] & mask) != 0) f(k);
  };
  switch (element_bytes(x.dtype)) {
    case 1:
      return scan(x.as<const uint8_t>());
    case 2:
      return scan(x.as<const uint16_t>());
    case 4:
      return scan(x.as<const uint32_t>());
    default:
      return scan(x.as<const uint64_t>());
  }
}

Status nonzero_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  if (c.outputs[0].dtype != DType::kI64)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the result is not i64");
  const Tensor& x = c.inputs[0];
  const int64_t n = x.shape.elements();
  if (n != 0 && x.data == nullptr) return c.need_data(0);
  int64_t count = 0;
  each_non_zero(x, [&](int64_t) { ++count; });
  Shape& out = c.outputs[0].shape;
  out.rank = 2;
  out.dims[0] = x.shape.rank;
  out.dims[1] = count;
  return OPFORGE_STATUS_OK;
}

Status nonzero_run(RunContext& c) {
  const Tensor& x = c.inputs[0];
  const int64_t count = c.outputs[0].shape.dims[1], rank = x.shape.rank;
  int64_t* out = c.outputs[0].as<int64_t>();
  // The place of the element before, so that most places follow by additions.
  int64_t place[kMaxRank] = {}, last = 0, at = 0;
  each_non_zero(x, [&](int64_t k) {
    if (at == count) return;
    int64_t carry = k - last;
    last = k;
    for (int64_t d = rank - 1; d >= 0 && carry != 0; --d) {
      const int64_t size = x.shape.dims[d];
      place[d] += carry;
      carry = 0;
      if (place[d] >= size) {
        carry = place[d] / size;
        place[d] %= size;
      }
    }
    for (int64_t d = 0; d < rank; ++d) out[d * count + at] = place[d];
    ++at;
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "ScatterND", 11, kNewest, nullptr, nd_infer, nd_run, kStrings, 3},
    {"", "ScatterElements", 11, kNewest, nullptr, elements_infer, elements_run, kStrings, 3},
    {"", "NonZero", 9, kNewest, nullptr, nonzero_infer, nonzero_run},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(scatter, opforge::kRows);
