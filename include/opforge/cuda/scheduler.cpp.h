// scheduler.cpp.h: runs a grid on the CPU. Blocks come one after another; the threads of a block are fibers
// that give way at barriers and warp operations only, so that an order of them is a possible run of the
// kernel. Compiled once per library, by itself, with OPFORGE_CUDA_ADDRESS or OPFORGE_CUDA_THREAD where the
// kernel is instrumented.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "opforge/cuda/scheduler.h"
#include "opforge/cuda/scheduler_block.h"
#include "opforge/cuda/scheduler_fibers.h"

namespace opforge::cuda {
namespace {

void run_grid() {
  Launch& l = *launch;
  for (unsigned z = 0; z < l.grid.z; ++z)
    for (unsigned y = 0; y < l.grid.y; ++y)
      for (unsigned x = 0; x < l.grid.x; ++x) {
        now.block = {x, y, z};
        if (!run_block()) return;
      }
}

std::string refused(dim3 grid, dim3 block, size_t dynamic) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0) return "a grid or block of size 0";
  if (threads > 1024) return std::to_string(threads) + " threads per block; CUDA has at most 1024";
  if (block.z > 64) return "blockDim.z is " + std::to_string(block.z) + "; CUDA has at most 64";
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return "a grid of (" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " +
           std::to_string(grid.z) + ") blocks; CUDA has at most (2147483647, 65535, 65535)";
  if (dynamic > allowed_shared)
    return std::to_string(dynamic) +
           " bytes of dynamic shared memory; more than 49152 must be asked for with "
           "cudaFuncSetAttribute, and the most is 232448";
  return {};
}

int finish(int code, const char* name, const std::string& text) {
  error_text = std::string(name) + ": " + text;
  std::fprintf(stderr, "opforge: emulated CUDA kernel %s\n", error_text.c_str());
  return last_error = code;
}

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) const Now* opforge_cuda_now(void) { return &now; }

__attribute__((visibility("hidden"))) int opforge_cuda_barrier(int line, int predicate) {
  OPFORGE_THREAD(void* sync = sync_point(launch->barrier_sync); __tsan_release(sync);)
  launch->running->line = line;
  launch->running->predicate = predicate;
  launch->running->state = State::kBarrier;
  give_way(false);
  OPFORGE_THREAD(__tsan_acquire(sync);)
  return launch->counted;
}

__attribute__((visibility("hidden"))) const unsigned char* opforge_cuda_meet(unsigned mask, Meeting what,
                                                                             int line, const void* mine,
                                                                             size_t size) {
  const Fiber& self = *launch->running;
  unsigned char* slots = launch->warps[self.linear / kWarp].slots;
  copy(slots + self.linear % kWarp * kSlot, mine, size);
  gather(mask, what, line);
  return slots;
}
__attribute__((visibility("hidden"))) void opforge_cuda_part(unsigned mask, Meeting what, int line) {
  gather(mask, what, line);
}
__attribute__((visibility("hidden"))) unsigned opforge_cuda_active(void) {
  unsigned mask = 0;
  const unsigned first = launch->running->linear / kWarp * kWarp;
  for (unsigned lane = 0; lane < kWarp && first + lane < launch->threads; ++lane)
    mask |= static_cast<unsigned>(launch->fibers[first + lane].state != State::kDone) << lane;
  return mask;
}
__attribute__((visibility("hidden"))) int opforge_cuda_lane(void) {
  return static_cast<int>(launch->running->linear % kWarp);
}

__attribute__((visibility("hidden"))) void* opforge_cuda_shared(const void* key, size_t size,
                                                                size_t alignment, const char* name) {
  Launch& l = *launch;
  for (const Variable& variable : l.variables) {
    if (variable.key == key) return variable.memory;
  }
  const size_t at = (l.used + alignment + 127) / 64 * 64;  // a gap, which AddressSanitizer guards
  const size_t declared = l.declared + (key == &kDynamic ? 0 : size);
  if (at + size + 128 > kArena || declared + l.dynamic > kMostShared) {
    fail("the shared variables of a block, " + std::string(name) + " among them, take more than the " +
         std::to_string(kMostShared) + " bytes that a block can have");
    give_way(true);
  }
  l.used = at + size;
  l.declared = declared;
  char* memory = l.arena + at;
  OPFORGE_ADDRESS(__asan_unpoison_memory_region(memory, size);)
  poison(memory, size);
  l.variables.push_back({key, memory});
  return memory;
}
__attribute__((visibility("hidden"))) void* opforge_cuda_dynamic_shared(void) {
  return opforge_cuda_shared(&kDynamic, launch->dynamic, 16, "the dynamic one");
}

__attribute__((visibility("hidden"))) int opforge_cuda_launch(dim3 grid, dim3 block, size_t dynamic,
                                                              void* stream, const char* name,
                                                              void (*body)(void*), void* argument) {
  static thread_local bool launching = false;  // a launch's threads run on the machine's thread that made it
  if (launching) {
    fail("it launches another kernel; the emulator does not model that");
    give_way(true);
  }
  const std::lock_guard<std::mutex> lock(one_at_a_time());
  launched.device = current_device;
  launched.stream = stream;
  ++launched.count;
  const std::string reason = refused(grid, block, dynamic);
  if (!reason.empty()) return finish(kInvalidConfiguration, name, reason);
  Launch here;
  here.grid = grid;
  here.block = block;
  here.dynamic = dynamic;
  here.name = name;
  here.body = body;
  here.argument = argument;
  here.threads = block.x * block.y * block.z;
  here.fibers.resize(here.threads);
  here.warps.resize((here.threads + kWarp - 1) / kWarp);
  here.arena = map(kArena);
  OPFORGE_THREAD(here.scheduler_fiber = __tsan_get_current_fiber(); here.sync = map(8 * size_t{kSyncPoints});)
  now = {{}, {}, block, grid};
  launch = &here;
  launching = true;
  run_grid();
  launching = false;
  // After a fault threads are left where they wait; what they did before that is over for the caller too.
  OPFORGE_THREAD(__tsan_acquire(&here.ended);
                 for (unsigned k = 0; !here.problem.empty() && k < std::min(here.used_syncs, kSyncPoints);
                      ++k) __tsan_acquire(sync_point(k));
                 munmap(here.sync, 8 * size_t{kSyncPoints});
                 for (void* fiber : here.dead) __tsan_destroy_fiber(fiber);)
  OPFORGE_ADDRESS(__asan_unpoison_memory_region(here.arena, kArena);)
  munmap(here.arena, kArena);
  unmap_stacks(&here);
  launch = nullptr;
  return here.problem.empty() ? 0 : finish(kLaunchFailure, name, here.problem);
}

__attribute__((visibility("hidden"))) int opforge_cuda_last_error(int clear) {
  const int code = last_error;
  if (clear != 0) last_error = 0;
  return code;
}
__attribute__((visibility("hidden"))) void opforge_cuda_set_error(int code) { last_error = code; }
__attribute__((visibility("hidden"))) void opforge_cuda_allow_shared(size_t bytes) {
  if (bytes > kMostShared) {
    last_error = kNotSupported;
    return;
  }
  allowed_shared = std::max(allowed_shared, bytes);
}
__attribute__((visibility("hidden"))) int opforge_cuda_device(int device) {
  if (device >= 0) current_device = device;
  return current_device;
}
__attribute__((visibility("default"))) int opforge_cuda_capturing(int capturing) {
  static std::atomic<int> now_capturing{0};
  if (capturing >= 0) now_capturing = capturing;
  return now_capturing;
}
__attribute__((visibility("default"))) int opforge_cuda_capture_mode(int mode) {
  static thread_local int now = 0;
  const int before = now;
  if (mode >= 0) now = mode;
  return before;
}
__attribute__((visibility("default"))) int64_t opforge_cuda_launched(int* device, void** stream) {
  const std::lock_guard<std::mutex> lock(one_at_a_time());
  *device = launched.device;
  *stream = launched.stream;
  return launched.count;
}
__attribute__((visibility("default"))) const char* opforge_cuda_error_text(void) {
  return error_text.c_str();
}
__attribute__((visibility("default"))) void opforge_cuda_order(int order, unsigned seed) {
  schedule_order = order;
  schedule_seed = seed;
}
}

}  // namespace opforge::cuda
