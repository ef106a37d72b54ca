// scheduler_fibers.h: the state of a launch, its threads as fibers, and what the sanitizers are told of them.
// Part of scheduler.cpp.h.
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
thread_local int current_device = 0;
struct {
  int device = 0;
  void* stream = nullptr;
  int64_t count = 0;
} launched;
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

}  // namespace
}  // namespace opforge::cuda
