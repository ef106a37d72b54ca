// scheduler.cpp.h: runs a grid on the CPU. Blocks come one after another; the threads of a block are fibers
// that give way at barriers and warp operations only, so that an order of them is a possible run of the
// kernel. Compiled once per library, by itself, with OPFORGE_CUDA_ADDRESS or OPFORGE_CUDA_THREAD where the
// kernel is instrumented.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "opforge/cuda/fiber.h"
#include "opforge/cuda/scheduler.h"

#ifdef OPFORGE_CUDA_ADDRESS
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define OPFORGE_ADDRESS(...) __VA_ARGS__
#else
#define OPFORGE_ADDRESS(...)
#endif
#ifdef OPFORGE_CUDA_THREAD
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#define OPFORGE_THREAD(...) __VA_ARGS__
#else
#define OPFORGE_THREAD(...)
#endif

namespace opforge::cuda {
namespace {

#ifdef OPFORGE_CUDA_THREAD
constexpr size_t kStack = 64 << 10;  // whose shadow is cleared for every block
#else
constexpr size_t kStack = 128 << 10;
#endif
constexpr size_t kArena = 512 << 10, kShared = 48 << 10, kMostShared = 227 << 10;
constexpr int kInvalidConfiguration = 9, kLaunchFailure = 719, kNotSupported = 801;
constexpr size_t kKeptFibers =
    5000;  // ThreadSanitizer gives a new fiber the number of a dead one and misses races
constexpr unsigned kSyncPoints = 1u << 20;
const char kDynamic = 0;  // its address is the key of the dynamic shared variable

// Plain loops: ThreadSanitizer intercepts memcpy and memset even in code that it does not instrument.
void copy(void* to, const void* from, size_t size) {
  for (size_t k = 0; k < size; ++k)
    static_cast<volatile char*>(to)[k] = static_cast<const volatile char*>(from)[k];
}
void poison(void* memory, size_t size) {
  for (size_t k = 0; k < size; ++k) static_cast<volatile char*>(memory)[k] = static_cast<char>(0xFF);
}
char* map(size_t size) {
  void* memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fputs("opforge: no memory for the threads of an emulated CUDA block\n", stderr);
    std::abort();
  }
  return static_cast<char*>(memory);
}

enum class State { kReady, kBarrier, kWarp, kDone };

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  uint3 thread{};
  unsigned linear = 0;
  State state = State::kReady;
  unsigned mask = 0;
  Meeting meeting = Meeting::kSync;
  int line = 0, predicate = 0;
  alignas(16) unsigned char slot[kSlot]{};
  void* sanitizer = nullptr;   // ThreadSanitizer's fiber
  void* fake_stack = nullptr;  // AddressSanitizer's
};

struct Variable {
  const void* key;
  char* memory;
};

struct Warp {
  alignas(16) unsigned char slots[kWarp * kSlot];
  unsigned sync = 0;
};

struct Launch {
  dim3 grid, block;
  size_t dynamic = 0;
  const char* name = "";
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
  unsigned threads = 0;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<char*> stacks;
  Fiber* running = nullptr;
  void* scheduler = nullptr;  // stack pointer
  int counted = 0;            // threads with a predicate at the last barrier
  char* arena = nullptr;
  char* dynamic_memory = nullptr;
  size_t used = 0, declared = 0;  // of the arena; of the block's shared memory, less the dynamic one
  std::vector<Variable> variables;
  std::string problem;
  // of the sanitizers
  void* scheduler_fake = nullptr;
  const void* scheduler_stack = nullptr;
  size_t scheduler_size = 0;
  void* scheduler_fiber = nullptr;
  std::vector<void*> dead;
  char launched = 0, ended = 0;
  char* sync = nullptr;
  unsigned used_syncs = 0, barrier_sync = 0;
};

Launch* launch = nullptr;
Now now{};
int last_error = 0;
std::string error_text;
size_t allowed_shared = kShared;
int schedule_order = 0;
unsigned schedule_seed = 1;
std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

[[maybe_unused]] unsigned fresh_sync() { return launch->used_syncs++ % kSyncPoints; }
[[maybe_unused]] void* sync_point(unsigned id) { return launch->sync + 8 * static_cast<size_t>(id); }

std::string place(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}
void fail(const std::string& what) {
  if (launch->problem.empty()) launch->problem = "block " + place(now.block) + ": " + what;
  OPFORGE_THREAD(__tsan_release(&launch->ended);)  // the caller reads the words
}

// ---- fibers

void give_way(bool forever) {
  Fiber* self = launch->running;
  static_cast<void>(forever);
  OPFORGE_ADDRESS(__sanitizer_start_switch_fiber(forever ? nullptr : &self->fake_stack,
                                                 launch->scheduler_stack, launch->scheduler_size);)
  OPFORGE_THREAD(__tsan_switch_to_fiber(launch->scheduler_fiber, 1);)
  opforge_cuda_switch(&self->stack_pointer, launch->scheduler);
  OPFORGE_ADDRESS(
      __sanitizer_finish_switch_fiber(self->fake_stack, &launch->scheduler_stack, &launch->scheduler_size);)
}

void entry() {
  OPFORGE_ADDRESS(
      __sanitizer_finish_switch_fiber(nullptr, &launch->scheduler_stack, &launch->scheduler_size);)
  OPFORGE_THREAD(__tsan_acquire(&launch->launched);)
  launch->body(launch->argument);
  OPFORGE_THREAD(__tsan_release(&launch->ended);)
  launch->running->state = State::kDone;
  give_way(true);
  __builtin_trap();
}

void start(Fiber& fiber, char* stack) {
  fiber.stack = stack;
  fiber.fake_stack = nullptr;
  fiber.stack_pointer = first_frame(stack, kStack, &entry);
#ifdef OPFORGE_CUDA_THREAD
  fiber.sanitizer = __tsan_create_fiber(0);
  char name[96];
  std::snprintf(name, sizeof name, "block (%u, %u, %u) thread (%u, %u, %u)", now.block.x, now.block.y,
                now.block.z, fiber.thread.x, fiber.thread.y, fiber.thread.z);
  __tsan_set_fiber_name(fiber.sanitizer, name);
#endif
}

void resume(Fiber& fiber) {
  launch->running = &fiber;
  now.thread = fiber.thread;
  OPFORGE_ADDRESS(__sanitizer_start_switch_fiber(&launch->scheduler_fake, fiber.stack, kStack);)
  OPFORGE_THREAD(__tsan_switch_to_fiber(fiber.sanitizer, 1);)
  opforge_cuda_switch(&launch->scheduler, fiber.stack_pointer);
  OPFORGE_ADDRESS(__sanitizer_finish_switch_fiber(launch->scheduler_fake, nullptr, nullptr);)
  launch->running = nullptr;
}

// ---- a block

void arrange(std::vector<unsigned>* order, std::mt19937* random) {
  if (schedule_order == 1) std::reverse(order->begin(), order->end());
  if (schedule_order == 2) std::shuffle(order->begin(), order->end(), *random);
}

void begin_block() {
  Launch& l = *launch;
  l.variables.clear();
  l.used = l.declared = 0;
  l.dynamic_memory = nullptr;
#ifdef OPFORGE_CUDA_THREAD  // fresh memory for every block, or what one wrote would meet what the next reads
  for (char* stack : l.stacks) munmap(stack, kStack);
  l.stacks.clear();
  munmap(l.arena, kArena);
  l.arena = map(kArena);
  __tsan_release(&l.launched);
  l.barrier_sync = fresh_sync();
  for (Warp& warp : l.warps) warp.sync = fresh_sync();
#endif
  OPFORGE_ADDRESS(__asan_poison_memory_region(l.arena, kArena);)
  for (unsigned k = 0; k < l.threads; ++k) {
    Fiber& fiber = l.fibers[k];
    fiber.state = State::kReady;
    fiber.linear = k;
    fiber.thread = {k % l.block.x, k / l.block.x % l.block.y, k / (l.block.x * l.block.y)};
  }
}

// Whether all lanes of the fiber's mask wait in its operation; lanes that wait for each other in different
// ones are a fault. Lanes beyond the end of the block take no part, and those that have returned are not
// missed by a barrier.
bool complete(const Fiber& fiber) {
  const Launch& l = *launch;
  const unsigned first = fiber.linear / kWarp * kWarp, mine = fiber.linear % kWarp;
  bool all = true;
  for (unsigned lane = 0; lane < kWarp && first + lane < l.threads; ++lane) {
    if ((fiber.mask >> lane & 1u) == 0) continue;
    const Fiber& other = l.fibers[first + lane];
    if (other.state == State::kDone) {
      if (fiber.meeting == Meeting::kSync) continue;
      fail("thread " + place(fiber.thread) + " waits in a warp operation at line " +
           std::to_string(fiber.line) + " for lane " + std::to_string(lane) +
           " of its mask, which has returned");
      return false;
    }
    const bool waits = other.state == State::kWarp;
    if (waits && (other.mask >> mine & 1u) != 0 &&
        (other.mask != fiber.mask || other.meeting != fiber.meeting)) {
      fail("lanes " + std::to_string(mine) + " and " + std::to_string(lane) +
           " meet in different warp operations or masks: lines " + std::to_string(fiber.line) + " and " +
           std::to_string(other.line));
      return false;
    }
    all = all && waits;
  }
  return all;
}
void release(const Fiber& fiber) {
  OPFORGE_THREAD(launch->warps[fiber.linear / kWarp].sync = fresh_sync();)
  const unsigned first = fiber.linear / kWarp * kWarp, mask = fiber.mask;
  for (unsigned lane = 0; lane < kWarp && first + lane < launch->threads; ++lane) {
    Fiber& other = launch->fibers[first + lane];
    if ((mask >> lane & 1u) != 0 && other.state == State::kWarp) other.state = State::kReady;
  }
}

// All threads that are not done wait: for each other at a barrier, or in vain.
bool all_wait() {
  Launch& l = *launch;
  unsigned done = 0, waiting = 0;
  int line = -1, other = -1;
  l.counted = 0;
  for (const Fiber& fiber : l.fibers) {
    done += fiber.state == State::kDone;
    if (fiber.state != State::kBarrier) continue;
    ++waiting;
    l.counted += fiber.predicate != 0;
    if (line < 0) line = fiber.line;
    if (fiber.line != line) other = fiber.line;
  }
  const std::string at = " at line " + std::to_string(line);
  if (waiting + done < l.threads) {
    for (const Fiber& fiber : l.fibers) {
      if (fiber.state == State::kWarp && complete(fiber)) return release(fiber), true;
      if (!l.problem.empty()) return false;
    }
    for (const Fiber& fiber : l.fibers) {
      if (fiber.state != State::kWarp) continue;
      fail("thread " + place(fiber.thread) + " waits in a warp operation at line " +
           std::to_string(fiber.line) + " for lanes of its mask that do not come");
      return false;
    }
  }
  if (done > 0) {
    fail(std::to_string(done) + " of " + std::to_string(l.threads) + " threads have returned while " +
         std::to_string(waiting) + " wait in __syncthreads" + at);
    return false;
  }
  if (other >= 0) {
    fail("threads wait in different __syncthreads:" + at.substr(3) + " and line " + std::to_string(other));
    return false;
  }
  OPFORGE_THREAD(l.barrier_sync = fresh_sync();)
  for (Fiber& fiber : l.fibers) fiber.state = State::kReady;
  return true;
}

bool run_block() {
  Launch& l = *launch;
  begin_block();
  std::mt19937 random(schedule_seed + now.block.x * 7919 + now.block.y * 104729 + now.block.z * 1299709);
  std::vector<unsigned> order(l.threads);
  for (unsigned k = 0; k < l.threads; ++k) order[k] = k;
  arrange(&order, &random);
  std::vector<char*> free(l.stacks);
  for (const unsigned k : order) {
    Fiber& fiber = l.fibers[k];
    if (free.empty()) {
      l.stacks.push_back(map(kStack));
      free.push_back(l.stacks.back());
    }
    start(fiber, free.back());
    free.pop_back();
    resume(fiber);
    if (!l.problem.empty()) break;
#ifndef OPFORGE_CUDA_THREAD
    if (fiber.state == State::kDone) {  // threads that never wait share a stack
      OPFORGE_ADDRESS(__asan_unpoison_memory_region(fiber.stack, kStack);)
      free.push_back(fiber.stack);
    }
#endif
  }
  while (l.problem.empty()) {
    order.clear();
    bool done = true;
    for (unsigned k = 0; k < l.threads; ++k) {
      if (l.fibers[k].state == State::kReady) order.push_back(k);
      done = done && l.fibers[k].state == State::kDone;
    }
    if (done || (order.empty() && !all_wait())) break;
    arrange(&order, &random);
    for (const unsigned k : order) {
      if (l.problem.empty()) resume(l.fibers[k]);
    }
  }
#ifdef OPFORGE_CUDA_THREAD
  for (const Fiber& fiber : l.fibers) {
    if (fiber.sanitizer != nullptr) l.dead.push_back(fiber.sanitizer);
  }
  if (l.dead.size() > kKeptFibers) {
    for (void* fiber : l.dead) __tsan_destroy_fiber(fiber);
    l.dead.clear();
  }
#endif
  return l.problem.empty();
}

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

void gather(unsigned mask, Meeting what, int line) {
  Launch& l = *launch;
  Fiber& self = *l.running;
  const unsigned lane = self.linear % kWarp;
  self.line = line;
  self.mask = mask;
  self.meeting = what;
  OPFORGE_THREAD(void* sync = sync_point(l.warps[self.linear / kWarp].sync); __tsan_release(sync);)
  if ((mask >> lane & 1u) == 0) {
    fail("thread " + place(self.thread) + " calls a warp operation at line " + std::to_string(line) +
         " with a mask that lacks its own lane");
    return give_way(true);
  }
  self.state = State::kWarp;
  if (complete(self)) release(self);
  give_way(!l.problem.empty());
  OPFORGE_THREAD(__tsan_acquire(sync);)
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
                                                              const char* name, void (*body)(void*),
                                                              void* argument) {
  static thread_local bool launching = false;  // a launch's threads run on the machine's thread that made it
  if (launching) {
    fail("it launches another kernel; the emulator does not model that");
    give_way(true);
  }
  const std::lock_guard<std::mutex> lock(one_at_a_time());
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
  for (char* stack : here.stacks) munmap(stack, kStack);
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
__attribute__((visibility("default"))) const char* opforge_cuda_error_text(void) {
  return error_text.c_str();
}
__attribute__((visibility("default"))) void opforge_cuda_order(int order, unsigned seed) {
  schedule_order = order;
  schedule_seed = seed;
}
}

}  // namespace opforge::cuda
