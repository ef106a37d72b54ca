// costs.h: what parallel regions took lately, by what they run, in a fixed table. An entry is one word of
// half a key and a float, so that threads read and write it whole; a collision costs an estimate, nothing
// else.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace opforge {

class Costs {
 public:
  static uint64_t key(const void* body, uint64_t site, int64_t n, int64_t grain) {
    uint64_t h = 0;
    for (uint64_t part :
         {reinterpret_cast<uint64_t>(body), site, static_cast<uint64_t>(n), static_cast<uint64_t>(grain)}) {
      h = (h ^ part) * 0x9E3779B97F4A7C15ull;
      h ^= h >> 29;
    }
    return h;
  }
  // Nanoseconds of one thread for the whole region; negative when it is not known.
  double find(uint64_t key) const {
    const uint64_t entry = entries_[key % kEntries].load(std::memory_order_relaxed);
    return entry >> 32 == tag(key) ? static_cast<double>(cost_of(entry)) : -1.0;
  }
  void learn(uint64_t key, double nanoseconds) {
    std::atomic<uint64_t>& slot = entries_[key % kEntries];
    const uint64_t entry = slot.load(std::memory_order_relaxed);
    auto cost = static_cast<float>(nanoseconds);
    if (entry >> 32 == tag(key)) {  // a thread that lost its CPU for a while must not count for much
      const float old = cost_of(entry);
      cost = old + ((cost < 2 * old ? cost : 2 * old) - old) * 0.5f;
    }
    uint32_t bits;
    std::memcpy(&bits, &cost, sizeof bits);
    slot.store(tag(key) << 32 | bits, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kEntries = 1024;
  static uint64_t tag(uint64_t key) { return key >> 32 | 1; }  // 0 = nothing known
  static float cost_of(uint64_t entry) {
    const auto bits = static_cast<uint32_t>(entry);
    float cost;
    std::memcpy(&cost, &bits, sizeof cost);
    return cost;
  }
  std::atomic<uint64_t> entries_[kEntries] = {};
};

}  // namespace opforge
