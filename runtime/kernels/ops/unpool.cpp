// unpool.cpp: Col2Im and MaxUnpool: elements go back to where windows took them from.
#include "kernels/move.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr int64_t kMost = int64_t{1} << 31;

// ---- Col2Im: [N, C * block, L] to [N, C, image...]; what meets in a pixel is added
struct Columns {
  int rank = 0;
  int64_t image[kMaxRank] = {}, block[kMaxRank] = {}, steps[kMaxRank] = {};
  int64_t stride[kMaxRank] = {}, dilation[kMaxRank] = {}, before[kMaxRank] = {};
  int64_t channels = 0, taps = 1, positions = 1, pixels = 1;
};

bool list_of(const Attributes& attributes, const char* name, int64_t n, int64_t otherwise, int64_t least,
             int64_t* values) {
  const int64_t* given = nullptr;
  int64_t count = 0;
  const bool there = attributes.get_ints(name, &given, &count);
  if (there && count != n) return false;
  for (int64_t k = 0; k < n; ++k) {
    values[k] = there ? given[k] : otherwise;
    if (values[k] < least || values[k] >= kMost) return false;
  }
  return true;
}

// *n *= factor; false when that is more than `most`.
bool multiply(int64_t* n, int64_t factor, int64_t most) {
  return !__builtin_mul_overflow(*n, factor, n) && *n <= most;
}

template <class Context>
bool columns_of(const Context& c, Columns* p) {
  const Shape& x = c.inputs[0].shape;
  int64_t rank = 0, other = 0, pads[2 * kMaxRank];
  if (x.rank != 3 || !read_values(c.inputs[1], p->image, kMaxRank - 2, &rank) ||
      !read_values(c.inputs[2], p->block, kMaxRank - 2, &other) || rank < 1 || rank != other ||
      !list_of(*c.attributes, "strides", rank, 1, 1, p->stride) ||
      !list_of(*c.attributes, "dilations", rank, 1, 1, p->dilation) ||
      !list_of(*c.attributes, "pads", 2 * rank, 0, 0, pads))
    return false;
  p->rank = static_cast<int>(rank);
  for (int k = 0; k < p->rank; ++k) {
    if (p->image[k] < 0 || p->image[k] >= kMost || p->block[k] < 1 || p->block[k] >= kMost) return false;
    p->before[k] = pads[k];
    const int64_t room = p->image[k] + pads[k] + pads[rank + k] - ((p->block[k] - 1) * p->dilation[k] + 1);
    p->steps[k] = room < 0 ? 0 : room / p->stride[k] + 1;
    if (!multiply(&p->taps, p->block[k], greater<int64_t>(x[1], 1)) ||
        !multiply(&p->positions, p->steps[k], x[2]) || !multiply(&p->pixels, p->image[k], int64_t{1} << 44))
      return false;
  }
  p->channels = x[1] / p->taps;
  return p->channels * p->taps == x[1] && p->positions == x[2];
}

Status columns_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  if (!has_sum_type(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  for (int32_t k = 1; k < 3; ++k)
    if (c.inputs[k].data == nullptr) return c.need_data(k);
  Columns p;
  if (!columns_of(c, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the input [N, C*block, L], the image, the block and the attributes of Col2Im do not fit");
  Shape& y = c.outputs[0].shape;
  y.rank = 2 + p.rank;
  y.dims[0] = c.inputs[0].shape[0], y.dims[1] = p.channels;
  for (int k = 0; k < p.rank; ++k) y.dims[2 + k] = p.image[k];
  return OPFORGE_STATUS_OK;
}

Status columns_run(RunContext& c) {
  Columns p;
  columns_of(c, &p);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  with_sum_type(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    c.parallel(c.inputs[0].shape[0] * p.channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        T* to = c.outputs[0].as<T>() + plane * p.pixels;
        const T* from = c.inputs[0].as<T>() + plane * p.taps * p.positions;
        for (int64_t k = 0; k < p.pixels; ++k) to[k] = 0;
        for (int64_t tap = 0; tap < p.taps; ++tap)
          for (int64_t position = 0; position < p.positions; ++position, ++from) {
            int64_t pixel = 0, t = tap, s = position, scale = 1;
            bool inside = true;
            for (int d = p.rank - 1; d >= 0; --d) {
              const int64_t i = s % p.steps[d] * p.stride[d] - p.before[d] + t % p.block[d] * p.dilation[d];
              inside = inside && i >= 0 && i < p.image[d];
              pixel += i * scale;
              scale *= p.image[d];
              t /= p.block[d], s /= p.steps[d];
            }
            if (inside) to[pixel] = static_cast<T>(to[pixel] + *from);
          }
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- MaxUnpool
// The size that the attributes give: indices count in it, also where input 2 names a larger result.
bool unpooled(const Attributes& attributes, const Shape& x, Shape* y) {
  const int n = x.rank - 2;
  int64_t kernel[kMaxRank], stride[kMaxRank], pads[2 * kMaxRank];
  if (n < 1 || !attributes.has("kernel_shape") || !list_of(attributes, "kernel_shape", n, 1, 1, kernel) ||
      !list_of(attributes, "strides", n, 1, 1, stride) || !list_of(attributes, "pads", 2 * n, 0, 0, pads))
    return false;
  *y = x;
  for (int k = 0; k < n; ++k) {
    if (x.dims[2 + k] >= kMost) return false;
    y->dims[2 + k] = (x.dims[2 + k] - 1) * stride[k] + kernel[k] - pads[k] - pads[n + k];
    if (y->dims[2 + k] < 0) return false;
  }
  return true;
}

Status unpool_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  Shape plain, &y = c.outputs[0].shape;
  bool good = c.inputs[1].dtype == DType::kI64 && same_shape(c.inputs[0].shape, c.inputs[1].shape) &&
              unpooled(*c.attributes, c.inputs[0].shape, &plain);
  y = plain;
  if (good && given(c, 2)) {
    if (c.inputs[2].data == nullptr) return c.need_data(2);
    int64_t count = 0;
    good = read_values(c.inputs[2], y.dims, kMaxRank, &count) && count == plain.rank;
    for (int k = 0; good && k < y.rank; ++k) good = y.dims[k] >= plain.dims[k];
  }
  if (!good)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X, indices, the result's shape and the attributes of MaxUnpool do not fit");
  return OPFORGE_STATUS_OK;
}

Status unpool_run(RunContext& c) {
  Shape plain;
  const Tensor& x = c.inputs[0];
  unpooled(*c.attributes, x.shape, &plain);
  const Shape& y = c.outputs[0].shape;
  const int64_t element = element_bytes(x.dtype), n = x.shape.elements(), size = plain.elements();
  if (y.elements() != 0) std::memset(c.outputs[0].data, 0, static_cast<size_t>(y.elements() * element));
  int64_t strides[kMaxRank];
  dense_strides(y, strides);
  const bool same = same_shape(plain, y);
  for (int64_t k = 0; k < n; ++k) {
    int64_t index = c.inputs[1].as<int64_t>()[k], to = 0;
    if (index < 0 || index >= size)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "index %lld is out of range for %lld elements",
                    static_cast<long long>(index), static_cast<long long>(size));
    for (int d = plain.rank - 1; !same && d >= 0; --d) {
      to += index % plain.dims[d] * strides[d];
      index /= plain.dims[d];
    }
    std::memcpy(c.outputs[0].as<uint8_t>() + (same ? index : to) * element, x.as<uint8_t>() + k * element,
                static_cast<size_t>(element));
  }
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Col2Im", 18, kNewest, nullptr, columns_infer, columns_run, 0, 3},
    {"", "MaxUnpool", 9, kNewest, nullptr, unpool_infer, unpool_run, 0, 2, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(unpool, opforge::kRows);
