// move.h: what kernels that only move data share: element sizes, integer arguments, strided copies.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

constexpr int32_t kNewest = INT32_MAX;

// Bytes of an element; 0 for sub-byte types, which these kernels do not move. That of a string is its number.
int64_t element_bytes(DType dtype);

// Calls f with a number of as many bytes as an element has.
template <class F>
void with_word(int64_t element, F&& f) {
  switch (element) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// Copies a tensor of integers (i32 or i64, at most one dimension) into values; false when it is none or too
// long.
bool read_values(const Tensor& tensor, int64_t* values, int64_t capacity, int64_t* count);

// Row-major strides of a shape, in elements.
void dense_strides(const Shape& shape, int64_t* strides);

// NumPy broadcasting of two shapes; false when they do not fit.
bool broadcast(const Shape& a, const Shape& b, Shape* out);
// Strides that read `shape` as if it were broadcast to `out`.
void broadcast_strides(const Shape& shape, const Shape& out, int64_t* strides);

// to (dense, of this shape) = from, whose element (i, j, ...) lies at i*strides[0] + j*strides[1] + ...
// elements. Runs of contiguous elements are copied at once; the work is shared among threads.
void copy_strided(RunContext& context, void* to, const void* from, const Shape& shape, const int64_t* strides,
                  int64_t element);
// The other direction: to is strided, from is dense.
void copy_to_strided(RunContext& context, void* to, const void* from, const Shape& shape,
                     const int64_t* strides, int64_t element);

// Splits a shape at an axis: product before, the axis, product after.
struct AxisSplit {
  int64_t outer = 1, size = 1, inner = 1;
  AxisSplit(const Shape& shape, int axis) : size(shape.dims[axis]) {
    for (int k = 0; k < axis; ++k) outer *= shape.dims[k];
    for (int k = axis + 1; k < shape.rank; ++k) inner *= shape.dims[k];
  }
};

// Refuses layouts other than plain, elements of no whole bytes, and outputs of another dtype than that of
// input `dtype_of` (-1 = the kernel checks its outputs itself).
Status check_movable(InferContext& context, int dtype_of = 0);

// The value of an index tensor at k.
inline int64_t index_at(const Tensor& tensor, int64_t k) {
  return tensor.dtype == DType::kI32 ? tensor.as<int32_t>()[k] : tensor.as<int64_t>()[k];
}
inline bool is_index(const Tensor& tensor) {
  return tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64;
}

}  // namespace opforge::kernels
