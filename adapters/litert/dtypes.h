// dtypes.h: LiteRT's numbers of element types beside DLPack's.
#pragma once

#include "opforge/detail/schema_model.h"

namespace opforge::litert_host {

struct DtypeRow {
  opforge_dtype ours;
  int32_t theirs;  // LiteRtElementType
};

inline constexpr DtypeRow kDtypes[] = {
    {{OPFORGE_CODE_FLOAT, 32, 1}, 1},   {{OPFORGE_CODE_INT, 32, 1}, 2},    {{OPFORGE_CODE_UINT, 8, 1}, 3},
    {{OPFORGE_CODE_INT, 64, 1}, 4},     {{OPFORGE_CODE_BOOL, 8, 1}, 6},    {{OPFORGE_CODE_INT, 16, 1}, 7},
    {{OPFORGE_CODE_INT, 8, 1}, 9},      {{OPFORGE_CODE_FLOAT, 16, 1}, 10}, {{OPFORGE_CODE_FLOAT, 64, 1}, 11},
    {{OPFORGE_CODE_UINT, 64, 1}, 13},   {{OPFORGE_CODE_UINT, 32, 1}, 16},  {{OPFORGE_CODE_UINT, 16, 1}, 17},
    {{OPFORGE_CODE_BFLOAT, 16, 1}, 19},
};

// bits = 0 where the schema has no such dtype.
inline opforge_dtype dtype_of(int32_t theirs) {
  for (const DtypeRow& row : kDtypes) {
    if (row.theirs == theirs) return row.ours;
  }
  return {OPFORGE_CODE_OPAQUE, 0, 0};
}

}  // namespace opforge::litert_host
