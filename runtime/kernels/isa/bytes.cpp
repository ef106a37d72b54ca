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

// The numbers of the arguments in registers: stores of bytes may alias anything in memory.
struct Held {
  Ints a_zero, b_zero, zero;
  Vec<kWidth> a_scale, b_scale, scale, inverse, least, most;
  Lanes a_flip, b_flip;
  explicit OPFORGE_INLINE Held(const BytePairArgs& g)
      : a_zero(g.a_zero - Ints{}),
        b_zero(g.b_zero - Ints{}),
        zero(g.zero - Ints{}),
        a_scale(splat<kWidth>(g.a_scale)),
        b_scale(splat<kWidth>(g.b_scale)),
        scale(splat<kWidth>(g.scale)),
        inverse(splat<kWidth>(g.inverse)),
        least(splat<kWidth>(float(g.least - g.zero))),
        most(splat<kWidth>(float(g.most - g.zero))),
        a_flip(g.a_flip - Lanes{}),
        b_flip(g.b_flip - Lanes{}) {}
};

// A code as the real number that it stands for: (code - zero) * scale, rounded as DequantizeLinear rounds.
OPFORGE_INLINE Vec<kWidth> real(const uint8_t* p, Lanes flip, Ints zero, Vec<kWidth> scale) {
  const Lanes codes = *reinterpret_cast<const LanesMemory*>(p) ^ flip;
  return __builtin_convertvector(__builtin_convertvector(codes, Ints) - zero, Vec<kWidth>) * scale;
}

// COUNT vectors, with one question whether any lane lies close to a half: else a multiplication gives the
// code of the division.
template <bool PRODUCT, int COUNT>
OPFORGE_INLINE void pair(const Held& h, const uint8_t* a, const uint8_t* b, uint8_t* y) {
  const Vec<kWidth> magic = splat<kWidth>(12582912.0f);  // 1.5 * 2^23
  Vec<kWidth> v[COUNT], q[COUNT], worst{};
  OPFORGE_UNROLL
  for (int k = 0; k < COUNT; ++k) {
    const Vec<kWidth> x = real(a + k * kWidth, h.a_flip, h.a_zero, h.a_scale),
                      z = real(b + k * kWidth, h.b_flip, h.b_zero, h.b_scale);
    v[k] = PRODUCT ? x * z : x + z;
    q[k] = vmin<kWidth>(vmax<kWidth>(v[k] * h.inverse, h.least), h.most);
    const Vec<kWidth> rounded = q[k] + magic, off = q[k] - (rounded - magic);
    q[k] = rounded;
    worst = vmax<kWidth>((Vec<kWidth>)((Ints)off & 0x7fffffff), worst);
  }
  if (any_lane((Ints)(worst > 0.5f - 0x1p-13f))) {
    OPFORGE_UNROLL
    for (int k = 0; k < COUNT; ++k)
      q[k] = vmin<kWidth>(vmax<kWidth>(v[k] / h.scale, h.least), h.most) + magic;
  }
  OPFORGE_UNROLL
  for (int k = 0; k < COUNT; ++k)  // the low byte is the code
    *reinterpret_cast<LanesMemory*>(y + k * kWidth) = __builtin_convertvector((Ints)q[k] + h.zero, Lanes);
}

template <bool PRODUCT>
void pairs(const BytePairArgs& g, int64_t rows) {
  constexpr int kAtOnce = 2;
  const Held h(g);
  const int64_t n = g.n;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t *a = g.a + r * g.a_row, *b = g.b + r * g.b_row;
    uint8_t* y = g.y + r * g.y_row;
    int64_t i = 0;
    for (; i + kAtOnce * kWidth <= n; i += kAtOnce * kWidth) pair<PRODUCT, kAtOnce>(h, a + i, b + i, y + i);
    for (; i + kWidth <= n; i += kWidth) pair<PRODUCT, 1>(h, a + i, b + i, y + i);
    if (i == n) continue;
    uint8_t edge[3][kWidth] = {};
    std::memcpy(edge[0], a + i, static_cast<size_t>(n - i));
    std::memcpy(edge[1], b + i, static_cast<size_t>(n - i));
    pair<PRODUCT, 1>(h, edge[0], edge[1], edge[2]);
    std::memcpy(y + i, edge[2], static_cast<size_t>(n - i));
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
