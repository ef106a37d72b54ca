// pool.cpp: a few job slots that awake workers scan. A caller publishes a job in a free slot, works on it
// itself, and waits until no worker is inside.
//
// Who is awake follows four rules:
//  - Waking costs (a system call, and a while until the worker is there), so sleeping workers are woken for a
//    run or region whose work is known to save more than that, or when those shortly before have lost as
//    much.
//  - A worker stays awake, spinning, while a run lasts and for a while after it, so that one wake-up serves a
//    run and all that follow closely.
//  - Callers and awake workers together are never more than the CPUs.
//  - A worker that lately lost more of its CPU to others than it got stands back for ten times that: a
//    caller waits for it as long, and would be better off alone. One that finds itself on the CPU of the
//    caller, which cannot run meanwhile, moves to another.
//
// A worker enters a job by counting itself in before it looks at the job's state, and the caller closes the
// job before it looks at the count (both sequentially consistent), so a job's fields are never read after the
// call has returned.
#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include "threads/claims.h"
#include "threads/clock.h"
#include "threads/costs.h"
#include "threads/cpu.h"
#include "threads/ticks.h"

namespace opforge {
namespace {

constexpr int kSlots = 16;
constexpr int kSpins = 256;                  // between two looks at the clock: 3 to 10 microseconds
constexpr int kWaitSpins = 4000;             // of a caller before it lets the CPU go between looks
constexpr int64_t kPatience = 200'000;       // a worker stays awake so long after a run
constexpr int64_t kRunPatience = 2'000'000;  // and so long without a job while one lasts
// What waking must save: the caller's stall (10 to 60 microseconds) and as much until the worker is there.
constexpr double kWakeUp = 60'000;
// Regions that take less run on the caller alone: moving their data between two caches costs as much.
constexpr double kWorthSharing = 20'000;
constexpr int kSample = 16;  // of short regions, one in so many is timed

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  asm volatile("yield");
#endif
}

enum State : int32_t { kFree = 0, kFilling = 1, kOpen = 2, kClosed = 3 };

struct alignas(64) Job {
  std::atomic<int32_t> state{kFree};
  std::atomic<int32_t> inside{0};  // workers that look at the job or work on it
  int32_t most = 0;                // workers that may take part
  int64_t n = 0, grain = 1;
  opforge_range_fn body = nullptr;
  void* user = nullptr;
  HelpWatch* watch = nullptr;
  Claims chunks;
};

thread_local bool in_parallel = false;
// The run that this thread is in: how many it is nested in, and what its regions would take one thread.
thread_local int run_depth = 0;
thread_local double run_work = 0;
thread_local uint32_t short_regions = 0;
thread_local HelpWatch* watching = nullptr;

// Runs each chunk by itself: they are the same for any number of threads. Returns how many it ran.
int64_t work(Job& job, bool caller) {
  const int64_t n = job.n, grain = job.grain;
  int64_t done = 0;
  for (int64_t first, last; job.chunks.next(caller ? done : -1, &first, &last);) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t begin = c * grain;
      job.body(job.user, begin, n - begin < grain ? n : begin + grain);
    }
    done += last - first;
  }
  return done;
}

void serial(int64_t n, int64_t grain, opforge_range_fn body, void* user) {
  for (int64_t begin = 0; begin < n; begin += grain) {
    const int64_t end = n - begin <= grain ? n : begin + grain;
    body(user, begin, end);
    if (end == n) return;  // begin + grain could overflow
  }
}

class Pool {
 public:
  explicit Pool(int32_t threads) : threads_(threads), cpus_(available_cpus()) {
    for (int32_t k = 1; k < threads; ++k) {
      try {
        std::thread([this] { loop(); }).detach();
      } catch (...) {  // no more threads to be had: fewer workers, same results
        threads_ = k;
        break;
      }
    }
  }
  int32_t threads() const { return threads_; }

  void run(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads, uint64_t site) {
    const uint64_t key = Costs::key(reinterpret_cast<const void*>(body), site, n, grain);
    const double cost = costs_.find(key);
    if (cost >= 0 && cost < kWorthSharing) {
      if (cost < kWorthSharing / 2 && ++short_regions % kSample != 0) return serial(n, grain, body, user);
      const int64_t begin = now_ns();
      serial(n, grain, body, user);
      return costs_.learn(key, static_cast<double>(now_ns() - begin));
    }
    const bool alone = run_depth == 0;  // a region outside of a run
    if (alone) enters();
    const int64_t chunks = n / grain + (n % grain != 0);
    const auto useful = static_cast<int32_t>(std::min<int64_t>(chunks, threads)) - 1;
    const int32_t helpers = call(useful, cost, alone);
    Job* job = helpers > 0 ? take_slot() : nullptr;
    const int64_t begin = now_ns();
    int64_t end, done = chunks;
    if (job == nullptr) {
      serial(n, grain, body, user);
      end = now_ns();
    } else {
      job->n = n;
      job->grain = grain;
      job->body = body;
      job->user = user;
      job->watch = watching;
      job->most = helpers;
      job->chunks.reset(chunks, helpers + 1);
      job->state.store(kOpen, std::memory_order_seq_cst);
      epoch_.fetch_add(1, std::memory_order_seq_cst);
      caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
      in_parallel = true;
      done = work(*job, true);
      in_parallel = false;
      job->state.store(kClosed, std::memory_order_seq_cst);
      end = now_ns();
      wait(*job);
      job->state.store(kFree, std::memory_order_release);
    }
    if (done > 0) {  // as if the caller had done all
      const double all =
          static_cast<double>(end - begin) * static_cast<double>(chunks) / static_cast<double>(done);
      costs_.learn(key, all);
      run_work += all;
    }
    if (alone) leaves();
  }

  void run_begins(int32_t threads, uint64_t key) {
    if (run_depth++ != 0) return;
    run_work = 0;
    enters();
    call(threads <= 0 || threads > threads_ ? threads_ - 1 : threads - 1, costs_.find(key), true);
  }
  void run_ends(uint64_t key) {
    if (--run_depth != 0) return;
    costs_.learn(key, run_work);
    leaves();
  }

 private:
  void enters() {
    callers_.fetch_add(1, std::memory_order_relaxed);
    caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
    if (now_ns() - last_.load(std::memory_order_relaxed) > kPatience)  // nobody would have stayed awake
      lost_.store(0, std::memory_order_relaxed);
  }
  void leaves() {
    last_.store(now_ns(), std::memory_order_relaxed);
    callers_.fetch_sub(1, std::memory_order_relaxed);
  }

  // How many workers can help with work that takes one thread `cost` nanoseconds (negative: not known); wakes
  // some when that pays. `first`: work that comes on its own, not as a part of what was asked for before.
  int32_t call(int32_t useful, double cost, bool first) {
    const int32_t most = std::min(useful, cpus_ - callers_.load(std::memory_order_relaxed));
    const int32_t awake = awake_.load(std::memory_order_relaxed);
    if (most <= awake) return most;
    if (cost >= 0) {
      const double saved = cost * most / (most + 1);
      const double lost = lost_.load(std::memory_order_relaxed);
      if (saved + (first ? lost : 0) < kWakeUp) {
        if (first) lost_.store(lost + saved, std::memory_order_relaxed);
        return awake;
      }
    }
    lost_.store(0, std::memory_order_relaxed);
    int32_t woken;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      woken = std::min(most, threads_ - 1) - awake_.load(std::memory_order_relaxed);
      if (woken <= 0) return most;
      awake_.fetch_add(woken, std::memory_order_relaxed);
      wanted_ += woken;
    }
    for (int32_t k = 0; k < woken; ++k) condition_.notify_one();
    return most;
  }

  Job* take_slot() {
    for (Job& job : jobs_) {
      int32_t expected = kFree;
      if (job.state.load(std::memory_order_relaxed) == kFree &&
          job.state.compare_exchange_strong(expected, kFilling, std::memory_order_acquire)) {
        return &job;
      }
    }
    return nullptr;
  }

  static void wait(const Job& job) {
    for (int spins = 0; job.inside.load(std::memory_order_seq_cst) != 0; ++spins) {
      if (spins < kWaitSpins)
        pause();
      else
        let_go();
    }
  }

  bool help(Job& job) {
    if (job.state.load(std::memory_order_relaxed) != kOpen) return false;
    const int32_t before = job.inside.fetch_add(1, std::memory_order_seq_cst);
    const bool enter = job.state.load(std::memory_order_seq_cst) == kOpen && before < job.most;
    if (enter && job.watch != nullptr) {
      const uint64_t begin = ticks();
      if (work(job, false) > 0) job.watch->helped(job.watch, begin, ticks());
    } else if (enter) {
      work(job, false);
    }
    job.inside.fetch_sub(1, std::memory_order_seq_cst);
    return enter;
  }

  void loop() {
    in_parallel = true;  // what a worker starts runs serially
    uint64_t seen = 0;
    CpuShare share;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        condition_.wait(lock, [&] { return wanted_ > 0; });
        --wanted_;
      }
      share.restart();
      for (int64_t idle = now_ns(), now = idle; stays(now, idle); now = now_ns()) {
        for (int spins = 0; spins < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spins)
          pause();
        const uint64_t epoch = epoch_.load(std::memory_order_acquire);
        if (epoch != seen) {
          seen = epoch;
          for (Job& job : jobs_) help(job);
          idle = now_ns();
        }
        const int32_t theirs = caller_cpu_.load(std::memory_order_relaxed);
        if (theirs >= 0 && theirs == current_cpu() && callers_.load(std::memory_order_relaxed) > 0)
          move_away(theirs);
        if (const int64_t over = share.overdrawn(now_ns())) {
          stand_back(over);
          share.restart();
        }
      }
      awake_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  bool stays(int64_t now, int64_t idle) const {
    const int32_t callers = callers_.load(std::memory_order_relaxed);
    if (callers + awake_.load(std::memory_order_relaxed) > cpus_) return false;
    if (callers > 0) return now - idle < kRunPatience;
    return now - std::max(idle, last_.load(std::memory_order_relaxed)) < kPatience;
  }

  int32_t threads_;
  const int32_t cpus_;
  Job jobs_[kSlots];
  alignas(64) std::atomic<uint64_t> epoch_{0};   // counts published jobs
  alignas(64) std::atomic<int32_t> callers_{0};  // threads in a run, or in a region outside of one
  std::atomic<int32_t> caller_cpu_{-1};          // of the last one
  std::atomic<int32_t> awake_{0};                // workers that spin, work or stand back, or were called
  std::atomic<int64_t> last_{0};                 // when the last run ended
  std::atomic<double> lost_{0};  // nanoseconds, by work that woke nobody, since the last pause
  Costs costs_;
  std::mutex mutex_;
  std::condition_variable condition_;
  int32_t wanted_ = 0;  // workers that were called and have not woken up yet
};

// The pool lives until the process ends: its threads are detached and use it. A child of fork() has none of
// those threads, so it starts over with a new pool; the parent's copy is left behind.
std::atomic<Pool*> current{nullptr};
std::atomic<int32_t> making{0};

void forget_after_fork() {
  current.store(nullptr, std::memory_order_relaxed);
  making.store(0, std::memory_order_relaxed);
  in_parallel = false;
  run_depth = 0;
}

Pool* pool() {
  Pool* found = current.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  static const int registered = pthread_atfork(nullptr, nullptr, forget_after_fork);
  static_cast<void>(registered);
  int32_t expected = 0;
  if (making.compare_exchange_strong(expected, 1, std::memory_order_acquire)) {
    found = new (std::nothrow) Pool(available_threads());
    if (found != nullptr) current.store(found, std::memory_order_release);
    making.store(0, std::memory_order_release);
    return found;
  }
  while (making.load(std::memory_order_acquire) == 1) sched_yield();
  return current.load(std::memory_order_acquire);
}

}  // namespace

int32_t pool_threads() {
  Pool* p = pool();
  return p != nullptr ? p->threads() : 1;
}

HelpWatch* watch_helpers(HelpWatch* watch) {
  HelpWatch* const before = watching;
  watching = watch;
  return before;
}

PoolRun::PoolRun(int32_t threads, const void* site)
    : pool_(threads == 1 || in_parallel ? nullptr : pool()),
      key_(Costs::key(pool_, reinterpret_cast<uint64_t>(site), 0, 0)) {
  if (pool_ != nullptr) static_cast<Pool*>(pool_)->run_begins(threads, key_);
}
PoolRun::~PoolRun() {
  // In a child of a fork in the middle of a run the pool is another one, and has not seen this run begin.
  if (pool_ != nullptr && pool_ == current.load(std::memory_order_relaxed))
    static_cast<Pool*>(pool_)->run_ends(key_);
}

void parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads,
                  uint64_t site) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (threads == 1 || n <= grain || in_parallel) return serial(n, grain, body, user);
  Pool* p = pool();
  if (p == nullptr) return serial(n, grain, body, user);
  const int32_t most = threads <= 0 || threads > p->threads() ? p->threads() : threads;
  if (most <= 1) return serial(n, grain, body, user);
  p->run(n, grain, body, user, most, site);
}

}  // namespace opforge
