// isa_select.h: which of the builds of the isa/ sources this machine runs.
#pragma once

namespace opforge {

// The levels in ascending order. Off x86-64 only kBaseline exists.
enum IsaLevel : int { kBaseline = 0, kV3 = 1, kV4 = 2 };

// The best level that this machine has and this library was built with. OPFORGE_ISA=baseline|v3|v4 in the
// environment lowers it (a level above the machine's is ignored). Decided once per process.
int isa_level();
const char* isa_name(int level);

}  // namespace opforge
