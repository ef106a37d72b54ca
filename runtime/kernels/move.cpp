// move.cpp: strided copies and small helpers of the data-movement kernels.
#include "kernels/move.h"

#include <type_traits>

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

// Rows of a walk from the r-th on: where they begin on the strided side, without a division for each.
struct Rows {
  const Walk& walk;
  int64_t at = 0, counter[kMaxRank] = {};
  Rows(const Walk& w, int64_t r) : walk(w) {
    for (int k = walk.rank - 2; k >= 0; --k) {
      counter[k] = r % walk.dims[k];
      at += counter[k] * walk.strides[k];
      r /= walk.dims[k];
    }
  }
  void next() {
    for (int k = walk.rank - 2; k >= 0; --k) {
      at += walk.strides[k];
      if (++counter[k] < walk.dims[k]) return;
      at -= counter[k] * walk.strides[k];
      counter[k] = 0;
    }
  }
};

// A square of 4 x 4 elements whose rows are from_row apart becomes one whose columns they are.
template <class T>
void turn_square(T* to, int64_t to_row, const T* from, int64_t from_row) {
  typedef T Row __attribute__((vector_size(4 * sizeof(T))));
  Row r[4], t[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], from + i * from_row, sizeof r[i]);
#if defined(__clang__)  // which has no __builtin_shuffle, as GCC before 12 has no __builtin_shufflevector
#define OPFORGE_PICK(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
  typedef std::make_signed_t<T> Index __attribute__((vector_size(4 * sizeof(T))));
#define OPFORGE_PICK(x, y, ...) __builtin_shuffle(x, y, Index{__VA_ARGS__})
#endif
  t[0] = OPFORGE_PICK(r[0], r[1], 0, 4, 1, 5), t[1] = OPFORGE_PICK(r[2], r[3], 0, 4, 1, 5);
  t[2] = OPFORGE_PICK(r[0], r[1], 2, 6, 3, 7), t[3] = OPFORGE_PICK(r[2], r[3], 2, 6, 3, 7);
  r[0] = OPFORGE_PICK(t[0], t[1], 0, 1, 4, 5), r[1] = OPFORGE_PICK(t[0], t[1], 2, 3, 6, 7);
  r[2] = OPFORGE_PICK(t[2], t[3], 0, 1, 4, 5), r[3] = OPFORGE_PICK(t[2], t[3], 2, 3, 6, 7);
#undef OPFORGE_PICK
  for (int j = 0; j < 4; ++j) std::memcpy(to + j * to_row, &r[j], sizeof r[j]);
}

// to[j * to_row + i] = from[i * from_row + j], 4 x 4 elements at a time.
template <class T>
void turn(T* to, int64_t to_row, const T* from, int64_t from_row, int64_t rows, int64_t columns) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4)
      turn_square(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
    for (; j < columns; ++j)
      for (int64_t k = i; k < i + 4; ++k) to[j * to_row + k] = from[k * from_row + j];
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

template <class T>
void gather_row(T* to, const T* from, int64_t n, int64_t stride) {
  if (stride == 0) {
    const T value = from[0];
    for (int64_t k = 0; k < n; ++k) to[k] = value;
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
  with_word(element, move);
}

void copy(RunContext& context, uint8_t* dense, uint8_t* strided, const Shape& shape, const int64_t* strides,
          int64_t element, bool gather) {
  if (shape.elements() == 0) return;
  const Walk walk(shape, strides);
  const int64_t inner = walk.dims[walk.rank - 1], stride = walk.strides[walk.rank - 1], rows = walk.rows();
  // Two innermost dimensions that swap places (a matrix transposed): blocks keep both sides in cache.
  if (walk.rank >= 2 && stride > 1 && walk.strides[walk.rank - 2] == 1) {
    const int64_t columns = walk.dims[walk.rank - 2], planes = rows / columns;
    const int64_t block = columns < 4 ? 1024 : 32, strips = (columns + 31) / 32;
    const auto turned = [&](auto zero) {
      using T = decltype(zero);
      T *lines = reinterpret_cast<T*>(dense), *other = reinterpret_cast<T*>(strided);
      const int64_t grain = greater<int64_t>(1, 16384 / greater<int64_t>(1, inner * 32));
      context.parallel(planes * strips, grain, [&](int64_t begin, int64_t end) {
        for (int64_t u = begin; u < end; ++u) {
          const int64_t plane = u / strips, c0 = u % strips * 32, wide = lesser<int64_t>(32, columns - c0);
          T* line = lines + (plane * columns + c0) * inner;
          T* from = other + walk.offset(plane * columns) + c0;
          for (int64_t i0 = 0; i0 < inner; i0 += block) {
            const int64_t n = lesser(block, inner - i0);
            if (columns < 4)
              for (int64_t c = 0; c < wide; ++c)
                row(reinterpret_cast<uint8_t*>(line + c * inner + i0),
                    reinterpret_cast<uint8_t*>(from + c + i0 * stride), n, stride, element, gather);
            else if (gather)
              turn(line + i0, inner, from + i0 * stride, stride, n, wide);
            else
              turn(from + i0 * stride, stride, line + i0, inner, wide, n);
          }
        }
      });
    };
    with_word(element, turned);
    return;
  }
  context.parallel(rows, greater<int64_t>(1, 16384 / inner), [&](int64_t begin, int64_t end) {
    Rows at(walk, begin);
    for (int64_t r = begin; r < end; ++r, at.next())
      row(dense + r * inner * element, strided + at.at * element, inner, stride, element, gather);
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
