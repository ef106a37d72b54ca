// dtypes.h: OpenVINO's element types beside DLPack's, and the conversion of elements. The CPU's plugin
// changes types before it runs a model (f16 and f64 to f32, i64 to i32, bool to u8), whatever a node asks
// for.
#pragma once

#include <cstdint>
#include <string>

#include <openvino/core/type/element_type.hpp>

#include "common/failure.h"
#include "opforge/detail/schema_model.h"
#include "opforge/half.h"

namespace opforge::openvino_host {

struct DtypeRow {
  opforge_dtype ours;
  ov::element::Type_t theirs;
  ov::element::Type_t on_cpu;  // what the CPU's plugin makes of it
};

inline constexpr DtypeRow kDtypes[] = {
    {{OPFORGE_CODE_FLOAT, 32, 1}, ov::element::Type_t::f32, ov::element::Type_t::f32},
    {{OPFORGE_CODE_FLOAT, 16, 1}, ov::element::Type_t::f16, ov::element::Type_t::f32},
    {{OPFORGE_CODE_BFLOAT, 16, 1}, ov::element::Type_t::bf16, ov::element::Type_t::bf16},
    {{OPFORGE_CODE_FLOAT, 64, 1}, ov::element::Type_t::f64, ov::element::Type_t::f32},
    {{OPFORGE_CODE_INT, 8, 1}, ov::element::Type_t::i8, ov::element::Type_t::i8},
    {{OPFORGE_CODE_UINT, 8, 1}, ov::element::Type_t::u8, ov::element::Type_t::u8},
    {{OPFORGE_CODE_INT, 16, 1}, ov::element::Type_t::i16, ov::element::Type_t::i32},
    {{OPFORGE_CODE_UINT, 16, 1}, ov::element::Type_t::u16, ov::element::Type_t::i32},
    {{OPFORGE_CODE_INT, 32, 1}, ov::element::Type_t::i32, ov::element::Type_t::i32},
    {{OPFORGE_CODE_UINT, 32, 1}, ov::element::Type_t::u32, ov::element::Type_t::i32},
    {{OPFORGE_CODE_INT, 64, 1}, ov::element::Type_t::i64, ov::element::Type_t::i32},
    {{OPFORGE_CODE_UINT, 64, 1}, ov::element::Type_t::u64, ov::element::Type_t::i32},
    {{OPFORGE_CODE_BOOL, 8, 1}, ov::element::Type_t::boolean, ov::element::Type_t::u8},
};

// bits = 0 where the ABI has no such dtype, as of a type that is not known yet.
inline opforge_dtype dtype_of(ov::element::Type_t theirs) {
  for (const DtypeRow& row : kDtypes) {
    if (row.theirs == theirs) return row.ours;
  }
  return {OPFORGE_CODE_OPAQUE, 0, 0};
}

inline const DtypeRow* row_of(opforge_dtype ours) {
  for (const DtypeRow& row : kDtypes) {
    if (detail::same(row.ours, ours)) return &row;
  }
  return nullptr;
}

inline ov::element::Type element_type(opforge_dtype ours) {
  const DtypeRow* row = row_of(ours);
  return row == nullptr ? ov::element::dynamic : ov::element::Type(row->theirs);
}

template <class From, class To>
void convert_elements(const void* from, void* to, size_t count) {
  const auto* const in = static_cast<const From*>(from);
  auto* const out = static_cast<To*>(to);
  for (size_t k = 0; k < count; ++k) out[k] = static_cast<To>(in[k]);
}

// Between a dtype and what the plugin makes of it: arriving inputs one way, outputs the other.
struct ConversionRow {
  ov::element::Type_t original, on_cpu;
  void (*arrive)(const void*, void*, size_t);
  void (*leave)(const void*, void*, size_t);
};

template <class Original, class OnCpu>
constexpr ConversionRow conversion(ov::element::Type_t original, ov::element::Type_t on_cpu) {
  return {original, on_cpu, &convert_elements<OnCpu, Original>, &convert_elements<Original, OnCpu>};
}

inline constexpr ConversionRow kConversions[] = {
    conversion<f16, float>(ov::element::Type_t::f16, ov::element::Type_t::f32),
    conversion<double, float>(ov::element::Type_t::f64, ov::element::Type_t::f32),
    conversion<int16_t, int32_t>(ov::element::Type_t::i16, ov::element::Type_t::i32),
    conversion<uint16_t, int32_t>(ov::element::Type_t::u16, ov::element::Type_t::i32),
    conversion<uint32_t, int32_t>(ov::element::Type_t::u32, ov::element::Type_t::i32),
    conversion<int64_t, int32_t>(ov::element::Type_t::i64, ov::element::Type_t::i32),
    conversion<uint64_t, int32_t>(ov::element::Type_t::u64, ov::element::Type_t::i32),
    conversion<bool, uint8_t>(ov::element::Type_t::boolean, ov::element::Type_t::u8),
};

inline const ConversionRow& conversion_of(opforge_dtype original) {
  for (const ConversionRow& row : kConversions) {
    if (row.original == row_of(original)->theirs) return row;
  }
  throw adapter::failure(OPFORGE_STATUS_INTERNAL, "opforge", "no conversion of a dtype", "",
                         detail::dtype_name(original));
}

}  // namespace opforge::openvino_host
