// rearrange.cpp: Trilu, Compress, ReverseSequence, TensorScatter and EyeLike: elements of any type change
// their place or are left out.
#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- Trilu
Status trilu_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& x = c.inputs[0].shape;
  if (x.rank < 2)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the input has rank %d, at least 2 is needed", x.rank);
  if (given(c, 1) && (c.inputs[1].dtype != DType::kI64 || c.inputs[1].shape.elements() != 1))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "k is no single i64");
  c.outputs[0].shape = x;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status trilu_run(RunContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const int64_t rows = shape[-2], columns = shape[-1], element = element_bytes(c.inputs[0].dtype);
  if (shape.elements() == 0) return OPFORGE_STATUS_OK;
  const bool upper = c.attributes->get_int("upper", 1) != 0;
  int64_t k = given(c, 1) ? *c.inputs[1].as<int64_t>() : 0;
  k = greater(-rows, lesser(columns, k));
  const uint8_t* x = c.inputs[0].as<uint8_t>();
  uint8_t* y = c.outputs[0].as<uint8_t>();
  c.parallel(shape.elements() / columns, grain_of(columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      // Columns below `edge` lie under the diagonal k.
      const int64_t edge = greater<int64_t>(0, lesser(columns, r % rows + k + (upper ? 0 : 1)));
      const int64_t at = r * columns * element, cut = edge * element, width = columns * element;
      const int64_t keep = upper ? cut : 0, kept = upper ? width - cut : cut;
      if (x != y) std::memcpy(y + at + keep, x + at + keep, static_cast<size_t>(kept));
      std::memset(y + at + (upper ? 0 : cut), 0, static_cast<size_t>(width - kept));
    }
  });
  return OPFORGE_STATUS_OK;
}

// ---- Compress
// The axis as outer, size, inner; without the attribute the input is flat.
bool compress_split(const Attributes& attributes, const Shape& x, AxisSplit* split, int* axis) {
  *axis = -1;
  if (!attributes.has("axis")) {
    split->outer = split->inner = 1;
    split->size = x.elements();
    return true;
  }
  *axis = axis_of(attributes.get_int("axis", 0), x.rank);
  if (*axis >= 0) *split = AxisSplit(x, *axis);
  return *axis >= 0;
}

Shape one_element() {
  Shape s;
  s.rank = 1;
  s.dims[0] = 1;
  return s;
}

Status compress_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Tensor& condition = c.inputs[1];
  AxisSplit split(one_element(), 0);
  int axis;
  if (!compress_split(*c.attributes, c.inputs[0].shape, &split, &axis))
    return bad_axis(c, c.attributes->get_int("axis", 0), c.inputs[0].shape.rank);
  if (condition.dtype != DType::kBool || condition.shape.rank != 1)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the condition is no row of bool");
  if (condition.data == nullptr && condition.shape[0] != 0) return c.need_data(1);
  int64_t count = 0;
  for (int64_t k = 0; k < condition.shape[0]; ++k) {
    if (!condition.as<uint8_t>()[k]) continue;
    if (k >= split.size)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the condition chooses index %lld of %lld",
                    static_cast<long long>(k), static_cast<long long>(split.size));
    ++count;
  }
  Shape& y = c.outputs[0].shape;
  if (axis >= 0) {
    y = c.inputs[0].shape;
    y.dims[axis] = count;
  } else {
    y.rank = 1;
    y.dims[0] = count;
  }
  return OPFORGE_STATUS_OK;
}

Status compress_run(RunContext& c) {
  AxisSplit split(one_element(), 0);
  int axis;
  compress_split(*c.attributes, c.inputs[0].shape, &split, &axis);
  const Tensor& condition = c.inputs[1];
  const int64_t run = split.inner * element_bytes(c.inputs[0].dtype);
  const int64_t limit = lesser(condition.shape[0], split.size), end = c.outputs[0].shape.elements();
  if (end == 0) return OPFORGE_STATUS_OK;
  uint8_t* to = c.outputs[0].as<uint8_t>();
  for (int64_t o = 0; o < split.outer; ++o)
    for (int64_t k = 0; k < limit; ++k) {
      if (!condition.as<uint8_t>()[k]) continue;
      std::memcpy(to, c.inputs[0].as<uint8_t>() + (o * split.size + k) * run, static_cast<size_t>(run));
      to += run;
    }
  return OPFORGE_STATUS_OK;
}

// ---- ReverseSequence: one of the first two axes is the batch, the other one time
bool time_first(const Attributes& attributes) { return attributes.get_int("time_axis", 0) == 0; }

Status reverse_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& x = c.inputs[0].shape;
  const int64_t time = c.attributes->get_int("time_axis", 0), batch = c.attributes->get_int("batch_axis", 1);
  const bool axes = (time == 0 && batch == 1) || (time == 1 && batch == 0);
  if (!axes || x.rank < 2 || c.inputs[1].dtype != DType::kI64 || c.inputs[1].shape.rank != 1 ||
      c.inputs[1].shape[0] != x.dims[batch])
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "ReverseSequence takes axes 0 and 1, and one i64 length for each member of the batch");
  c.outputs[0].shape = x;
  return OPFORGE_STATUS_OK;
}

Status reverse_run(RunContext& c) {
  const Shape& x = c.inputs[0].shape;
  if (x.elements() == 0) return OPFORGE_STATUS_OK;
  const bool first = time_first(*c.attributes);
  const int64_t steps = x.dims[first ? 0 : 1], members = x.dims[first ? 1 : 0];
  const int64_t run = x.elements() / (steps * members) * element_bytes(c.inputs[0].dtype);
  for (int64_t b = 0; b < members; ++b) {
    const int64_t length = c.inputs[1].as<int64_t>()[b];
    if (length < 0 || length > steps)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "a sequence of length %lld, expected 0 to %lld",
                    static_cast<long long>(length), static_cast<long long>(steps));
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t from = t < length ? length - 1 - t : t;
      const auto at = [&](int64_t step) { return (first ? step * members + b : b * steps + step) * run; };
      std::memcpy(c.outputs[0].as<uint8_t>() + at(t), c.inputs[0].as<uint8_t>() + at(from),
                  static_cast<size_t>(run));
    }
  }
  return OPFORGE_STATUS_OK;
}

// ---- TensorScatter: an update of a cache, written from each sample's own place on
Status cache_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape &cache = c.inputs[0].shape, &update = c.inputs[1].shape;
  const int axis = axis_of(c.attributes->get_int("axis", -2), cache.rank);
  const StringView mode = c.attributes->get_string("mode", "linear");
  bool good = axis > 0 && update.rank == cache.rank && c.inputs[1].dtype == c.inputs[0].dtype &&
              (equals(mode, "linear") || equals(mode, "circular"));
  for (int k = 0; good && k < cache.rank; ++k)
    good = k == axis ? update.dims[k] <= cache.dims[k] : update.dims[k] == cache.dims[k];
  if (given(c, 2))
    good = good && c.inputs[2].dtype == DType::kI64 && c.inputs[2].shape.rank == 1 &&
           c.inputs[2].shape[0] == cache.dims[0];
  if (!good)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "cache, update, indices, axis and mode do not fit");
  c.outputs[0].shape = cache;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status cache_run(RunContext& c) {
  const Tensor &cache = c.inputs[0], &update = c.inputs[1];
  const int axis = axis_of(c.attributes->get_int("axis", -2), cache.shape.rank);
  const AxisSplit split(cache.shape, axis);
  const int64_t element = element_bytes(cache.dtype), run = split.inner * element;
  const int64_t steps = update.shape[axis], each = split.outer / greater<int64_t>(1, cache.shape[0]);
  const bool circular = equals(c.attributes->get_string("mode", "linear"), "circular");
  if (cache.shape.elements() == 0) return OPFORGE_STATUS_OK;
  if (c.outputs[0].data != cache.data)
    std::memcpy(c.outputs[0].data, cache.data, static_cast<size_t>(cache.shape.elements() * element));
  for (int64_t o = 0; o < split.outer; ++o) {
    int64_t first = given(c, 2) ? c.inputs[2].as<int64_t>()[o / each] : 0;
    if (circular) first = (first % split.size + split.size) % split.size;
    if (first < 0 || (!circular && first > split.size - steps))
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "an update from %lld on does not fit into %lld",
                    static_cast<long long>(first), static_cast<long long>(split.size));
    for (int64_t t = 0; t < steps; ++t)
      std::memcpy(c.outputs[0].as<uint8_t>() + (o * split.size + (first + t) % split.size) * run,
                  update.as<uint8_t>() + (o * steps + t) * run, static_cast<size_t>(run));
  }
  return OPFORGE_STATUS_OK;
}

// ---- EyeLike
Status eye_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  if (c.inputs[0].shape.rank != 2)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the input has rank %d, expected 2",
                  c.inputs[0].shape.rank);
  const DType y = c.outputs[0].dtype;
  const bool known = has_type(y) || y == DType::kBool || y == DType::kF16 || y == DType::kBF16;
  if (!known || !is_plain(c.outputs[0])) return no_type(c);
  c.outputs[0].shape = c.inputs[0].shape;
  return OPFORGE_STATUS_OK;
}

// The bytes of 1.
uint64_t one_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x3F800000;
    case DType::kF64:
      return 0x3FF0000000000000;
    case DType::kF16:
      return 0x3C00;
    case DType::kBF16:
      return 0x3F80;
    default:
      return 1;
  }
}

Status eye_run(RunContext& c) {
  const Shape& shape = c.outputs[0].shape;
  const int64_t element = element_bytes(c.outputs[0].dtype), rows = shape[0], columns = shape[1];
  if (shape.elements() == 0) return OPFORGE_STATUS_OK;
  const int64_t k = greater(-rows, lesser(columns, c.attributes->get_int("k", 0)));
  const uint64_t one = one_of(c.outputs[0].dtype);
  uint8_t* y = c.outputs[0].as<uint8_t>();
  std::memset(y, 0, static_cast<size_t>(rows * columns * element));
  for (int64_t r = greater<int64_t>(0, -k); r < rows && r + k < columns; ++r)
    std::memcpy(y + (r * columns + r + k) * element, &one, static_cast<size_t>(element));
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Trilu", 14, kNewest, nullptr, trilu_infer, trilu_run, 0, 1, 2},
    {"", "Compress", 9, kNewest, nullptr, compress_infer, compress_run, kStrings, 2},
    {"", "ReverseSequence", 10, kNewest, nullptr, reverse_infer, reverse_run, kStrings, 2},
    {"", "TensorScatter", 24, kNewest, nullptr, cache_infer, cache_run, 0, 2, 3},
    {"", "EyeLike", 9, kNewest, nullptr, eye_infer, eye_run, kShapeOnly},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(rearrange, opforge::kRows);
