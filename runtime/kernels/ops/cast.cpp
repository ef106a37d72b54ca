// cast.cpp: Cast between all whole-byte numeric dtypes. Blocks of elements go through float, double, int64 or
// uint64, so that n source and n target types need 2n loops. Float to integer saturates and NaN gives 0;
// integers wrap.
#include <cmath>
#include <limits>

#include "kernels/move.h"
#include "opforge/half.h"

namespace opforge {
namespace {

using namespace kernels;
using detail::bf16_to_float;
using detail::f16_to_float;
using detail::float_to_bf16;
using detail::float_to_f16;

constexpr int64_t kBlock = 256;

union Block {
  float f[kBlock];
  double d[kBlock];
  int64_t i[kBlock];
  uint64_t u[kBlock];
};
enum class Through { kFloat, kDouble, kSigned, kUnsigned, kNone };

Through through(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return Through::kFloat;
    case DType::kF64:
      return Through::kDouble;
    case DType::kU64:
      return Through::kUnsigned;
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kBool:
      return Through::kSigned;
    default:
      return Through::kNone;
  }
}

template <class T, class M>
void widen(const void* from, M* to, int64_t n) {
  const T* x = static_cast<const T*>(from);
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<M>(x[k]);
}

void load(DType dtype, const uint8_t* from, Block* to, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return widen<float>(from, to->f, n);
    case DType::kF16:
      for (int64_t k = 0; k < n; ++k) to->f[k] = f16_to_float(reinterpret_cast<const uint16_t*>(from)[k]);
      return;
    case DType::kBF16:
      for (int64_t k = 0; k < n; ++k) to->f[k] = bf16_to_float(reinterpret_cast<const uint16_t*>(from)[k]);
      return;
    case DType::kF64:
      return widen<double>(from, to->d, n);
    case DType::kU8:
      return widen<uint8_t>(from, to->i, n);
    case DType::kI8:
      return widen<int8_t>(from, to->i, n);
    case DType::kU16:
      return widen<uint16_t>(from, to->i, n);
    case DType::kI16:
      return widen<int16_t>(from, to->i, n);
    case DType::kI32:
      return widen<int32_t>(from, to->i, n);
    case DType::kU32:
      return widen<uint32_t>(from, to->i, n);
    case DType::kI64:
      return widen<int64_t>(from, to->i, n);
    case DType::kU64:
      return widen<uint64_t>(from, to->u, n);
    default:
      for (int64_t k = 0; k < n; ++k) to->i[k] = from[k] != 0;
  }
}

// Saturating conversion of a real number; both limits are compared as reals that are exact.
template <class T, class M>
T to_integer(M x) {
  constexpr M kLeast = static_cast<M>(std::numeric_limits<T>::min());
  constexpr M kBeyond = std::numeric_limits<T>::max() / 2 + 1;  // 2^(bits-1) or 2^(bits-2), doubled below
  if (!(x == x)) return 0;
  if (x <= kLeast) return std::numeric_limits<T>::min();
  if (x >= kBeyond * 2) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <class T, class M>
void narrow(const M* from, void* to, int64_t n) {
  T* y = static_cast<T*>(to);
  if constexpr (std::is_floating_point_v<M> && std::is_integral_v<T>) {
    for (int64_t k = 0; k < n; ++k) y[k] = to_integer<T>(from[k]);
  } else {
    for (int64_t k = 0; k < n; ++k) y[k] = static_cast<T>(from[k]);
  }
}

// To float with one rounding that a later rounding to a half type cannot spoil: round to odd.
template <class M>
float to_odd(M x) {
  if constexpr (std::is_same_v<M, float>) {
    return x;
  } else {
    const float y = static_cast<float>(x);
    if (static_cast<double>(y) == static_cast<double>(x) || std::isnan(y) || std::isinf(y)) return y;
    uint32_t bits;
    std::memcpy(&bits, &y, 4);
    const bool away = std::fabs(static_cast<double>(y)) > std::fabs(static_cast<double>(x));
    if (away) --bits;  // towards zero
    bits |= 1;
    float odd;
    std::memcpy(&odd, &bits, 4);
    return odd;
  }
}

template <class M>
void store(DType dtype, const M* from, uint8_t* to, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return narrow<float>(from, to, n);
    case DType::kF16:
      for (int64_t k = 0; k < n; ++k) reinterpret_cast<uint16_t*>(to)[k] = float_to_f16(to_odd(from[k]));
      return;
    case DType::kBF16:
      for (int64_t k = 0; k < n; ++k) reinterpret_cast<uint16_t*>(to)[k] = float_to_bf16(to_odd(from[k]));
      return;
    case DType::kF64:
      return narrow<double>(from, to, n);
    case DType::kU8:
      return narrow<uint8_t>(from, to, n);
    case DType::kI8:
      return narrow<int8_t>(from, to, n);
    case DType::kU16:
      return narrow<uint16_t>(from, to, n);
    case DType::kI16:
      return narrow<int16_t>(from, to, n);
    case DType::kI32:
      return narrow<int32_t>(from, to, n);
    case DType::kU32:
      return narrow<uint32_t>(from, to, n);
    case DType::kI64:
      return narrow<int64_t>(from, to, n);
    case DType::kU64:
      return narrow<uint64_t>(from, to, n);
    default:
      for (int64_t k = 0; k < n; ++k) to[k] = from[k] != 0;
  }
}

Status cast_infer(InferContext& c) {
  if (through(c.inputs[0].dtype) == Through::kNone || through(c.outputs[0].dtype) == Through::kNone) {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "no conversion between these dtypes");
  }
  if (c.inputs[0].layout.kind != LayoutKind::kPlain || c.outputs[0].layout.kind != LayoutKind::kPlain) {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "not in plain layout");
  }
  c.outputs[0].shape = c.inputs[0].shape;
  if (c.inputs[0].dtype == c.outputs[0].dtype) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status cast_run(RunContext& c) {
  const DType a = c.inputs[0].dtype, b = c.outputs[0].dtype;
  const int64_t from_size = element_bytes(a), to_size = element_bytes(b);
  const Through way = through(a);
  c.parallel(c.outputs[0].shape.elements(), 64 * kBlock, [&](int64_t begin, int64_t end) {
    Block block;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = lesser(kBlock, end - at);
      uint8_t* to = c.outputs[0].as<uint8_t>() + at * to_size;
      load(a, c.inputs[0].as<uint8_t>() + at * from_size, &block, n);
      switch (way) {
        case Through::kFloat:
          store(b, block.f, to, n);
          break;
        case Through::kDouble:
          store(b, block.d, to, n);
          break;
        case Through::kSigned:
          store(b, block.i, to, n);
          break;
        default:
          store(b, block.u, to, n);
      }
    }
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Cast", 6, kNewest, nullptr, cast_infer, cast_run},
    {"", "CastLike", 15, kNewest, nullptr, cast_infer, cast_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(cast, opforge::kRows);
