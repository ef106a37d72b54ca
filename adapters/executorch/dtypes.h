// dtypes.h: ExecuTorch's scalar types and ours.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <string>

#include "opforge/abi.h"

namespace opforge::executorch_host {

using ::executorch::aten::ScalarType;

struct DtypeRow {
  ScalarType theirs;
  opforge_dtype ours;
  const char* name;
};

inline constexpr DtypeRow kDtypes[] = {
    {ScalarType::Float, {OPFORGE_CODE_FLOAT, 32, 1}, "Float"},
    {ScalarType::Half, {OPFORGE_CODE_FLOAT, 16, 1}, "Half"},
    {ScalarType::BFloat16, {OPFORGE_CODE_BFLOAT, 16, 1}, "BFloat16"},
    {ScalarType::Double, {OPFORGE_CODE_FLOAT, 64, 1}, "Double"},
    {ScalarType::Long, {OPFORGE_CODE_INT, 64, 1}, "Long"},
    {ScalarType::Int, {OPFORGE_CODE_INT, 32, 1}, "Int"},
    {ScalarType::Short, {OPFORGE_CODE_INT, 16, 1}, "Short"},
    {ScalarType::Char, {OPFORGE_CODE_INT, 8, 1}, "Char"},
    {ScalarType::Byte, {OPFORGE_CODE_UINT, 8, 1}, "Byte"},
    {ScalarType::Bool, {OPFORGE_CODE_BOOL, 8, 1}, "Bool"},
    {ScalarType::UInt16, {OPFORGE_CODE_UINT, 16, 1}, "UInt16"},
    {ScalarType::UInt32, {OPFORGE_CODE_UINT, 32, 1}, "UInt32"},
    {ScalarType::UInt64, {OPFORGE_CODE_UINT, 64, 1}, "UInt64"},
};

// The row of a type, or NULL where the ABI has no such dtype.
inline const DtypeRow* row_of(ScalarType type) {
  for (const DtypeRow& row : kDtypes) {
    if (row.theirs == type) return &row;
  }
  return nullptr;
}

inline std::string name_of(ScalarType type) {
  const DtypeRow* const row = row_of(type);
  return row != nullptr ? row->name : "ScalarType " + std::to_string(static_cast<int>(type));
}

}  // namespace opforge::executorch_host
