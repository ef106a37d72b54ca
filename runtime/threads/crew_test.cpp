// crew_test.cpp: every share of every round is worked on once and before the next round, whoever comes and
// goes.
#include "threads/crew.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "crew_test: %s\n", what);
  std::exit(1);
}

// Each round adds to every element what all had before: a share that is late, missed or done twice shows.
void check(int64_t shares, int helpers, int64_t rounds, int late_microseconds) {
  opforge::Crew crew(shares);
  std::vector<uint64_t> now(static_cast<size_t>(shares), 1), next(now), right(now);
  std::vector<std::thread> threads;
  for (int k = 1; k <= helpers; ++k) {
    threads.emplace_back([&crew, k, late_microseconds] {
      std::this_thread::sleep_for(std::chrono::microseconds(late_microseconds * k));
      crew.help(k);
    });
  }
  for (int64_t round = 0; round < rounds; ++round) {
    crew.together([&](int64_t share) {
      uint64_t sum = static_cast<uint64_t>(share);
      for (uint64_t value : now) sum = sum * 31 + value;
      next[static_cast<size_t>(share)] = sum;
    });
    now.swap(next);
  }
  crew.dismiss();
  for (std::thread& thread : threads) thread.join();
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<uint64_t> after(right);
    for (size_t share = 0; share < right.size(); ++share) {
      uint64_t sum = share;
      for (uint64_t value : right) sum = sum * 31 + value;
      after[share] = sum;
    }
    right = after;
  }
  expect(now == right, "a share was missed, done twice or done too late");
}

}  // namespace

int main() {
  for (int64_t shares : {1, 2, 3, 8}) {
    check(shares, 0, 50, 0);
    for (int helpers = 1; helpers < shares; ++helpers) {
      check(shares, helpers, 2000, 0);
      check(shares, helpers, 200, 50);
    }
  }
  expect(opforge::Crew(1000).shares() == opforge::Crew::kMost, "a crew has more shares than places");
  opforge::Crew idle(2);
  idle.help(1);  // a leader that never comes does not hold a helper for ever
  std::puts("crew_test: good");
}
