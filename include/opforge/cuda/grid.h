// grid.h: how many threads and blocks a launch has. Plain C++.
#pragma once

#include <stdint.h>

namespace opforge {
namespace cuda {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;  // of kernels that step by the whole grid

inline unsigned blocks_of(int64_t count) {
  return static_cast<unsigned>(count < kMostBlocks ? count : kMostBlocks);
}
inline unsigned blocks_for(int64_t elements, int threads = kThreads) {
  return blocks_of((elements + threads - 1) / threads);
}

}  // namespace cuda
}  // namespace opforge
