// cpu.h: on which CPU a thread runs.
#pragma once

#include <sched.h>

#include <cstdint>

namespace opforge {

inline int32_t current_cpu() { return sched_getcpu(); }

// Moves the calling thread to another CPU of its mask, where there is one; the mask stays as it is.
inline void move_away(int32_t cpu) {
  cpu_set_t mask, others;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) < 2) return;
  others = mask;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace opforge
