// random.h: random numbers by counter (Philox 4x32-10): number k of a stream is a function of k alone, so
// results depend neither on threads nor on order.
#pragma once

#include <cmath>

#include "kernels/common.h"

namespace opforge::kernels {

struct Random {
  uint64_t key = 0, stream = 0;

  // Four words of counter k.
  void words(uint64_t k, uint32_t* w) const {
    uint32_t a = static_cast<uint32_t>(key), b = static_cast<uint32_t>(key >> 32);
    w[0] = static_cast<uint32_t>(k), w[1] = static_cast<uint32_t>(k >> 32);
    w[2] = static_cast<uint32_t>(stream), w[3] = static_cast<uint32_t>(stream >> 32);
    for (int round = 0; round < 10; ++round, a += 0x9E3779B9u, b += 0xBB67AE85u) {
      const uint64_t p = uint64_t{0xD2511F53u} * w[0], q = uint64_t{0xCD9E8D57u} * w[2];
      const uint32_t w1 = w[1], w3 = w[3];
      w[0] = static_cast<uint32_t>(q >> 32) ^ w1 ^ a, w[1] = static_cast<uint32_t>(q);
      w[2] = static_cast<uint32_t>(p >> 32) ^ w3 ^ b, w[3] = static_cast<uint32_t>(p);
    }
  }
  static double unit(uint32_t high, uint32_t low) {  // [0, 1) in steps of 2^-53
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
  }
  double uniform(uint64_t k) const {
    uint32_t w[4];
    words(k, w);
    return unit(w[0], w[1]);
  }
  double normal(uint64_t k) const {
    uint32_t w[4];
    words(k, w);
    const double radius = std::sqrt(-2 * std::log(1 - unit(w[0], w[1])));  // of (0, 1]
    return radius * std::cos(6.283185307179586477 * unit(w[2], w[3]));
  }
};

// The source of a node: with a seed every run draws the same numbers, without one each run others.
class RandomSource {
 public:
  void load(const Attributes& attributes);
  Random next();

 private:
  bool seeded_ = false;
  uint64_t key_ = 0;
  std::atomic<uint64_t> runs_{0};
};

}  // namespace opforge::kernels
