// parallel.h: a kernel's parallel_for on XLA's thread pool. The caller takes chunks too and never waits for a
// task that has not begun, so calls that fill the pool cannot block each other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "common/context.h"
#include "jax/ffi.h"

namespace opforge::jax_host {

// Where chunks of this thread's call go; set while a kernel runs.
struct Pool {
  const ffi::Api* api = nullptr;
  ffi::Context* context = nullptr;
};

inline Pool& current_pool() {
  static thread_local Pool pool;
  return pool;
}

struct Region {
  int64_t chunks;
  void (*body)(int64_t, int64_t, void*);
  void* user;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex lock;
  std::condition_variable finished;

  // Takes chunks until none is left. A task that comes late finds none and touches nothing of the caller's.
  void work() {
    int64_t mine = 0;
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) break;
      body(chunk, chunk + 1, user);
      ++mine;
    }
    if (mine > 0 && done.fetch_add(mine, std::memory_order_acq_rel) + mine == chunks) {
      const std::lock_guard<std::mutex> guard(lock);
      finished.notify_all();
    }
  }
  void wait() {
    std::unique_lock<std::mutex> guard(lock);
    finished.wait(guard, [this] { return done.load(std::memory_order_acquire) == chunks; });
  }
};

inline int64_t pool_threads(const Pool& pool) {
  if (pool.api == nullptr || pool.api->size < offsetof(ffi::Api, thread_count) + sizeof(void*)) return 1;
  int64_t count = 1;
  ffi::ThreadCount arguments{sizeof(ffi::ThreadCount), nullptr, pool.context, &count};
  if (ffi::Error* error = pool.api->thread_count(&arguments)) {
    ffi::ErrorDestroy destroy{sizeof(ffi::ErrorDestroy), nullptr, error};
    pool.api->destroy_error(&destroy);
    return 1;
  }
  return count;
}

inline bool schedule(const Pool& pool, std::shared_ptr<Region> region) {
  auto* handle = new std::shared_ptr<Region>(std::move(region));
  const auto run = [](void* data) {
    const std::unique_ptr<std::shared_ptr<Region>> held(static_cast<std::shared_ptr<Region>*>(data));
    (*held)->work();
  };
  ffi::Schedule arguments{sizeof(ffi::Schedule), nullptr, pool.context, run, handle};
  ffi::Error* error = pool.api->schedule(&arguments);
  if (error == nullptr) return true;
  delete handle;
  ffi::ErrorDestroy destroy{sizeof(ffi::ErrorDestroy), nullptr, error};
  pool.api->destroy_error(&destroy);
  return false;
}

// Callers that are in a region now. Each is a thread that computes, so it takes the place of a helper:
// callers at one time share the processors instead of asking the pool for more threads than there are.
class Caller {
 public:
  Caller() : callers_(1 + count().fetch_add(1, std::memory_order_relaxed)) {}
  ~Caller() { count().fetch_sub(1, std::memory_order_relaxed); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  int64_t helpers(int64_t threads) const { return threads - callers_; }

 private:
  static std::atomic<int64_t>& count() {
    static std::atomic<int64_t> all{0};
    return all;
  }

  int64_t callers_;
};

inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  const Pool pool = current_pool();
  const Caller caller;
  const int64_t free = caller.helpers(pool_threads(pool));
  if (free <= 0 || chunks <= 1) return body(0, chunks, user);
  auto region = std::make_shared<Region>();
  region->chunks = chunks;
  region->body = body;
  region->user = user;
  const int64_t helpers = free < chunks - 1 ? free : chunks - 1;
  for (int64_t k = 0; k < helpers && schedule(pool, region); ++k) {
  }
  region->work();
  region->wait();
}

}  // namespace opforge::jax_host
