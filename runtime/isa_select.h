// isa_select.h: which of the builds of the isa/ sources this machine runs.
#pragma once

namespace opforge {

// The levels of a target in ascending order; kBaseline, the strict profile, exists on every one.
#if defined(__aarch64__)
enum IsaLevel : int { kBaseline = 0, kNeon = 1 };
#else
enum IsaLevel : int { kBaseline = 0, kV3 = 1, kV4 = 2 };
#endif

// The best level that this machine has and this library was built with. OPFORGE_ISA=baseline|v3|v4 (aarch64:
// baseline|neon) in the environment lowers it (a level above the machine's is ignored). Decided once per
// process.
int isa_level();
const char* isa_name(int level);

}  // namespace opforge
