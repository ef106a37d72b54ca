// random.cpp: seeds of random numbers.
#include "kernels/random.h"

#include <sys/random.h>

#include <ctime>

namespace opforge::kernels {

void RandomSource::load(const Attributes& attributes) {
  seeded_ = attributes.has("seed");
  if (seeded_) {
    const double seed = attributes.get_float("seed", 0);
    std::memcpy(&key_, &seed, sizeof key_);
    return;
  }
  if (::getrandom(&key_, sizeof key_, 0) == static_cast<ssize_t>(sizeof key_)) return;
  // No source of the system: the time and this object's address differ between processes as a rule.
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  key_ = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(now.tv_sec) ^
         reinterpret_cast<uintptr_t>(this);
}

Random RandomSource::next() { return {key_, seeded_ ? 0 : runs_.fetch_add(1, std::memory_order_relaxed)}; }

}  // namespace opforge::kernels
