// claims.h: how threads share [0, n). One of them goes up from the front, the others down from the back, so
// that from one region to the next the parts of a tensor stay in the caches where they are. A claim is a part
// of what is left, so that there are few: each moves a cache line between CPUs.
#pragma once

#include <atomic>
#include <cstdint>

namespace opforge {

class alignas(64) Claims {
 public:
  Claims() = default;
  Claims(int64_t n, int64_t threads) { reset(n, threads); }
  void reset(int64_t n, int64_t threads) {
    n_ = n;
    share_ = 2 * threads;
    claimed_.store(0, std::memory_order_relaxed);
    back_.store(n, std::memory_order_relaxed);
  }
  // The next piece [*begin, *end); false when nothing is left. `done` is what the thread at the front has
  // claimed so far, and -1 for others.
  bool next(int64_t done, int64_t* begin, int64_t* end) {
    int64_t claimed = claimed_.load(std::memory_order_relaxed), count;
    do {
      if (claimed >= n_) return false;
      count = (n_ - claimed) / share_;
      if (count < 1) count = 1;
    } while (!claimed_.compare_exchange_weak(claimed, claimed + count, std::memory_order_relaxed));
    *begin = done >= 0 ? done : back_.fetch_sub(count, std::memory_order_relaxed) - count;
    *end = *begin + count;
    return true;
  }

 private:
  std::atomic<int64_t> claimed_{0}, back_{0};
  int64_t n_ = 0, share_ = 1;
};

}  // namespace opforge
