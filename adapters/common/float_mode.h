// float_mode.h: kernels run with denormals, whatever the host has set for its threads (TensorFlow's executor
// and XLA flush them), so that an operator gives the same numbers in every host.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace opforge::adapter {

class FloatMode {
 public:
#if defined(__SSE__)
  FloatMode() : before_(_mm_getcsr()) {
    if ((before_ & kFlush) != 0) _mm_setcsr(before_ & ~kFlush);
  }
  ~FloatMode() {
    if ((before_ & kFlush) != 0) _mm_setcsr(before_);
  }

 private:
  static constexpr uint32_t kFlush = 0x8040;  // flush to zero, denormals are zero
  uint32_t before_;
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if ((before_ & kFlush) != 0) asm volatile("msr fpcr, %0" ::"r"(before_ & ~kFlush));
  }
  ~FloatMode() {
    if ((before_ & kFlush) != 0) asm volatile("msr fpcr, %0" ::"r"(before_));
  }

 private:
  static constexpr uint64_t kFlush = (uint64_t{1} << 24) | (uint64_t{1} << 19);  // FZ, FZ16
  uint64_t before_;
#else
  FloatMode() {}
  ~FloatMode() {}
#endif

 public:
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace opforge::adapter
