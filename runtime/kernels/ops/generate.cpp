// generate.cpp: ConstantOfShape, Range, OneHot: tensors made from a few numbers.
#include <type_traits>

#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- ConstantOfShape: the value is input 1 (a one-element constant made by the compiler) or 0.0f
// ------------
Status constant_infer(InferContext& c) {
  const Tensor& shape = c.inputs[0];
  if (shape.data == nullptr && shape.shape.elements() != 0) return c.need_data(0);
  Shape& out = c.outputs[0].shape;
  int64_t count = 0;
  bool good = read_values(shape, out.dims, kMaxRank, &count) && element_bytes(c.outputs[0].dtype) != 0 &&
              is_plain(c.outputs[0]);
  out.rank = static_cast<int32_t>(count);
  for (int k = 0; good && k < out.rank; ++k) good = out.dims[k] >= 0;
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shape is no short list of sizes");
  if (c.n_inputs > 1 && c.inputs[1].present() &&
      (c.inputs[1].dtype != c.outputs[0].dtype || c.inputs[1].shape.elements() != 1)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the value is not one element of the result's dtype");
  }
  return OPFORGE_STATUS_OK;
}

Status constant_run(RunContext& c) {
  Tensor& out = c.outputs[0];
  const int64_t element = element_bytes(out.dtype);
  uint8_t value[8] = {};
  if (c.n_inputs > 1 && c.inputs[1].present())
    std::memcpy(value, c.inputs[1].data, static_cast<size_t>(element));
  const int64_t strides[kMaxRank] = {};
  copy_strided(c, out.data, value, out.shape, strides, element);
  return OPFORGE_STATUS_OK;
}

// ---- Range
// --------------------------------------------------------------------------------------------------
template <class T>
bool range_size(const Tensor* inputs, int64_t* size) {
  const T start = *inputs[0].as<T>(), limit = *inputs[1].as<T>(), delta = *inputs[2].as<T>();
  if (delta == 0) return false;
  const double steps = (static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta);
  if (!(steps < 1e15)) return false;
  const auto whole = static_cast<int64_t>(steps < 0 ? 0 : steps);
  *size = steps > static_cast<double>(whole) ? whole + 1 : whole;
  return true;
}

template <class T>
void range_fill(const Tensor* inputs, Tensor* out) {
  const T start = *inputs[0].as<T>(), delta = *inputs[2].as<T>();
  const int64_t n = out->shape.elements();
  // Integers as unsigned numbers: where their doubles were rounded, the last one may wrap.
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  for (int64_t k = 0; k < n; ++k)
    out->as<T>()[k] =
        static_cast<T>(static_cast<Wide>(start) + static_cast<Wide>(k) * static_cast<Wide>(delta));
}

Status range_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  for (int32_t k = 0; k < 3; ++k) {
    if (c.inputs[k].dtype != c.outputs[0].dtype || c.inputs[k].shape.elements() != 1) {
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "start, limit and delta are not three numbers of one dtype");
    }
    if (c.inputs[k].data == nullptr) return c.need_data(k);
  }
  int64_t size = 0;
  bool good = false;
  switch (c.outputs[0].dtype) {
    case DType::kF32:
      good = range_size<float>(c.inputs, &size);
      break;
    case DType::kF64:
      good = range_size<double>(c.inputs, &size);
      break;
    case DType::kI16:
      good = range_size<int16_t>(c.inputs, &size);
      break;
    case DType::kI32:
      good = range_size<int32_t>(c.inputs, &size);
      break;
    case DType::kI64:
      good = range_size<int64_t>(c.inputs, &size);
      break;
    default:
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Range has no such dtype");
  }
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the range is not finite");
  c.outputs[0].shape.rank = 1;
  c.outputs[0].shape.dims[0] = size;
  return OPFORGE_STATUS_OK;
}

Status range_run(RunContext& c) {
  switch (c.outputs[0].dtype) {
    case DType::kF32:
      range_fill<float>(c.inputs, c.outputs);
      break;
    case DType::kF64:
      range_fill<double>(c.inputs, c.outputs);
      break;
    case DType::kI16:
      range_fill<int16_t>(c.inputs, c.outputs);
      break;
    case DType::kI32:
      range_fill<int32_t>(c.inputs, c.outputs);
      break;
    default:
      range_fill<int64_t>(c.inputs, c.outputs);
  }
  return OPFORGE_STATUS_OK;
}

// ---- OneHot: indices (any integer or float dtype), depth, values [off, on]
// ----------------------------------
double number_at(const Tensor& t, int64_t k) {
  switch (t.dtype) {
    case DType::kF32:
      return t.as<float>()[k];
    case DType::kF64:
      return t.as<double>()[k];
    case DType::kU8:
      return t.as<uint8_t>()[k];
    case DType::kI8:
      return t.as<int8_t>()[k];
    case DType::kI32:
      return t.as<int32_t>()[k];
    default:
      return static_cast<double>(t.as<int64_t>()[k]);
  }
}

bool is_number(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kU8 || dtype == DType::kI8 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

Status onehot_infer(InferContext& c) {
  if (Status status = check_movable(c, 2)) return status;
  const Shape& in = c.inputs[0].shape;
  const int axis = axis_of(c.attributes->get_int("axis", -1), in.rank + 1);
  if (axis < 0 || in.rank + 1 > kMaxRank || !is_number(c.inputs[0].dtype) || !is_number(c.inputs[1].dtype) ||
      c.inputs[1].shape.elements() != 1 || c.inputs[2].shape.elements() != 2 ||
      c.inputs[2].dtype != c.outputs[0].dtype) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis, indices, depth or values are not valid");
  }
  if (c.inputs[1].data == nullptr) return c.need_data(1);
  const double depth = number_at(c.inputs[1], 0);
  if (!(depth >= 0 && depth < 1e12))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "depth is out of range");
  Shape& out = c.outputs[0].shape;
  out.rank = in.rank + 1;
  for (int k = 0, from = 0; k < out.rank; ++k)
    out.dims[k] = k == axis ? static_cast<int64_t>(depth) : in.dims[from++];
  return OPFORGE_STATUS_OK;
}

Status onehot_run(RunContext& c) {
  const Tensor &indices = c.inputs[0], &values = c.inputs[2];
  Tensor& out = c.outputs[0];
  const AxisSplit split(out.shape, axis_of(c.attributes->get_int("axis", -1), out.shape.rank));
  const int64_t element = element_bytes(out.dtype);
  const int64_t strides[kMaxRank] = {};
  copy_strided(c, out.data, values.data, out.shape, strides, element);
  const int64_t n = out.shape.elements() == 0 ? 0 : split.outer * split.inner;
  for (int64_t k = 0; k < n; ++k) {
    double index = number_at(indices, k);
    if (index < 0) index += static_cast<double>(split.size);
    if (!(index >= 0 && index < static_cast<double>(split.size))) continue;  // a row of off values
    const int64_t at =
        (k / split.inner * split.size + static_cast<int64_t>(index)) * split.inner + k % split.inner;
    std::memcpy(out.as<uint8_t>() + at * element, values.as<uint8_t>() + element,
                static_cast<size_t>(element));
  }
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "ConstantOfShape", 9, kNewest, nullptr, constant_infer, constant_run, 0, 1, 2},
    {"", "Range", 11, kNewest, nullptr, range_infer, range_run, 0, 3},
    {"", "OneHot", 9, kNewest, nullptr, onehot_infer, onehot_run, 0, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(generate, opforge::kRows);
