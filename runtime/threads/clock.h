// clock.h: time as the pool sees it: the clock, what a thread gets of its CPU, short rests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>

namespace opforge {

inline int64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// What the calling thread, which wants to run all the time, gets of its CPU and what others take: an account
// that time on the CPU fills up to kMost and time off it empties.
class CpuShare {
 public:
  // A new start, after the thread slept on purpose.
  void restart() {
    wall_ = now_ns();
    cpu_ = cpu_ns();
  }
  // How far the account is overdrawn, in nanoseconds; 0 when it is not. It looks every kEvery, and begins at
  // 0 again after it was overdrawn.
  int64_t overdrawn(int64_t now) {
    if (now - wall_ < kEvery) return 0;
    const int64_t cpu = cpu_ns(), got = cpu - cpu_, lost = now - wall_ - got;
    wall_ = now;
    cpu_ = cpu;
    return book(got, lost);
  }
  // The account itself.
  int64_t book(int64_t got, int64_t lost) {
    account_ = std::min(account_ + got, kMost) - lost;
    const int64_t over = account_ < 0 ? -account_ : 0;
    if (over > 0) account_ = 0;
    return over;
  }

 private:
  static constexpr int64_t kEvery = 400'000;
  static constexpr int64_t kMost = 4'000'000;  // about a scheduler's slice
  static int64_t cpu_ns() {
    timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  int64_t wall_ = 0, cpu_ = 0, account_ = kMost;
};

// Ten times as long as the account is overdrawn, at most 100 ms.
inline void stand_back(int64_t over) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(10 * over, 100'000'000)));
}

// For a thread that waits for another one: a short sleep, not a yield, because an idle CPU is what makes the
// scheduler fetch a thread that waits on another CPU.
inline void let_go() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

}  // namespace opforge
