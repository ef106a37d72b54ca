// dtypes.h: TensorFlow's numbers of dtypes beside DLPack's.
#pragma once

#include <string>

#include "opforge/abi.h"

namespace opforge::tensorflow_host {

struct DtypeRow {
  opforge_dtype ours;
  int32_t theirs;    // TF_DataType
  const char* name;  // in an attribute's specification
};

inline constexpr DtypeRow kDtypes[] = {
    {{OPFORGE_CODE_FLOAT, 32, 1}, 1, "float"},      {{OPFORGE_CODE_FLOAT, 64, 1}, 2, "double"},
    {{OPFORGE_CODE_INT, 32, 1}, 3, "int32"},        {{OPFORGE_CODE_UINT, 8, 1}, 4, "uint8"},
    {{OPFORGE_CODE_INT, 16, 1}, 5, "int16"},        {{OPFORGE_CODE_INT, 8, 1}, 6, "int8"},
    {{OPFORGE_CODE_INT, 64, 1}, 9, "int64"},        {{OPFORGE_CODE_BOOL, 8, 1}, 10, "bool"},
    {{OPFORGE_CODE_BFLOAT, 16, 1}, 14, "bfloat16"}, {{OPFORGE_CODE_UINT, 16, 1}, 17, "uint16"},
    {{OPFORGE_CODE_FLOAT, 16, 1}, 19, "half"},      {{OPFORGE_CODE_UINT, 32, 1}, 22, "uint32"},
    {{OPFORGE_CODE_UINT, 64, 1}, 23, "uint64"},
};

inline const DtypeRow* row_of(opforge_dtype ours) {
  for (const DtypeRow& row : kDtypes) {
    if (row.ours.code == ours.code && row.ours.bits == ours.bits) return &row;
  }
  return nullptr;
}

inline opforge_dtype dtype_of(int32_t theirs) {
  for (const DtypeRow& row : kDtypes) {
    if (row.theirs == theirs) return row.ours;
  }
  return {OPFORGE_CODE_OPAQUE, 0, 0};
}

}  // namespace opforge::tensorflow_host
