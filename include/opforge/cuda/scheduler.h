// scheduler.h: what the emulator's two sides know of each other. The kernel's side (emulator.h) is compiled,
// and instrumented by a sanitizer, together with the author's code; the scheduler's side (scheduler.cpp.h) is
// compiled on its own and never instrumented by ThreadSanitizer, which would take its bookkeeping for the
// kernel's.
#pragma once

#include <cstddef>
#include <cstdint>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1,
                 unsigned z_size = 1)  // NOLINT: implicit, as CUDA's
      : x(x_size), y(y_size), z(z_size) {}
};

namespace opforge::cuda {

constexpr int kWarp = 32;
constexpr int kDevices = 2;
constexpr size_t kSlot = 16;  // bytes that a lane can hand to others at a time

// Where the thread that runs now is. One launch runs at a time, on one thread of the machine.
struct Now {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};

// What the lanes of a warp meet in. Lanes that meet in different ones, or for different masks, are an error.
enum class Meeting : int { kSync = 0, kShuffle, kVote, kMatch, kReduce };

extern "C" {
const Now* opforge_cuda_now(void);

// __syncthreads and its kin: how many threads of the block that came had a predicate other than 0.
int opforge_cuda_barrier(int line, int predicate);

// Hands `size` <= kSlot bytes in and waits for all lanes of `mask`; what they handed in lies in `all` then
// (kWarp slots) until the lane calls opforge_cuda_part.
const unsigned char* opforge_cuda_meet(unsigned mask, Meeting what, int line, const void* mine, size_t size);
void opforge_cuda_part(unsigned mask, Meeting what, int line);
// Lanes of this thread's warp that exist and have not returned.
unsigned opforge_cuda_active(void);
int opforge_cuda_lane(void);

// The block's variable of a key; the same for all its threads, filled with 0xFF (NaN) when a block first
// asks.
void* opforge_cuda_shared(const void* key, size_t size, size_t alignment, const char* name);
void* opforge_cuda_dynamic_shared(void);

// Runs body(argument) once per thread. 0, or CUDA's number of the error.
int opforge_cuda_launch(dim3 grid, dim3 block, size_t dynamic, void* stream, const char* name,
                        void (*body)(void*), void* argument);
// For tests of hosts: how many launches there were, and the device and stream of the last.
int64_t opforge_cuda_launched(int* device, void** stream);
// The device that is current in this thread, which becomes `device` unless that is negative.
int opforge_cuda_device(int device);
// Whether streams say that a graph is captured, as tests of launchers want it; set by 0 or 1, asked by -1.
int opforge_cuda_capturing(int capturing);
// The thread's mode towards captures, 0 to 2, which becomes `mode` unless that is negative; the one before.
int opforge_cuda_capture_mode(int mode);

int opforge_cuda_last_error(int clear);
void opforge_cuda_set_error(int code);
// Words of the last failed launch, beginning with the kernel's name.
const char* opforge_cuda_error_text(void);
// Shared memory that cudaFuncSetAttribute has allowed beyond 48 KiB.
void opforge_cuda_allow_shared(size_t bytes);
// How the threads of a block take turns: 0 in order, 1 in reverse, 2 shuffled by `seed`.
void opforge_cuda_order(int order, unsigned seed);
}

}  // namespace opforge::cuda
