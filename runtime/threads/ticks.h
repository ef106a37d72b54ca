// ticks.h: the cheapest clock that a thread can read: the processor's counter where it runs at one speed,
// else the system's clock. Two readings around a node cost 10 to 40 ns; steady_clock takes two or three times
// that.
#pragma once

#include <cstdint>

#include "threads/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace opforge {

#if defined(__x86_64__)
// Whether the counter ticks evenly, whatever the processor's frequency and sleep (leaf 80000007H, EDX bit 8).
inline bool even_counter() {
  static const bool even = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
  }();
  return even;
}
#endif

inline uint64_t ticks() {
#if defined(__x86_64__)
  if (__builtin_expect(even_counter(), 1)) return __rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#endif
  return static_cast<uint64_t>(now_ns());
}

// Ticks as nanoseconds of the monotonic clock: by the clock and the counter at the start and now.
class TickScale {
 public:
  void start() {
    const Moment now = moment();
    ticks_ = now.ticks;
    nanoseconds_ = now.nanoseconds;
    rate_ = 0;
  }
  // Looks at both again; before that, ns() means nothing. Waits where the start was a moment ago.
  void measure() {
    constexpr int64_t kLeast = 5'000'000;  // the two clocks are read some 50 ns apart: 1e-5 of this
    while (now_ns() - nanoseconds_ < kLeast) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Moment now = moment();
    const uint64_t count = now.ticks - ticks_;
    const int64_t time = now.nanoseconds - nanoseconds_;
    rate_ = count > 0 ? static_cast<double>(time) / static_cast<double>(count) : 1.0;
  }
  int64_t span(uint64_t count) const { return static_cast<int64_t>(static_cast<double>(count) * rate_); }
  int64_t at(uint64_t tick) const {
    const auto since = static_cast<double>(static_cast<int64_t>(tick - ticks_));
    return nanoseconds_ + static_cast<int64_t>(since * rate_);
  }

 private:
  struct Moment {
    uint64_t ticks = 0;
    int64_t nanoseconds = 0;
  };
  // Both at one moment: of a few readings the one that took least time. Between the two a thread may lose its
  // CPU for as long as there is to measure, and every time would be wrong by that.
  static Moment moment() {
    constexpr int kTries = 8;
    constexpr int64_t kGood = 200;
    Moment best;
    int64_t least = INT64_MAX;
    for (int k = 0; k < kTries && least > kGood; ++k) {
      const int64_t before = now_ns();
      const uint64_t count = ticks();
      const int64_t took = now_ns() - before;
      if (took < least) {
        least = took;
        best = {count, before + took / 2};
      }
    }
    return best;
  }

  uint64_t ticks_ = 0;
  int64_t nanoseconds_ = 0;
  double rate_ = 0;
};

}  // namespace opforge
