// pool.h: the one thread pool of the process. Made on first use, anew after a fork, sized by affinity and
// cgroup.
#pragma once

#include <cstdint>

#include "opforge/abi.h"

namespace opforge {

// Threads that a parallel region can use, the caller among them.
int32_t pool_threads();

// Calls body over [0, n) in chunks [k*grain, min((k+1)*grain, n)), on at most `threads` threads (0 = all),
// the caller among them. The chunks depend on n and grain only. Nested calls run serially on their thread.
// `site` tells calls with the same body apart whose work differs (a node and its shapes); it may be 0.
void parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads,
                  uint64_t site = 0);

// A run of many regions: workers that it wakes stay awake until it ends, and one whose regions are known to
// take long wakes them when it begins. `site` tells runs apart.
class PoolRun {
 public:
  PoolRun(int32_t threads, const void* site);
  ~PoolRun();
  PoolRun(const PoolRun&) = delete;
  PoolRun& operator=(const PoolRun&) = delete;

 private:
  void* pool_;  // a run that spans a fork ends in the pool that it began in
  uint64_t key_;
};

// Who wants to know when workers help in regions of a thread, with the clock of ticks.h.
struct HelpWatch {
  void (*helped)(HelpWatch* self, uint64_t begin, uint64_t end);  // called by the worker
};
// For regions that this thread begins from now on; null = nobody. Returns who it was before.
HelpWatch* watch_helpers(HelpWatch* watch);

// What this process may use: OPFORGE_NUM_THREADS, else the CPUs of the affinity mask, at most the cgroup's
// quota.
int32_t available_threads();
// The same without OPFORGE_NUM_THREADS.
int32_t available_cpus();

}  // namespace opforge
