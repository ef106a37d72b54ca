// measure.cpp: peak of multiply-adds and of copies, on the pool that runs use.
#include "session/measure.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/isa/peak.h"
#include "threads/clock.h"
#include "threads/pool.h"

namespace opforge::session {
namespace {

constexpr int kTries = 15;
constexpr int64_t kRounds = 200'000;  // of multiply-adds: some milliseconds
constexpr double kTouched = 64e6;     // bytes that a try of copies moves per thread at least

int32_t most_threads(int32_t threads) {
  const int32_t all = pool_threads();
  return threads <= 0 || threads > all ? all : threads;
}

// Best rate of `work` (a body over one chunk per thread), in units a second.
template <class Work>
double best(int32_t threads, double units, const Work& work) {
  const auto body = [](void* user, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) (*static_cast<const Work*>(user))(k);
  };
  double rate = 0;
  for (int k = 0; k < kTries; ++k) {
    const int64_t begin = now_ns();
    parallel_for(threads, 1, body, const_cast<Work*>(&work), threads, reinterpret_cast<uint64_t>(&work));
    const int64_t time = std::max<int64_t>(now_ns() - begin, 1);
    rate = std::max(rate, units * 1e9 / static_cast<double>(time));
  }
  return rate;
}

}  // namespace

double measure_flops(int32_t threads) {
  const int32_t count = most_threads(threads);
  const Peak peak = isa_peak();
  const double each = static_cast<double>(kRounds) * static_cast<double>(peak(0, nullptr));
  return best(count, each * count, [&](int64_t) {
    float kept;  // keeps the loop from being optimised away
    peak(kRounds, &kept);
  });
}

double measure_copy(int32_t threads, size_t bytes) {
  const int32_t count = most_threads(threads);
  const size_t half = std::max<size_t>(bytes / static_cast<size_t>(count) / 2 / 64 * 64, 64);
  void* memory = nullptr;
  if (::posix_memalign(&memory, 64, half * 2 * static_cast<size_t>(count)) != 0) return 0;
  const std::unique_ptr<void, decltype(&std::free)> owner(memory, std::free);
  std::memset(memory, 1, half * 2 * static_cast<size_t>(count));
  const auto repeats = std::max<int64_t>(1, static_cast<int64_t>(kTouched / static_cast<double>(2 * half)));
  auto* base = static_cast<char*>(memory);
  return best(count, 2.0 * static_cast<double>(half) * static_cast<double>(repeats) * count, [&](int64_t k) {
    char* const mine = base + static_cast<size_t>(k) * 2 * half;
    for (int64_t r = 0; r < repeats; ++r) {
      std::memcpy(mine + (r % 2 == 0 ? half : 0), mine + (r % 2 == 0 ? 0 : half), half);
      asm volatile("" : : "r"(mine) : "memory");
    }
  });
}

}  // namespace opforge::session
