// peak.h: multiply-adds in registers and nothing else, to measure the machine. Not in the table of loops: no
// kernel calls it.
#pragma once

#include <cstdint>

namespace opforge {

// Does `rounds` rounds; returns the operations of a round (two per multiply-add). kept (may be null): a
// number that keeps them from being optimised away.
using Peak = int64_t (*)(int64_t rounds, float* kept);
// That of the instruction set that kernels use here.
Peak isa_peak();

#define OPFORGE_DECLARE_PEAK(ISA)            \
  namespace ISA {                            \
  int64_t peak(int64_t rounds, float* kept); \
  }
OPFORGE_DECLARE_PEAK(baseline)
OPFORGE_DECLARE_PEAK(v3)
OPFORGE_DECLARE_PEAK(v4)
OPFORGE_DECLARE_PEAK(neon)
#undef OPFORGE_DECLARE_PEAK

}  // namespace opforge
