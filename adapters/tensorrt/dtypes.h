// dtypes.h: element types of TensorRT that opforge has too.
#pragma once

#include <NvInfer.h>

#include "opforge/abi.h"
#include "opforge/detail/schema_model.h"

namespace opforge::tensorrt_host {

struct TypeRow {
  nvinfer1::DataType theirs;
  opforge_dtype ours;
};

inline constexpr TypeRow kTypes[] = {
    {nvinfer1::DataType::kFLOAT, {OPFORGE_CODE_FLOAT, 32, 1}},
    {nvinfer1::DataType::kHALF, {OPFORGE_CODE_FLOAT, 16, 1}},
    {nvinfer1::DataType::kBF16, {OPFORGE_CODE_BFLOAT, 16, 1}},
    {nvinfer1::DataType::kINT8, {OPFORGE_CODE_INT, 8, 1}},
    {nvinfer1::DataType::kUINT8, {OPFORGE_CODE_UINT, 8, 1}},
    {nvinfer1::DataType::kINT32, {OPFORGE_CODE_INT, 32, 1}},
    {nvinfer1::DataType::kINT64, {OPFORGE_CODE_INT, 64, 1}},
    {nvinfer1::DataType::kBOOL, {OPFORGE_CODE_BOOL, 8, 1}},
};

// {} where opforge has none.
inline opforge_dtype dtype_of(nvinfer1::DataType theirs) {
  for (const TypeRow& row : kTypes) {
    if (row.theirs == theirs) return row.ours;
  }
  return {};
}

inline bool type_of(opforge_dtype ours, nvinfer1::DataType* theirs) {
  for (const TypeRow& row : kTypes) {
    if (!detail::same(row.ours, ours)) continue;
    *theirs = row.theirs;
    return true;
  }
  return false;
}

}  // namespace opforge::tensorrt_host
