// bytes.cpp: elementwise steps on quantised tensors: sums and products of two, and tables of all 256 codes.
#include "kernels/isa/functions.h"
#include "kernels/isa/integer_lanes.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

#if defined(__AVX512BW__)
// Asked once, as for dot products.
inline bool has_byte_permutes() {
  static int known = -1;
  int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (has < 0) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    has = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 1 & 1) != 0;  // AVX512_VBMI
    __atomic_store_n(&known, has, __ATOMIC_RELAXED);
  }
  return has != 0;
}

inline __m512i pick(__m512i codes, __m512i low, __m512i high) {
  __asm__("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(low), "v"(high));
  return codes;
}
#endif

typedef uint8_t Lanes __attribute__((vector_size(kWidth)));
typedef uint8_t LanesMemory __attribute__((vector_size(kWidth), aligned(1), may_alias));

// A code as the real number that it stands for: (code - zero) * scale, rounded as DequantizeLinear rounds.
OPFORGE_INLINE Vec<kWidth> real(const uint8_t* p, uint8_t flip, int32_t zero, float scale) {
  const Lanes codes = *reinterpret_cast<const LanesMemory*>(p) ^ flip;
  return __builtin_convertvector(__builtin_convertvector(codes, Ints) - zero, Vec<kWidth>) *
         splat<kWidth>(scale);
}

template <bool PRODUCT>
OPFORGE_INLINE void pair(const BytePairArgs& g, const uint8_t* a, const uint8_t* b, uint8_t* y) {
  const Vec<kWidth> x = real(a, g.a_flip, g.a_zero, g.a_scale), z = real(b, g.b_flip, g.b_zero, g.b_scale);
  const Vec<kWidth> v = PRODUCT ? x * z : x + z;
  const Vec<kWidth> least_ = splat<kWidth>(float(g.least - g.zero)),
                    most_ = splat<kWidth>(float(g.most - g.zero));
  const Vec<kWidth> magic = splat<kWidth>(12582912.0f);  // 1.5 * 2^23
  // A multiplication gives the code of the division unless it lies close to a half.
  Vec<kWidth> q = vmin<kWidth>(vmax<kWidth>(v * splat<kWidth>(g.inverse), least_), most_);
  const Vec<kWidth> off = q - ((q + magic) - magic);
  const Ints distance = (Ints)off & 0x7fffffff;
  if (any_lane((Ints)((Vec<kWidth>)distance > 0.5f - 0x1p-12f)))
    q = vmin<kWidth>(vmax<kWidth>(v / splat<kWidth>(g.scale), least_), most_);
  const Ints whole = (Ints)(q + magic) - 0x4b400000 + g.zero;
  *reinterpret_cast<LanesMemory*>(y) = __builtin_convertvector(whole, Lanes);
}

template <bool PRODUCT>
void pairs(const BytePairArgs& g, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t *a = g.a + r * g.a_row, *b = g.b + r * g.b_row;
    uint8_t* y = g.y + r * g.y_row;
    int64_t i = 0;
    for (; i + kWidth <= g.n; i += kWidth) pair<PRODUCT>(g, a + i, b + i, y + i);
    if (i == g.n) continue;
    uint8_t edge[3][kWidth] = {};
    std::memcpy(edge[0], a + i, static_cast<size_t>(g.n - i));
    std::memcpy(edge[1], b + i, static_cast<size_t>(g.n - i));
    pair<PRODUCT>(g, edge[0], edge[1], edge[2]);
    std::memcpy(y + i, edge[2], static_cast<size_t>(g.n - i));
  }
}

}  // namespace

void byte_pairs(const BytePairArgs& g, int64_t rows) {
  if (g.product != 0)
    pairs<true>(g, rows);
  else
    pairs<false>(g, rows);
}

void byte_table(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512BW__)
  if (has_byte_permutes()) {
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64),
                  t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (; i + 64 <= n; i += 64) {
      const __m512i codes = _mm512_loadu_si512(from + i);
      _mm512_storeu_si512(to + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), pick(codes, t0, t1),
                                                         pick(codes, t2, t3)));
    }
  }
#endif
  for (; i < n; ++i) to[i] = table[from[i]];
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
