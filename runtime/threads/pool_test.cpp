// pool_test.cpp: chunks are complete and the same for every number of threads; nesting, many callers, fork.
#include "threads/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "threads/clock.h"
#include "threads/costs.h"
#include "threads/cpu.h"

namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "pool_test: %s\n", what);
  std::exit(1);
}

struct Marks {
  explicit Marks(int64_t n) : seen(static_cast<size_t>(n)), begins(static_cast<size_t>(n)) {}
  std::vector<std::atomic<int>> seen, begins;
};

void mark(void* user, int64_t begin, int64_t end) {
  auto* marks = static_cast<Marks*>(user);
  marks->begins[static_cast<size_t>(begin)].store(static_cast<int>(end - begin));
  for (int64_t k = begin; k < end; ++k) marks->seen[static_cast<size_t>(k)].fetch_add(1);
}

void check(int64_t n, int64_t grain, int threads) {
  Marks marks(n);
  opforge::parallel_for(n, grain, mark, &marks, threads);
  for (int64_t k = 0; k < n; ++k) {
    expect(marks.seen[static_cast<size_t>(k)].load() == 1, "an index is not visited exactly once");
    const int64_t size = k % grain != 0 ? 0 : n - k < grain ? n - k : grain;
    expect(marks.begins[static_cast<size_t>(k)].load() == size, "a chunk depends on the number of threads");
  }
}

void nested(void* user, int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) {
    opforge::parallel_for(
        10, 3,
        [](void* sum, int64_t b, int64_t e) { static_cast<std::atomic<int64_t>*>(sum)->fetch_add(e - b); },
        user, 0);
  }
}

void many_callers() {
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([t] {
      for (int k = 0; k < 100; ++k) check(1 + (k * 37 + t * 11) % 400, 1 + k % 7, 1 + (k + t) % 5);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Pauses long enough for workers to sleep, short and long jobs, with and without a run around them.
void pauses() {
  for (int k = 0; k < 40; ++k) {
    std::this_thread::sleep_for(std::chrono::microseconds(k % 4 * 700));
    const opforge::PoolRun together(k % 3 == 0 ? 1 : 0, "a run");
    for (int j = 0; j < 10; ++j) check(64 << j, 1 << j % 5, 0);
  }
}

void costs() {
  static opforge::Costs table;
  const uint64_t key = opforge::Costs::key(&table, 0, 5, 1);
  expect(key != opforge::Costs::key(&table, 1, 5, 1) && key != opforge::Costs::key(&table, 0, 6, 1),
         "regions that differ share a key");
  expect(table.find(key) < 0, "the cost of a region that never ran is known");
  table.learn(key, 100);
  expect(table.find(key) == 100, "a cost is forgotten");
  table.learn(key, 1e9);
  expect(table.find(key) == 150, "one slow run counts for too much");
}

void shares() {
  opforge::CpuShare share;
  constexpr int64_t kMs = 1'000'000;
  expect(share.book(kMs, 3 * kMs) == 0, "one lost slice sends a worker away");
  expect(share.book(0, 3 * kMs) == 2 * kMs, "a worker stays where it gets nothing");
  for (int k = 0; k < 20; ++k)
    expect(share.book(3 * kMs, 3 * kMs) == 0, "a worker leaves a CPU that it has half of");
  expect(share.book(100 * kMs, 0) == 0 && share.book(0, 5 * kMs) == kMs, "time of long ago counts");
}

// A worker that shares the caller's CPU moves to another one and may go back later.
void moves() {
  cpu_set_t before{}, after{};
  sched_getaffinity(0, sizeof before, &before);
  const int32_t cpu = opforge::current_cpu();
  opforge::move_away(cpu);
  sched_getaffinity(0, sizeof after, &after);
  expect(CPU_EQUAL(&before, &after), "moving away changes the mask");
}

void fork_once() {
  const pid_t child = fork();
  if (child == 0) {
    many_callers();
    _exit(opforge::pool_threads() == 4 ? 0 : 3);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "the pool does not work in a child of fork()");
}

}  // namespace

// Arguments: no-fork = leave the fork out (emulators of processors cannot fork a process with threads).
int main(int argc, char** argv) {
  const bool forks = argc < 2 || std::strcmp(argv[1], "no-fork") != 0;
  setenv("OPFORGE_NUM_THREADS", "4", 1);
  expect(opforge::pool_threads() == 4, "OPFORGE_NUM_THREADS is not honoured");
  for (int threads : {0, 1, 2, 3, 8}) {
    for (int64_t n : {1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) check(n, grain, threads);
    }
  }
  opforge::parallel_for(0, 1, mark, nullptr, 0);
  std::atomic<int64_t> sum{0};
  opforge::parallel_for(50, 1, nested, &sum, 0);
  expect(sum.load() == 500, "nested calls lose work");
  many_callers();
  pauses();
  costs();
  shares();
  moves();
  if (forks) fork_once();
  many_callers();
  std::printf("pool_test: good\n");
  return 0;
}
