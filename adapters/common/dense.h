// dense.h: whether a tensor lies dense in row-major order, and a dense copy of one that does not.
#pragma once

#include <cstring>

#include "opforge/abi.h"

namespace opforge::adapter {

inline int64_t element_count(const opforge_tensor& tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  return count;
}

// Strides of dimensions with one element, and of tensors without elements, say nothing.
template <class Stride>
bool is_dense(int32_t rank, const int64_t* shape, const Stride* strides) {
  int64_t expected = 1;
  bool dense = true;
  for (int32_t d = rank; d-- > 0;) {
    if (shape[d] == 0) return true;
    dense = dense && (shape[d] == 1 || strides[d] == expected);
    expected *= shape[d];
  }
  return dense;
}

// Writes the elements of `tensor`, which has strides, to `out` one after the other. Types of whole bytes
// only.
inline void copy_dense(const opforge_tensor& tensor, char* out) {
  const size_t size = tensor.dtype.bits / 8u;
  const char* const base = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  const int32_t last = tensor.ndim - 1;
  const int64_t row = last < 0 ? 1 : tensor.shape[last];
  const int64_t step = last < 0 ? 1 : tensor.strides[last];
  const int64_t rows = row == 0 ? 0 : element_count(tensor) / row;
  for (int64_t number = 0; number < rows; ++number) {
    int64_t rest = number, start = 0;
    for (int32_t d = last; d-- > 0;) {
      start += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    for (int64_t k = 0; k < row; ++k, out += size) {
      std::memcpy(out, base + (start + k * step) * static_cast<int64_t>(size), size);
    }
  }
}

}  // namespace opforge::adapter
