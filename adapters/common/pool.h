// pool.h: a kernel's parallel_for in the pool of libopforge, for hosts that offer kernels no threads of their
// own.
#pragma once

#include <cstdint>

#include "opforge/runtime.h"

namespace opforge::adapter {

// How many threads the calls of this thread may take, itself among them; 0 = the whole pool.
inline int32_t& pool_threads() {
  static thread_local int32_t threads = 0;
  return threads;
}

inline void pool_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  struct Work {
    void (*body)(int64_t, int64_t, void*);
    void* user;
  } work{body, user};
  opforge_parallel_for(
      chunks, 1,
      [](void* pointer, int64_t begin, int64_t end) {
        const auto& self = *static_cast<const Work*>(pointer);
        self.body(begin, end, self.user);
      },
      &work, pool_threads());
}

}  // namespace opforge::adapter
