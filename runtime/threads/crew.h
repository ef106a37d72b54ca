// crew.h: many short pieces of work in turn, shared by the threads of one parallel region. A region for each
// would cost as much as the work; here a round is a few atomic operations, and each thread gets the same
// share of every round, so that what it reads stays in its cache.
//
// The leader never waits for a helper that has not begun a share: it takes the share itself. One that loses
// its CPU in the middle of a share is waited for once; then the leader goes on alone.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace opforge {

class Crew {
 public:
  static constexpr int64_t kMost = 32;  // shares

  explicit Crew(int64_t shares) : shares_(shares < kMost ? shares : kMost) {}
  int64_t shares() const { return shares_; }

  // Leader: calls f(share) for every share; returns when all are done. Calls must not depend on each other.
  template <class F>
  void together(F&& f) {
    if (left_.load(std::memory_order_relaxed)) {
      for (int64_t k = 0; k < shares_; ++k) f(k);
      return;
    }
    body_ = [](void* user, int64_t share) { (*static_cast<F*>(user))(share); };
    user_ = const_cast<void*>(static_cast<const void*>(&f));
    const int64_t round = round_.load(std::memory_order_relaxed) + 1;
    round_.store(round, std::memory_order_release);
    for (int64_t k = 0; k < shares_; ++k) take(k, round);
    for (int64_t k = 0; k < shares_; ++k) wait(k, round);
  }
  // Leader: no more rounds.
  void dismiss() { left_.store(true, std::memory_order_release); }

  // Helper of a share (1 to shares - 1): takes part until the leader dismisses the crew, or is not heard of.
  void help(int64_t share) {
    int64_t seen = 0;
    for (int64_t idle = 0; idle < kHelperSpins && !left_.load(std::memory_order_acquire); ++idle, pause()) {
      const int64_t round = round_.load(std::memory_order_acquire);
      if (round == seen) continue;
      seen = round;
      for (int64_t i = 0; i < shares_; ++i)  // its own first, the leader's last
        take((share + shares_ - i) % shares_, round);
      idle = 0;
    }
  }

 private:
  static constexpr int64_t kWaitSpins = 4000, kHelperSpins = 100'000;
  struct alignas(64) Slot {
    std::atomic<int64_t> claimed{0}, done{0};  // rounds
  };

  // A share is claimed once in a round; a round ends when all its shares are done, so claims of an older one
  // fail, and what the leader set for a round stays while a share of it is worked on.
  void take(int64_t k, int64_t round) {
    int64_t before = round - 1;
    if (!slots_[k].claimed.compare_exchange_strong(before, round, std::memory_order_acq_rel)) return;
    body_(user_, k);
    slots_[k].done.store(round, std::memory_order_release);
  }

  void wait(int64_t k, int64_t round) {
    for (int64_t spins = 0; slots_[k].done.load(std::memory_order_acquire) != round; ++spins) {
      if (spins < kWaitSpins) {
        pause();
        continue;
      }
      dismiss();
      ::sched_yield();
    }
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    asm volatile("yield");
#endif
  }

  const int64_t shares_;
  void (*body_)(void*, int64_t) = nullptr;
  void* user_ = nullptr;
  alignas(64) std::atomic<int64_t> round_{0};
  std::atomic<bool> left_{false};
  Slot slots_[kMost];
};

}  // namespace opforge
