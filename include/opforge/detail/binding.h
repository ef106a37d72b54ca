// binding.h: what goes into the binding of a call to a signature, and what comes out.
#pragma once

#include <cstdint>
#include <vector>

#include "opforge/abi.h"

namespace opforge::detail {

inline constexpr int32_t kUnknownRank = -1;
inline constexpr int32_t kAbsent = -2;

// One input tensor's shape, not owned. rank: kUnknownRank, or kAbsent for an optional input that is not
// there.
template <class D>
struct ShapeView {
  const D* dims = nullptr;
  int32_t rank = kAbsent;
};

template <class D>
struct OutputShape {
  bool ranked = true;
  std::vector<D> dims;
};

// Reused from call to call it keeps its memory.
template <class D>
struct Binding {
  std::vector<OutputShape<D>> shapes;  // per output tensor, flat
  std::vector<opforge_dtype> dtypes;   // per output tensor; bits 0 = unknown
  std::vector<opforge_dtype> types;    // per type variable; bits 0 = unknown
  std::vector<int32_t> input_counts;   // tensors per input parameter
  std::vector<int32_t> output_counts;  // per output parameter; 0 where its optional input is absent
};

}  // namespace opforge::detail
