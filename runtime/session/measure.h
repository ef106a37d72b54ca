// measure.h: what this machine can do at most: the two roofs that profiles are held against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge::session {

// f32 operations a second (two per multiply-add) of `threads` threads of the pool, 0 = all: chains of
// multiply-adds in registers. The best of some short tries, since others may use the machine.
double measure_flops(int32_t threads);
// Bytes read and written a second by copies inside `bytes` bytes in all, shared by the threads. 0 = no
// memory.
double measure_copy(int32_t threads, size_t bytes);

}  // namespace opforge::session
