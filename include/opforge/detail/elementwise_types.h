// elementwise_types.h: what one elementwise formula looks like to the code that runs it over tensors.
// Compiled kernels and the bytecode interpreter both fill in a Formula; everything else is shared, so their
// bits agree.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "opforge/abi.h"
#include "opforge/vector_math.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {

struct T;  // stands for the call's compute type in Types<...>
template <class... E>
struct Types {};

namespace elementwise {

using Status = opforge_status;

constexpr int kMaxInputs = 64, kMaxAttributes = 64, kMaxOutputs = 16, kMaxRank = 32;
constexpr int kMaxOperands = kMaxInputs + kMaxOutputs;
constexpr int kTile = 512;     // elements of a staged tile
constexpr int kSplat = 16;     // elements of a replicated scalar: enough for the widest vector
constexpr int kSumLanes = 16;  // docs/design/bytecode.md, "Sums"
constexpr int kSumBlock = 4096;
constexpr size_t kStagingBytes = 40 * 1024;

// Value types, numbered as in the bytecode.
enum class Type : uint8_t { kT = 0, kBool = 1, kI32 = 2, kI64 = 3, kF32 = 4, kF64 = 5, kU8 = 6, kI8 = 7 };
enum class Storage : uint8_t { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 3 };

// How an operand lies in memory and in a tile. Only the half types differ.
struct Kind {
  opforge_dtype dtype;
  uint8_t width;       // bytes in memory
  uint8_t tile_width;  // bytes in a tile
  uint8_t half;        // 0, 1 = f16, 2 = bf16
};
inline Kind kind_of(Type type, Storage storage) {
  switch (type) {
    case Type::kBool:
      return {{OPFORGE_CODE_BOOL, 8, 1}, 1, 1, 0};
    case Type::kI32:
      return {{OPFORGE_CODE_INT, 32, 1}, 4, 4, 0};
    case Type::kI64:
      return {{OPFORGE_CODE_INT, 64, 1}, 8, 8, 0};
    case Type::kF32:
      return {{OPFORGE_CODE_FLOAT, 32, 1}, 4, 4, 0};
    case Type::kF64:
      return {{OPFORGE_CODE_FLOAT, 64, 1}, 8, 8, 0};
    case Type::kU8:
      return {{OPFORGE_CODE_UINT, 8, 1}, 1, 1, 0};
    case Type::kI8:
      return {{OPFORGE_CODE_INT, 8, 1}, 1, 1, 0};
    default:
      break;
  }
  switch (storage) {
    case Storage::kF64:
      return {{OPFORGE_CODE_FLOAT, 64, 1}, 8, 8, 0};
    case Storage::kF16:
      return {{OPFORGE_CODE_FLOAT, 16, 1}, 2, 4, 1};
    case Storage::kBF16:
      return {{OPFORGE_CODE_BFLOAT, 16, 1}, 2, 4, 2};
    default:
      return {{OPFORGE_CODE_FLOAT, 32, 1}, 4, 4, 0};
  }
}

// Computes n elements. in: inputs, then attributes, as arrays of their tile types; step 1 = one element after
// the other, step 0 = a scalar, of which kSplat copies lie at the pointer. An output with step 0 is not
// wanted; its pointer is good for kSplat elements.
struct Block {
  const void* const* in;
  const int32_t* in_step;
  void* const* out;
  const int32_t* out_step;
  int64_t n;
};
using BlockFn = void (*)(const void* self, const Block& block);

struct Formula {
  int32_t n_inputs, n_attributes, n_outputs;
  const Type* input_types;
  const Type* attribute_types;
  const Type* output_types;
  const int32_t* sum_to;  // per output: the input whose shape it is summed to, -1 = the broadcast shape
  Storage storage;
  BlockFn block;
  const void* self;
};

// The host's thread pool: chunks are multiples of grain and do not depend on the number of threads.
struct Workers {
  void* host;
  Status (*parallel_for)(void* host, int64_t n, int64_t grain, opforge_range_fn body, void* user);
};

struct Reason {
  char text[200];
};

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
