// peak.cpp: multiply-adds and nothing else: what products of this instruction set can reach at most.
#include "kernels/isa/peak.h"

#include "kernels/isa/simd.h"

namespace opforge {
namespace OPFORGE_ISA {

// Independent chains, enough to hide the latency; two registers hold the factors.
int64_t peak(int64_t rounds, float* kept) {
  constexpr int kChains = kRegisters >= 32 ? 24 : kRegisters >= 16 ? 12 : 4;
  Vec<kWidth> sums[kChains], a = splat<kWidth>(0.999f), b = splat<kWidth>(0.001f);
  OPFORGE_UNROLL
  for (int k = 0; k < kChains; ++k)
    sums[k] = splat<kWidth>(static_cast<float>(k));  // equal ones would be one
  for (int64_t i = 0; i < rounds; ++i) {
#if defined(__SSE__)
    asm volatile("" : "+x"(a), "+x"(b));  // not to be computed ahead
#elif defined(__aarch64__)
    asm volatile("" : "+w"(a), "+w"(b));
#endif
    OPFORGE_UNROLL
    for (int k = 0; k < kChains; ++k) sums[k] = vfma<kWidth>(sums[k], a, b);
  }
  float total = 0;
  OPFORGE_UNROLL
  for (int k = 0; k < kChains; ++k) total += sums[k][0];
  if (kept != nullptr) *kept = total;
  return int64_t{2} * kChains * kWidth;
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
