// emulator_warp.h: what threads do together: warp shuffles, votes and reductions, fences, atomic operations.
#pragma once

#include <cstring>
#include <type_traits>

#include "opforge/cuda/scheduler.h"

namespace opforge::cuda {

// Hands in a value and gives `read` the values of all lanes of the mask.
template <class T, class Read>
auto meet(unsigned mask, Meeting what, int line, T value, Read&& read) {
  static_assert(sizeof(T) <= kSlot && std::is_trivially_copyable_v<T>,
                "a lane hands on at most 16 plain bytes");
  const unsigned char* slots = opforge_cuda_meet(mask, what, line, &value, sizeof value);
  const auto of_lane = [slots](int lane) {
    T other;
    std::memcpy(&other, slots + static_cast<size_t>(lane) * kSlot, sizeof other);
    return other;
  };
  auto result = read(of_lane);
  opforge_cuda_part(mask, what, line);
  return result;
}

// The value of `source`; one from a lane that takes no part is undefined in CUDA, and NaN or all bits set
// here.
template <class T>
T shuffle(unsigned mask, int line, T value, int source) {
  return meet(mask, Meeting::kShuffle, line, value, [&](auto&& of_lane) {
    if (source >= 0 && source < kWarp && (mask >> source & 1u) != 0) return of_lane(source);
    T undefined;
    std::memset(static_cast<void*>(&undefined), 0xFF, sizeof undefined);
    return undefined;
  });
}
template <class T>
T shuffle_index(int line, unsigned mask, T value, int source, int width = kWarp) {
  const int lane = opforge_cuda_lane();
  return shuffle(mask, line, value, lane / width * width + (source & (width - 1)));
}
template <class T>
T shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = kWarp) {
  const int lane = opforge_cuda_lane(), source = lane - static_cast<int>(delta);
  return shuffle(mask, line, value, source < lane / width * width ? lane : source);
}
template <class T>
T shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = kWarp) {
  const int lane = opforge_cuda_lane(), source = lane + static_cast<int>(delta);
  return shuffle(mask, line, value, source >= lane / width * width + width ? lane : source);
}
template <class T>
T shuffle_xor(int line, unsigned mask, T value, int bits, int width = kWarp) {
  const int lane = opforge_cuda_lane(), source = lane ^ bits;
  return shuffle(mask, line, value, source / width > lane / width ? lane : source);
}

inline unsigned ballot(int line, unsigned mask, int predicate) {
  return meet(mask, Meeting::kVote, line, predicate, [&](auto&& of_lane) {
    unsigned votes = 0;
    for (int lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1u) != 0 && of_lane(lane) != 0) votes |= 1u << lane;
    }
    return votes;
  });
}
template <class T>
unsigned match_any(int line, unsigned mask, T value) {
  return meet(mask, Meeting::kMatch, line, value, [&](auto&& of_lane) {
    unsigned equal = 0;
    for (int lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1u) == 0) continue;
      const T other = of_lane(lane);
      if (std::memcmp(&other, &value, sizeof value) == 0) equal |= 1u << lane;
    }
    return equal;
  });
}
template <class T, class Combine>
T reduce(int line, unsigned mask, T value, Combine&& combine) {
  return meet(mask, Meeting::kReduce, line, value, [&](auto&& of_lane) {
    T sum{};
    bool first = true;
    for (int lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1u) == 0) continue;
      sum = first ? of_lane(lane) : combine(sum, of_lane(lane));
      first = false;
    }
    return sum;
  });
}
struct SyncWarp {
  int line;
  void operator()(unsigned mask = 0xffffffffu) const { opforge_cuda_part(mask, Meeting::kSync, line); }
};

// Relaxed, as CUDA's are.
template <class T, class Change>
T atomically(T* address, Change&& change) {
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do {
    after = change(before);
  } while (!__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

}  // namespace opforge::cuda

#define __syncwarp \
  ::opforge::cuda::SyncWarp { __LINE__ }
#define __shfl_sync(...) ::opforge::cuda::shuffle_index(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) ::opforge::cuda::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) ::opforge::cuda::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) ::opforge::cuda::shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) ::opforge::cuda::ballot(__LINE__, mask, (predicate) ? 1 : 0)
#define __any_sync(mask, predicate) \
  (::opforge::cuda::ballot(__LINE__, mask, (predicate) ? 1 : 0) != 0 ? 1 : 0)
#define __all_sync(mask, predicate) \
  (::opforge::cuda::ballot(__LINE__, mask, (predicate) ? 0 : 1) == 0 ? 1 : 0)
#define __match_any_sync(mask, value) ::opforge::cuda::match_any(__LINE__, mask, value)
#define __activemask() ::opforge::cuda::opforge_cuda_active()
#define __reduce_add_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return a + b; })
#define __reduce_min_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return b < a ? b : a; })
#define __reduce_max_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return a < b ? b : a; })
#define __reduce_and_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return a & b; })
#define __reduce_or_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return a | b; })
#define __reduce_xor_sync(mask, value) \
  ::opforge::cuda::reduce(__LINE__, mask, value, [](auto a, auto b) { return a ^ b; })

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

namespace opforge::cuda {
template <class T>
struct same {
  using type = T;
};
template <class T>
using same_t = typename same<T>::type;  // not deduced: atomicAdd(&counter, 1) with an unsigned counter
}  // namespace opforge::cuda

template <class T>
T atomicAdd(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return static_cast<T>(before + value); });
}
template <class T>
T atomicSub(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return static_cast<T>(before - value); });
}
template <class T>
T atomicMin(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return value < before ? value : before; });
}
template <class T>
T atomicMax(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return before < value ? value : before; });
}
template <class T>
T atomicAnd(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return static_cast<T>(before & value); });
}
template <class T>
T atomicOr(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return static_cast<T>(before | value); });
}
template <class T>
T atomicXor(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return static_cast<T>(before ^ value); });
}
template <class T>
T atomicExch(T* address, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T) { return value; });
}
template <class T>
T atomicCAS(T* address, opforge::cuda::same_t<T> compare, opforge::cuda::same_t<T> value) {
  return opforge::cuda::atomically(address, [&](T before) { return before == compare ? value : before; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return opforge::cuda::atomically(address,
                                   [&](unsigned before) { return before >= limit ? 0u : before + 1u; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return opforge::cuda::atomically(
      address, [&](unsigned before) { return before == 0u || before > limit ? limit : before - 1u; });
}
