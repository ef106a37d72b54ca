// convert.cpp: blocks of elements of any numeric dtype to and from the four wide types.
#include "kernels/convert.h"

#include <cmath>
#include <limits>

namespace opforge::kernels {
namespace {

struct SmallRow {
  DType dtype;
  SmallFloat format;
};
constexpr SmallRow kSmall[] = {
    // mantissa, bias, sign, largest, overflow, nan, nan_from, infinity, one_zero, saturates
    {DType::kF8E4M3FN, {3, 7, 0x80, 0x7E, 0x7F, 0x7F, 0x7F, -1, false, false}},
    {DType::kF8E4M3FNUZ, {3, 8, 0x80, 0x7F, 0x80, 0x80, 0xFF, -1, true, false}},
    {DType::kF8E5M2, {2, 15, 0x80, 0x7B, 0x7C, 0x7E, 0x7D, 0x7C, false, false}},
    {DType::kF8E5M2FNUZ, {2, 16, 0x80, 0x7F, 0x80, 0x80, 0xFF, -1, true, false}},
    {DType::kF4E2M1, {1, 1, 0x08, 0x07, 0x07, 0x08, 0xFF, -1, false, true}},
};

template <class T, class M>
void widen(const void* from, int64_t first, M* to, int64_t n) {
  const T* x = static_cast<const T*>(from) + first;
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<M>(x[k]);
}

// Codes of n packed elements of `bits` bits.
template <class F>
void unpack(const void* from, int32_t bits, int64_t first, int64_t n, F&& f) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const int64_t per = 8 / bits;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = first + k;
    f(k, static_cast<uint8_t>(bytes[at / per] >> (at % per * bits) & ((1 << bits) - 1)));
  }
}

// Integers of 4 bits from an even index on; Sign is the weight of the top bit of signed ones.
template <int32_t Sign>
void nibbles(const void* from, int64_t first, float* to, int64_t n) {
  const uint8_t* bytes = static_cast<const uint8_t*>(from) + first / 2;
  for (int64_t k = 0; k + 1 < n; k += 2) {
    const int32_t byte = bytes[k / 2];
    to[k] = static_cast<float>(((byte & 15) ^ Sign) - Sign);
    to[k + 1] = static_cast<float>(((byte >> 4) ^ Sign) - Sign);
  }
  if (n % 2 != 0) to[n - 1] = static_cast<float>(((bytes[n / 2] & 15) ^ Sign) - Sign);
}

template <class F>
void pack(void* to, int32_t bits, int64_t first, int64_t n, F&& f) {
  auto* bytes = static_cast<uint8_t*>(to) + first * bits / 8;
  const int64_t per = 8 / bits;
  for (int64_t k = 0; k < n; k += per) {
    uint32_t byte = 0;
    for (int64_t j = 0; j < per && k + j < n; ++j)
      byte |= static_cast<uint32_t>(f(k + j) & ((1 << bits) - 1)) << (j * bits);
    bytes[k / per] = static_cast<uint8_t>(byte);
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
T narrowed(M x) {
  if constexpr (std::is_floating_point_v<M> && std::is_integral_v<T>)
    return to_integer<T>(x);
  else
    return static_cast<T>(x);
}

template <class T, class M>
void narrow(const M* from, void* to, int64_t first, int64_t n) {
  T* y = static_cast<T*>(to) + first;
  for (int64_t k = 0; k < n; ++k) y[k] = narrowed<T>(from[k]);
}

// To float with one rounding that a later rounding to a smaller type cannot spoil: round to odd.
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
void store(DType dtype, const M* from, void* to, int64_t first, int64_t n, const Narrowing& how) {
  auto* halves = static_cast<uint16_t*>(to) + first;
  auto* bytes = static_cast<uint8_t*>(to) + first;
  switch (dtype) {
    case DType::kF32:
      return narrow<float>(from, to, first, n);
    case DType::kF16:
    case DType::kBF16: {
      float odd[kConvertBlock];
      const float* floats = odd;
      if constexpr (std::is_same_v<M, float>)
        floats = from;
      else
        for (int64_t k = 0; k < n; ++k) odd[k] = to_odd(from[k]);
      return isa_table().narrow_halves(dtype == DType::kBF16, floats, halves, n);
    }
    case DType::kF64:
      return narrow<double>(from, to, first, n);
    case DType::kU8:
      return narrow<uint8_t>(from, to, first, n);
    case DType::kI8:
      return narrow<int8_t>(from, to, first, n);
    case DType::kU16:
      return narrow<uint16_t>(from, to, first, n);
    case DType::kI16:
      return narrow<int16_t>(from, to, first, n);
    case DType::kI32:
      return narrow<int32_t>(from, to, first, n);
    case DType::kU32:
      return narrow<uint32_t>(from, to, first, n);
    case DType::kI64:
      return narrow<int64_t>(from, to, first, n);
    case DType::kU64:
      return narrow<uint64_t>(from, to, first, n);
    case DType::kBool:
      for (int64_t k = 0; k < n; ++k) bytes[k] = from[k] != 0;
      return;
    case DType::kF8E8M0:
      for (int64_t k = 0; k < n; ++k)
        bytes[k] = encode_power(static_cast<float>(from[k]), how.saturate, how.rounding);
      return;
    case DType::kF4E2M1: {
      const SmallFloat& format = *small_float(dtype);
      return pack(to, 4, first, n, [&](int64_t k) { return encode(format, to_odd(from[k]), true); });
    }
    case DType::kU4:
    case DType::kI4:
    case DType::kU2:
    case DType::kI2:
      return pack(to, dtype_bits(dtype), first, n, [&](int64_t k) { return narrowed<int64_t>(from[k]); });
    default: {
      const SmallFloat& format = *small_float(dtype);
      for (int64_t k = 0; k < n; ++k) bytes[k] = encode(format, to_odd(from[k]), how.saturate);
    }
  }
}

}  // namespace

const SmallFloat* small_float(DType dtype) {
  for (const SmallRow& row : kSmall)
    if (row.dtype == dtype) return &row.format;
  return nullptr;
}

Through through(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E8M0:
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
    case DType::kU4:
    case DType::kI4:
    case DType::kU2:
    case DType::kI2:
      return Through::kSigned;
    default:
      return small_float(dtype) != nullptr ? Through::kFloat : Through::kNone;
  }
}

void load_block(DType dtype, const void* from, int64_t first, ConvertBlock* to, int64_t n) {
  const auto* halves = static_cast<const uint16_t*>(from) + first;
  const auto* bytes = static_cast<const uint8_t*>(from) + first;
  switch (dtype) {
    case DType::kF32:
      return widen<float>(from, first, to->f, n);
    case DType::kF16:
    case DType::kBF16:
      return isa_table().widen_halves(dtype == DType::kBF16, halves, to->f, n);
    case DType::kF64:
      return widen<double>(from, first, to->d, n);
    case DType::kU8:
      return widen<uint8_t>(from, first, to->i, n);
    case DType::kI8:
      return widen<int8_t>(from, first, to->i, n);
    case DType::kU16:
      return widen<uint16_t>(from, first, to->i, n);
    case DType::kI16:
      return widen<int16_t>(from, first, to->i, n);
    case DType::kI32:
      return widen<int32_t>(from, first, to->i, n);
    case DType::kU32:
      return widen<uint32_t>(from, first, to->i, n);
    case DType::kI64:
      return widen<int64_t>(from, first, to->i, n);
    case DType::kU64:
      return widen<uint64_t>(from, first, to->u, n);
    case DType::kBool:
      for (int64_t k = 0; k < n; ++k) to->i[k] = bytes[k] != 0;
      return;
    case DType::kF8E8M0:
      for (int64_t k = 0; k < n; ++k) to->f[k] = decode_power(bytes[k]);
      return;
    case DType::kU4:
    case DType::kU2:
      return unpack(from, dtype_bits(dtype), first, n, [to](int64_t k, uint8_t code) { to->i[k] = code; });
    case DType::kI4:
      return unpack(from, 4, first, n, [to](int64_t k, uint8_t code) { to->i[k] = (code ^ 8) - 8; });
    case DType::kI2:
      return unpack(from, 2, first, n, [to](int64_t k, uint8_t code) { to->i[k] = (code ^ 2) - 2; });
    case DType::kF4E2M1: {
      const SmallFloat& format = *small_float(dtype);
      return unpack(from, 4, first, n, [&](int64_t k, uint8_t code) { to->f[k] = decode(format, code); });
    }
    default: {
      const SmallFloat& format = *small_float(dtype);
      for (int64_t k = 0; k < n; ++k) to->f[k] = decode(format, bytes[k]);
    }
  }
}

void load_floats(DType dtype, const void* from, int64_t first, float* to, int64_t n) {
  switch (dtype) {  // what weights and activations are, without the way through 64 bits
    case DType::kF32:
      std::memcpy(to, static_cast<const float*>(from) + first, sizeof(float) * static_cast<size_t>(n));
      return;
    case DType::kF16:
    case DType::kBF16:
      return isa_table().widen_halves(dtype == DType::kBF16, static_cast<const uint16_t*>(from) + first, to,
                                      n);
    case DType::kU8:
      return widen<uint8_t>(from, first, to, n);
    case DType::kI8:
      return widen<int8_t>(from, first, to, n);
    case DType::kU4:
      if (first % 2 == 0) return nibbles<0>(from, first, to, n);
      break;
    case DType::kI4:
      if (first % 2 == 0) return nibbles<8>(from, first, to, n);
      break;
    default:
      break;
  }
  ConvertBlock block;
  load_block(dtype, from, first, &block, n);
  switch (through(dtype)) {
    case Through::kFloat:
      std::memcpy(to, block.f, sizeof(float) * static_cast<size_t>(n));
      return;
    case Through::kDouble:
      return widen<double>(block.d, 0, to, n);
    case Through::kSigned:
      return widen<int64_t>(block.i, 0, to, n);
    default:
      return widen<uint64_t>(block.u, 0, to, n);
  }
}

void store_block(DType dtype, const ConvertBlock& from, Through held, void* to, int64_t first, int64_t n,
                 const Narrowing& narrowing) {
  switch (held) {
    case Through::kFloat:
      return store(dtype, from.f, to, first, n, narrowing);
    case Through::kDouble:
      return store(dtype, from.d, to, first, n, narrowing);
    case Through::kSigned:
      return store(dtype, from.i, to, first, n, narrowing);
    default:
      return store(dtype, from.u, to, first, n, narrowing);
  }
}

}  // namespace opforge::kernels
