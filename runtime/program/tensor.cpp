// tensor.cpp: dtypes, sizes of tensors in their layouts and packings. Sizes are computed without overflow.
#include "program/program.h"

namespace opforge {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  uint8_t bits, code;  // DLPack; a string is a number here, and an opforge_string for callers
};
constexpr DTypeRow kRows[] = {
    {DType::kF32, "f32", 32, OPFORGE_CODE_FLOAT},
    {DType::kU8, "u8", 8, OPFORGE_CODE_UINT},
    {DType::kI8, "i8", 8, OPFORGE_CODE_INT},
    {DType::kU16, "u16", 16, OPFORGE_CODE_UINT},
    {DType::kI16, "i16", 16, OPFORGE_CODE_INT},
    {DType::kI32, "i32", 32, OPFORGE_CODE_INT},
    {DType::kI64, "i64", 64, OPFORGE_CODE_INT},
    {DType::kString, "string", 32, OPFORGE_CODE_STRING},
    {DType::kBool, "bool", 8, OPFORGE_CODE_BOOL},
    {DType::kF16, "f16", 16, OPFORGE_CODE_FLOAT},
    {DType::kF64, "f64", 64, OPFORGE_CODE_FLOAT},
    {DType::kU32, "u32", 32, OPFORGE_CODE_UINT},
    {DType::kU64, "u64", 64, OPFORGE_CODE_UINT},
    {DType::kBF16, "bf16", 16, OPFORGE_CODE_BFLOAT},
    {DType::kF8E4M3FN, "f8e4m3fn", 8, OPFORGE_CODE_FLOAT8_E4M3FN},
    {DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, OPFORGE_CODE_FLOAT8_E4M3FNUZ},
    {DType::kF8E5M2, "f8e5m2", 8, OPFORGE_CODE_FLOAT8_E5M2},
    {DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, OPFORGE_CODE_FLOAT8_E5M2FNUZ},
    {DType::kU4, "u4", 4, OPFORGE_CODE_UINT},
    {DType::kI4, "i4", 4, OPFORGE_CODE_INT},
    {DType::kF4E2M1, "f4e2m1", 4, OPFORGE_CODE_FLOAT4_E2M1FN},
    {DType::kF8E8M0, "f8e8m0", 8, OPFORGE_CODE_FLOAT8_E8M0FNU},
    {DType::kU2, "u2", 2, OPFORGE_CODE_UINT},
    {DType::kI2, "i2", 2, OPFORGE_CODE_INT},
};

constexpr uint8_t kStringBits = 128;  // OPFORGE_CODE_STRING, on 32-bit machines too

const DTypeRow* row_of(DType dtype) {
  for (const DTypeRow& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

// a * b, saturating; both at least 0.
int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t padded(int64_t n, int64_t multiple) {
  return n > INT64_MAX / 2 ? n : (n + multiple - 1) / multiple * multiple;
}
int64_t padded8(int64_t channels) { return padded(channels, 8); }

constexpr int64_t kMostOfImage = int64_t{1} << 29;

// Elements that the layout holds, saturating; -1 = bad dimensions.
int64_t held_elements(const Shape& shape, const Layout& layout) {
  if (shape.rank < 0 || shape.rank > kMaxRank) return -1;
  int64_t n = 1, largest = 1;
  for (int k = 0; k < shape.rank; ++k) {
    const int64_t d = shape.dims[k];
    if (d < 0) return -1;
    // Products that kernels form on the way must not overflow either, even beside a zero.
    largest = times(largest, d == 0 ? 1 : d);
    n = d == 0 ? 0 : times(n, d);
  }
  if (largest > static_cast<int64_t>(format::kMaxBytes)) return INT64_MAX;
  if (layout.kind == LayoutKind::kPlain) return n;
  if (shape.rank != 4) return -1;
  for (int k = 0; k < 4; ++k)  // loops over images count in 32 bits
    if (shape.dims[k] > kMostOfImage) return INT64_MAX;
  const int64_t c = layout.kind == LayoutKind::kC16      ? padded8(shape[1])
                    : layout.kind == LayoutKind::kNHWC16 ? (shape[1] + 15) / 16 * 16
                                                         : shape[1];
  const int64_t h = shape[2] + layout.top + layout.bottom, w = shape[3] + layout.left + layout.right;
  return times(times(shape[0], c), times(h, w));
}

}  // namespace

bool known_dtype(uint32_t dtype) { return dtype < 32 && row_of(static_cast<DType>(dtype)) != nullptr; }

const char* dtype_name(DType dtype) {
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? row->name : "undefined";
}

int32_t dtype_bits(DType dtype) {
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? row->bits : 0;
}

opforge_dtype to_dlpack(DType dtype) {
  if (dtype == DType::kString) return {OPFORGE_CODE_STRING, kStringBits, 1};
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? opforge_dtype{row->code, row->bits, 1} : opforge_dtype{0, 0, 0};
}

DType from_dlpack(opforge_dtype dtype) {
  if (dtype.code == OPFORGE_CODE_STRING)
    return dtype.bits == kStringBits && dtype.lanes == 1 ? DType::kString : DType::kUndefined;
  for (const DTypeRow& row : kRows) {
    if (row.code == dtype.code && row.bits == dtype.bits && dtype.lanes == 1) return row.dtype;
  }
  return DType::kUndefined;
}

int64_t storage_bytes(DType dtype, const Shape& shape, const Layout& layout) {
  const int64_t n = held_elements(shape, layout);
  if (n < 0) return -1;
  const int64_t bits = times(n, dtype_bits(dtype));
  return bits == INT64_MAX ? INT64_MAX : bits / 8 + (bits % 8 != 0);
}

bool valid_utf8(const char* text, size_t size) {
  const auto* p = reinterpret_cast<const uint8_t*>(text);
  for (size_t k = 0; k < size;) {
    const uint8_t c = p[k];
    const size_t more = c < 0x80                ? 0
                        : c >= 0xC2 && c < 0xE0 ? 1
                        : (c & 0xF0) == 0xE0    ? 2
                        : c >= 0xF0 && c < 0xF5 ? 3
                                                : 9;
    if (more == 9 || more >= size - k) return false;
    for (size_t j = 1; j <= more; ++j) {
      if ((p[k + j] & 0xC0) != 0x80) return false;
    }
    // Longer than need be, half of a pair of UTF-16, or beyond the last code point.
    const uint8_t next = more > 0 ? p[k + 1] : 0;
    if ((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) ||
        (c == 0xF4 && next > 0x8F))
      return false;
    k += more + 1;
  }
  return true;
}

bool good_shape(DType dtype, const Shape& shape, const Layout& layout) {
  const int64_t bytes = storage_bytes(dtype, shape, layout);
  return bytes >= 0 && bytes <= static_cast<int64_t>(format::kMaxBytes);
}

Packing packing_of(StringView name) {
  constexpr struct {
    const char* name;
    Packing packing;
  } kNames[] = {{"matmul16", Packing::kMatmul16},
                {"conv16", Packing::kConv16},
                {"depthwise16", Packing::kDepthwise16},
                {"first16", Packing::kFirst16},
                {"winograd16", Packing::kWinograd16},
                {"deconv16", Packing::kDeconv16},
                {"integer16", Packing::kInteger16},
                {"integer_taps16", Packing::kIntegerTaps16},
                {"integer_depthwise16", Packing::kIntegerDepthwise16}};
  for (const auto& row : kNames) {
    if (same_text(name, row.name)) return row.packing;
  }
  return Packing::kNone;
}

int64_t packed_bytes(StringView packing, DType dtype, const Shape& shape) {
  if (packing.size == 0) return storage_bytes(dtype, shape, Layout());
  if (!good_shape(dtype, shape, Layout())) return -1;
  const bool conv = shape.rank == 4;
  int64_t n = -1;
  switch (packing_of(packing)) {
    case Packing::kMatmul16:
      if (shape.rank == 2) n = times(shape[0], padded8(shape[1]));
      break;
    case Packing::kConv16:
    case Packing::kFirst16:
      if (conv) n = times(times(padded8(shape[0]), shape[1]), times(shape[2], shape[3]));
      break;
    case Packing::kDepthwise16:
      if (conv && shape[1] == 1) n = times(padded8(shape[0]), times(shape[2], shape[3]));
      break;
    case Packing::kWinograd16:
      if (conv && shape[2] == 3 && shape[3] == 3) n = times(36, times(padded8(shape[0]), shape[1]));
      break;
    case Packing::kDeconv16:
      if (conv) n = times(times(shape[0], padded8(shape[1])), times(shape[2], shape[3]));
      break;
    case Packing::kInteger16:
      if (shape.rank == 2) n = times(padded(shape[1], 16), padded(shape[0], 4));
      if (conv) n = times(times(padded(shape[0], 16), shape[2]), padded(times(shape[1], shape[3]), 4));
      break;
    case Packing::kIntegerTaps16:
      if (conv) n = times(times(padded(shape[0], 16), padded(shape[1], 4)), times(shape[2], shape[3]));
      break;
    case Packing::kIntegerDepthwise16:
      if (conv && shape[1] == 1) n = times(padded(shape[0], 16), times(shape[2], shape[3]));
      break;
    default:
      break;
  }
  return n < 0 ? -1 : times(n, dtype_bits(dtype)) / 8;
}

bool static_shape(const Program& program, uint32_t value, Shape* shape) {
  const format::Value& record = program.values[value];
  if (record.rank < 0) return false;
  shape->rank = record.rank;
  for (int k = 0; k < record.rank; ++k) {
    const format::Dimension& dim = program.dimensions[program.dimension_ids[record.first_dimension + k]];
    if (dim.op != format::kNumber) return false;
    shape->dims[k] = dim.b;
  }
  return true;
}

}  // namespace opforge
