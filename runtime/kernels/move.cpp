// move.cpp: strided copies and small helpers of the data-movement kernels.
#include "kernels/move.h"

namespace opforge::kernels {
namespace {

// A copy over merged dimensions: neighbours that form one dense block are one dimension.
struct Walk {
  int rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // of the strided side, in elements

  Walk(const Shape& shape, const int64_t* given) {
    for (int k = 0; k < shape.rank; ++k) {
      if (shape.dims[k] == 1) continue;
      if (rank > 0 && strides[rank - 1] == given[k] * shape.dims[k]) {
        dims[rank - 1] *= shape.dims[k];
        strides[rank - 1] = given[k];
        continue;
      }
      dims[rank] = shape.dims[k];
      strides[rank++] = given[k];
    }
    if (rank == 0) {
      dims[0] = strides[0] = 1;
      rank = 1;
    }
  }
  int64_t rows() const {
    int64_t n = 1;
    for (int k = 0; k + 1 < rank; ++k) n *= dims[k];
    return n;
  }
  // Where row r of the innermost dimension begins on the strided side.
  int64_t offset(int64_t r) const {
    int64_t at = 0;
    for (int k = rank - 2; k >= 0; --k) {
      at += r % dims[k] * strides[k];
      r /= dims[k];
    }
    return at;
  }
};

template <class T>
void gather_row(T* to, const T* from, int64_t n, int64_t stride) {
  if (stride == 0) {
    for (int64_t k = 0; k < n; ++k) to[k] = from[0];
  } else {
    for (int64_t k = 0; k < n; ++k) to[k] = from[k * stride];
  }
}

template <class T>
void scatter_row(T* to, const T* from, int64_t n, int64_t stride) {
  for (int64_t k = 0; k < n; ++k) to[k * stride] = from[k];
}

void row(uint8_t* dense, uint8_t* strided, int64_t n, int64_t stride, int64_t element, bool gather) {
  if (stride == 1) {
    const auto bytes = static_cast<size_t>(n * element);
    if (gather)
      std::memcpy(dense, strided, bytes);
    else
      std::memcpy(strided, dense, bytes);
    return;
  }
  auto move = [&](auto zero) {
    using T = decltype(zero);
    if (gather)
      gather_row(reinterpret_cast<T*>(dense), reinterpret_cast<const T*>(strided), n, stride);
    else
      scatter_row(reinterpret_cast<T*>(strided), reinterpret_cast<const T*>(dense), n, stride);
  };
  switch (element) {
    case 1:
      return move(uint8_t{});
    case 2:
      return move(uint16_t{});
    case 4:
      return move(uint32_t{});
    default:
      return move(uint64_t{});
  }
}

void copy(RunContext& context, uint8_t* dense, uint8_t* strided, const Shape& shape, const int64_t* strides,
          int64_t element, bool gather) {
  if (shape.elements() == 0) return;
  const Walk walk(shape, strides);
  const int64_t inner = walk.dims[walk.rank - 1], stride = walk.strides[walk.rank - 1], rows = walk.rows();
  // Two innermost dimensions that swap places (a matrix transposed): blocks keep both sides in cache.
  if (walk.rank >= 2 && stride != 1 && walk.strides[walk.rank - 2] == 1) {
    const int64_t columns = walk.dims[walk.rank - 2], planes = rows / columns;
    constexpr int64_t kBlock = 16;
    const int64_t strips = (columns + kBlock - 1) / kBlock;
    context.parallel(planes * strips, greater<int64_t>(1, 16384 / greater<int64_t>(1, inner * kBlock)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t u = begin; u < end; ++u) {
                         const int64_t plane = u / strips, c0 = u % strips * kBlock;
                         const int64_t c1 = lesser(columns, c0 + kBlock);
                         const int64_t base = walk.offset(plane * columns);
                         for (int64_t i0 = 0; i0 < inner; i0 += kBlock) {
                           const int64_t n = lesser(kBlock, inner - i0);
                           for (int64_t c = c0; c < c1; ++c) {
                             row(dense + ((plane * columns + c) * inner + i0) * element,
                                 strided + (base + c + i0 * stride) * element, n, stride, element, gather);
                           }
                         }
                       }
                     });
    return;
  }
  context.parallel(rows, greater<int64_t>(1, 16384 / inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      row(dense + r * inner * element, strided + walk.offset(r) * element, inner, stride, element, gather);
    }
  });
}

}  // namespace

int64_t element_bytes(DType dtype) {
  const int32_t bits = dtype_bits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

bool read_values(const Tensor& tensor, int64_t* values, int64_t capacity, int64_t* count) {
  if (!is_index(tensor) || tensor.shape.rank > 1) return false;
  *count = tensor.shape.elements();
  if (*count > capacity || (*count > 0 && tensor.data == nullptr)) return false;
  for (int64_t k = 0; k < *count; ++k) values[k] = index_at(tensor, k);
  return true;
}

void dense_strides(const Shape& shape, int64_t* strides) {
  int64_t stride = 1;
  for (int k = shape.rank - 1; k >= 0; --k) {
    strides[k] = stride;
    stride *= shape.dims[k];
  }
}

bool broadcast(const Shape& a, const Shape& b, Shape* out) {
  Shape result;
  result.rank = greater(a.rank, b.rank);
  for (int k = 1; k <= result.rank; ++k) {
    const int64_t x = k <= a.rank ? a.dims[a.rank - k] : 1, y = k <= b.rank ? b.dims[b.rank - k] : 1;
    if (x != y && x != 1 && y != 1) return false;
    result.dims[result.rank - k] = x == 1 ? y : x;
  }
  *out = result;
  return true;
}

void broadcast_strides(const Shape& shape, const Shape& out, int64_t* strides) {
  int64_t dense[kMaxRank];
  dense_strides(shape, dense);
  for (int k = 0; k < out.rank; ++k) {
    const int from = k - (out.rank - shape.rank);
    strides[k] = from < 0 || shape.dims[from] == 1 ? 0 : dense[from];
  }
}

void copy_strided(RunContext& context, void* to, const void* from, const Shape& shape, const int64_t* strides,
                  int64_t element) {
  copy(context, static_cast<uint8_t*>(to), static_cast<uint8_t*>(const_cast<void*>(from)), shape, strides,
       element, true);
}

void copy_to_strided(RunContext& context, void* to, const void* from, const Shape& shape,
                     const int64_t* strides, int64_t element) {
  copy(context, static_cast<uint8_t*>(const_cast<void*>(from)), static_cast<uint8_t*>(to), shape, strides,
       element, false);
}

Status check_movable(InferContext& context, int dtype_of) {
  for (int32_t k = 0; k < context.n_inputs; ++k) {
    const Tensor& input = context.inputs[k];
    if (!input.present()) continue;
    if (!is_plain(input) || input.packing != Packing::kNone) {
      return context.fail(&context, OPFORGE_STATUS_UNSUPPORTED, "input %d is not in plain layout", k);
    }
    if (element_bytes(input.dtype) == 0) {
      return context.fail(&context, OPFORGE_STATUS_UNSUPPORTED, "input %d has a dtype without whole bytes",
                          k);
    }
  }
  for (int32_t k = 0; k < context.n_outputs; ++k) {
    if (context.outputs[k].present() && !is_plain(context.outputs[k])) {
      return context.fail(&context, OPFORGE_STATUS_UNSUPPORTED, "output %d is not in plain layout", k);
    }
    if (context.outputs[k].present() && dtype_of >= 0 &&
        context.outputs[k].dtype != context.inputs[dtype_of].dtype) {
      return context.fail(&context, OPFORGE_STATUS_INVALID_ARGUMENT,
                          "output %d does not have the dtype of input %d", k, dtype_of);
    }
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::kernels
