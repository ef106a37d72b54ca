// scheduler_block.h: the threads of one block take turns: barriers, warp operations, and who waits in vain.
// Part of scheduler.cpp.h.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "opforge/cuda/scheduler_fibers.h"

namespace opforge::cuda {
namespace {

void arrange(std::vector<unsigned>* order, std::mt19937* random) {
  if (schedule_order == 1) std::reverse(order->begin(), order->end());
  if (schedule_order == 2) std::shuffle(order->begin(), order->end(), *random);
}

void unmap_stacks(Launch* l) {
#ifdef OPFORGE_CUDA_THREAD
  if (!l->stacks.empty()) munmap(l->stacks[0], kStack * l->stacks.size());
#else
  for (char* stack : l->stacks) munmap(stack, kStack);
#endif
  l->stacks.clear();
}

void begin_block() {
  Launch& l = *launch;
  l.variables.clear();
  l.used = l.declared = 0;
  l.dynamic_memory = nullptr;
#ifdef OPFORGE_CUDA_THREAD  // fresh memory for every block, or what one wrote would meet what the next reads
  unmap_stacks(&l);
  char* const stacks = map(kStack * l.threads);  // at once: its runtime takes long for each call
  for (unsigned k = 0; k < l.threads; ++k) l.stacks.push_back(stacks + kStack * k);
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
}  // namespace opforge::cuda
