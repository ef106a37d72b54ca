// pool.cpp: a few job slots that idle workers scan. A caller publishes a job in a free slot, works on it
// itself, and waits until no worker is inside; workers spin for a while, then sleep.
//
// Waking a worker costs the caller a system call (microseconds, fifty and more under virtual machines), so
// the pool learns what that and each region take. A short region runs on the caller alone; workers that spin
// take part in all others; sleeping ones are woken for a region or run that takes longer than waking, or when
// regions shortly after each other have lost as much without them.
//
// A worker enters a job by counting itself in before it looks at the job's state, and the caller closes the
// job before it looks at the count (both sequentially consistent), so a job's fields are never read after the
// call has returned.
#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include "threads/costs.h"

namespace opforge {
namespace {

constexpr int kSlots = 16;
constexpr int kSpins = 256;       // between two looks at the clock: about 3 to 10 microseconds
constexpr int kWaitSpins = 4000;  // of a caller before it yields its CPU to the worker that it waits for
// How long a worker without work spins before it sleeps. Not longer: where others want the CPU a scheduler
// favours who slept over who spun.
constexpr int64_t kPatience = 50'000;
// Regions that take less run on the caller alone: moving their data between two caches costs as much.
constexpr double kWorthSharing = 20'000;
constexpr int64_t kLongestStall = 100'000;

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
  int64_t n = 0, grain = 1, chunks = 0, batch = 1;
  opforge_range_fn body = nullptr;
  void* user = nullptr;
  alignas(64) std::atomic<int64_t> next{0};  // chunk
};

thread_local bool in_parallel = false;

int64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Claims chunks, a few at a time, and runs each by itself: the chunks are the same for any number of threads.
// Returns how many it ran.
int64_t work(Job& job) {
  const int64_t n = job.n, grain = job.grain, chunks = job.chunks, batch = job.batch;
  for (int64_t done = 0;;) {
    const int64_t first = job.next.fetch_add(batch, std::memory_order_relaxed);
    if (first >= chunks) return done;
    const int64_t last = chunks - first < batch ? chunks : first + batch;
    for (int64_t c = first; c < last; ++c) {
      const int64_t begin = c * grain;
      job.body(job.user, begin, n - begin < grain ? n : begin + grain);
    }
    done += last - first;
  }
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
  explicit Pool(int32_t threads) : threads_(threads) {
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

  void run(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads, const void* site) {
    const uint64_t key = Costs::key(reinterpret_cast<const void*>(body), site, n, grain);
    const double cost = costs_.find(key);
    if (cost >= 0 && cost < kWorthSharing) {
      const int64_t begin = now_ns();
      serial(n, grain, body, user);
      return costs_.learn(key, static_cast<double>(now_ns() - begin));
    }
    Job* job = take_slot();
    if (job == nullptr) return serial(n, grain, body, user);
    job->n = n;
    job->grain = grain;
    job->chunks = n / grain + (n % grain != 0);
    job->batch = job->chunks / (int64_t{threads} * 8);
    if (job->batch < 1) job->batch = 1;
    job->body = body;
    job->user = user;
    const int64_t useful = job->chunks < threads ? job->chunks : threads;
    job->most = static_cast<int32_t>(useful) - 1;
    job->next.store(0, std::memory_order_relaxed);
    job->state.store(kOpen, std::memory_order_seq_cst);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    int64_t begin = now_ns();
    if (begin - last_.load(std::memory_order_relaxed) > kPatience)  // they would be asleep again
      lost_.store(0, std::memory_order_relaxed);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      wake(job->most, cost);
      begin = now_ns();
    }
    in_parallel = true;
    const int64_t done = work(*job);
    in_parallel = false;
    job->state.store(kClosed, std::memory_order_seq_cst);
    const int64_t end = now_ns();
    last_.store(end, std::memory_order_relaxed);
    if (done > 0)  // as if the caller had done all
      costs_.learn(key, static_cast<double>(end - begin) * static_cast<double>(job->chunks) /
                            static_cast<double>(done));
    for (int spins = 0; job->inside.load(std::memory_order_seq_cst) != 0; ++spins) {
      if (spins < kWaitSpins)
        pause();
      else
        sched_yield();
    }
    job->state.store(kFree, std::memory_order_release);
  }

  int64_t run_begins(int32_t threads, const void* site) {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      const double cost = costs_.find(Costs::key(this, site, 0, 0)) / 2;  // parts of a run are serial
      if (cost >= price()) {
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        wake(threads <= 0 || threads > threads_ ? threads_ - 1 : threads - 1, cost);
      }
    }
    return now_ns();
  }
  void run_ends(const void* site, int64_t begin) {
    costs_.learn(Costs::key(this, site, 0, 0), static_cast<double>(now_ns() - begin));
  }

 private:
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

  // cost: of the work that waits in nanoseconds, negative when it is not known.
  void wake(int32_t workers, double cost) {
    if (cost >= 0 && cost < price()) {
      const double lost = lost_.load(std::memory_order_relaxed) + cost / 2;
      lost_.store(lost, std::memory_order_relaxed);
      if (lost < price()) return;
    }
    lost_.store(0, std::memory_order_relaxed);
    const int64_t begin = now_ns();
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }  // who is about to sleep sees the epoch or the notification
    if (workers >= threads_ - 1) {
      condition_.notify_all();
    } else {
      for (int32_t k = 0; k < workers; ++k) condition_.notify_one();
    }
    const int64_t sample = std::min(now_ns() - begin, kLongestStall);
    const int64_t old = stall_.load(std::memory_order_relaxed);
    stall_.store(old + (sample - old) / 4, std::memory_order_relaxed);
  }

  // What a region must take for a wake-up to pay: the caller's part of it, and as much until a worker
  // arrives.
  double price() const { return 2 * static_cast<double>(stall_.load(std::memory_order_relaxed)); }

  void help(Job& job) {
    if (job.state.load(std::memory_order_relaxed) != kOpen) return;
    const int32_t before = job.inside.fetch_add(1, std::memory_order_seq_cst);
    if (job.state.load(std::memory_order_seq_cst) == kOpen && before < job.most) work(job);
    job.inside.fetch_sub(1, std::memory_order_seq_cst);
  }

  void loop() {
    in_parallel = true;  // what a worker starts runs serially
    uint64_t seen = 0;
    for (;;) {
      uint64_t now;
      const int64_t idle = now_ns();
      for (int spins = 0; (now = epoch_.load(std::memory_order_acquire)) == seen;) {
        pause();
        if (++spins < kSpins) continue;
        spins = 0;
        if (now_ns() - idle > kPatience) break;
      }
      if (now == seen) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        std::unique_lock<std::mutex> lock(mutex_);
        condition_.wait(lock, [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
        lock.unlock();
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        now = epoch_.load(std::memory_order_acquire);
      }
      seen = now;
      for (Job& job : jobs_) help(job);
    }
  }

  int32_t threads_;
  Job jobs_[kSlots];
  std::atomic<uint64_t> epoch_{0};
  std::atomic<int32_t> sleepers_{0};
  std::atomic<int64_t> stall_{0};  // nanoseconds that waking takes of the caller's time, an average
  std::atomic<double> lost_{0};    // by jobs that woke nobody, since the last pause
  std::atomic<int64_t> last_{0};   // when the last job ended
  Costs costs_;
  std::mutex mutex_;
  std::condition_variable condition_;
};

// The pool lives until the process ends: its threads are detached and use it. A child of fork() has none of
// those threads, so it starts over with a new pool; the parent's copy is left behind.
std::atomic<Pool*> current{nullptr};
std::atomic<int32_t> making{0};

void forget_after_fork() {
  current.store(nullptr, std::memory_order_relaxed);
  making.store(0, std::memory_order_relaxed);
  in_parallel = false;
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

PoolRun::PoolRun(int32_t threads, const void* site)
    : pool_(threads == 1 || in_parallel ? nullptr : pool()), site_(site) {
  if (pool_ != nullptr) begin_ = static_cast<Pool*>(pool_)->run_begins(threads, site);
}
PoolRun::~PoolRun() {
  if (pool_ != nullptr) static_cast<Pool*>(pool_)->run_ends(site_, begin_);
}

void parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads,
                  const void* site) {
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
