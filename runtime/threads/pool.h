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
// `site` tells calls with the same body apart whose work differs (a node's attributes); it may be null.
void parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads,
                  const void* site = nullptr);

// A run of many regions: one that is known to be long wakes sleeping workers when it begins, so that its
// first regions have them. `site` tells runs apart.
class PoolRun {
 public:
  PoolRun(int32_t threads, const void* site);
  ~PoolRun();
  PoolRun(const PoolRun&) = delete;
  PoolRun& operator=(const PoolRun&) = delete;

 private:
  void* pool_;  // a run that spans a fork ends in the pool that it began in
  const void* site_;
  int64_t begin_ = 0;
};

// What this process may use: OPFORGE_NUM_THREADS, else the CPUs of the affinity mask, at most the cgroup's
// quota.
int32_t available_threads();

}  // namespace opforge
