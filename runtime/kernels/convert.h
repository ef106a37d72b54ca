// convert.h: blocks of elements of any numeric dtype to and from float, double, int64 or uint64, so that n
// source and n target types need 2n loops.
#pragma once

#include "kernels/move.h"
#include "kernels/small_float.h"

namespace opforge::kernels {

constexpr int64_t kConvertBlock = 256;

union ConvertBlock {
  float f[kConvertBlock];
  double d[kConvertBlock];
  int64_t i[kConvertBlock];
  uint64_t u[kConvertBlock];
};

// The member of the block that holds a dtype's values exactly.
enum class Through { kFloat, kDouble, kSigned, kUnsigned, kNone };
Through through(DType dtype);

// Elements [first, first + n), n at most kConvertBlock. Sub-byte types are packed, low bits first; their
// `first` is a multiple of 4.
void load_block(DType dtype, const void* from, int64_t first, ConvertBlock* to, int64_t n);
// The same as floats, rounded once.
void load_floats(DType dtype, const void* from, int64_t first, float* to, int64_t n);

// What the attributes of Cast say about types of 8 bits.
struct Narrowing {
  bool saturate = true;
  PowerRounding rounding = PowerRounding::kUp;
};

// Float to integer saturates and NaN gives 0; integers wrap. Integers of 4 and 2 bits keep the low bits of
// the int64. Neighbours that share a byte must be stored by the same call or thread.
void store_block(DType dtype, const ConvertBlock& from, Through held, void* to, int64_t first, int64_t n,
                 const Narrowing& narrowing = Narrowing());

}  // namespace opforge::kernels
