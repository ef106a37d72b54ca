// integer_lanes.h: vectors of 32-bit integers, the dot product of four bytes in each lane, and what follows a
// sum: corrections, scaling, rounding half to even, saturation.
#pragma once

#include "kernels/isa/simd.h"
#include "kernels/isa/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace opforge {
namespace OPFORGE_ISA {

template <int L>
struct IntegersOf {
  typedef int32_t Register __attribute__((vector_size(L * 4)));
  typedef int32_t Memory __attribute__((vector_size(L * 4), aligned(1), may_alias));
  typedef uint32_t Unsigned __attribute__((vector_size(L * 4)));
  typedef int16_t Pairs __attribute__((vector_size(L * 4)));
  typedef int8_t Bytes __attribute__((vector_size(L)));
  typedef int8_t BytesMemory __attribute__((vector_size(L), aligned(1), may_alias));
};
using Ints = IntegersOf<kWidth>::Register;
using Pairs = IntegersOf<kWidth>::Pairs;

static OPFORGE_INLINE Ints load_ints(const void* p) {
  return *static_cast<const IntegersOf<kWidth>::Memory*>(p);
}
static OPFORGE_INLINE void store_ints(int32_t* p, Ints v) {
  *reinterpret_cast<IntegersOf<kWidth>::Memory*>(p) = v;
}
static OPFORGE_INLINE bool any_lane(Ints v) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)v, (__m512i)v) != 0;
#elif defined(__AVX__)
  return _mm256_testz_si256((__m256i)v, (__m256i)v) == 0;
#else
  int32_t all = 0;
  for (int i = 0; i < kWidth; ++i) all |= v[i];
  return all != 0;
#endif
}
static OPFORGE_INLINE Ints broadcast4(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return four - Ints{};
}

// a: four unsigned bytes in each lane, b: four signed ones.
struct DotInstruction {
  struct Weights {
    Ints b;
  };
  using Row = Ints;
  static OPFORGE_INLINE Weights weights(Ints b) { return {b}; }
  static OPFORGE_INLINE Row row(Ints a) { return a; }
  static OPFORGE_INLINE Ints dot(Ints sum, Row a, const Weights& w) {
#if defined(__AVX512F__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(w.b));
#elif defined(__AVX2__)
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(w.b));
#else
    (void)a, (void)w;
#endif
    return sum;
  }
};

// The same with 16-bit products: bytes 0 and 2 of a lane, then 1 and 3. No sum of two can overflow.
struct DotPairs {
  struct Weights {
    Pairs even, odd;
  };
  struct Row {
    Pairs even, odd;
  };
  static OPFORGE_INLINE Weights weights(Ints b) {
    const Pairs v = reinterpret_cast<Pairs>(b);
    return {(v << 8) >> 8, v >> 8};
  }
  static OPFORGE_INLINE Row row(Ints a) {
    const Ints low = 0x00ff00ff - Ints{};
    return {reinterpret_cast<Pairs>(a & low), reinterpret_cast<Pairs>(a >> 8 & low)};
  }
  static OPFORGE_INLINE Ints products(Pairs a, Pairs b) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const Ints x = reinterpret_cast<Ints>(a), y = reinterpret_cast<Ints>(b);
    return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
  }
  static OPFORGE_INLINE Ints dot(Ints sum, const Row& a, const Weights& w) {
    return sum + products(a.even, w.even) + products(a.odd, w.odd);
  }
};

#if defined(__AVX2__)
// Asked once: under a virtual machine the question takes microseconds.
static inline bool has_dot_instruction() {
  static int known = -1;
  int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (has < 0) {
    unsigned a = 0, b = 0, c = 0, d = 0;
#if defined(__AVX512F__)
    has = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;  // AVX512_VNNI
#else
    has = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;  // AVX_VNNI
#endif
    __atomic_store_n(&known, has, __ATOMIC_RELAXED);
  }
  return has != 0;
}
#else
static inline bool has_dot_instruction() { return false; }
#endif

// To a byte, in doubles, where the product is exact but for its last bits: the rounding is that of the real
// number.
__attribute__((noinline)) static void requantize_exactly(const IntegerArgs& g, const int32_t* sums, int64_t n,
                                                         void* to) {
  auto* bytes = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < kWidth; ++i) {
    double y = double(sums[i]) * double(g.scale[n + i]);
    if (g.shift != nullptr) y += double(g.shift[n + i]);
    y = y > g.least ? y : g.least;
    y = y < g.most ? y : g.most;
    y += 6755399441055744.0;  // 1.5 * 2^52: the sum's low bits are the integer
    int64_t bits;
    std::memcpy(&bits, &y, sizeof bits);
    bytes[i] = static_cast<uint8_t>(bits + g.zero);
  }
}

// A distance from the rounded number at which an error of f32 products might have decided.
constexpr float kClose = 0.5f - 0x1p-13f;

// In floats where no lane is so close to a half that their error could decide; else as above.
static OPFORGE_INLINE void requantize(const IntegerArgs& g, Ints value, int64_t n, void* to) {
  using Set = IntegersOf<kWidth>;
  const Vec<kWidth> p = __builtin_convertvector(value, Vec<kWidth>) * load<kWidth>(g.scale + n);
  const Vec<kWidth> y = g.shift != nullptr ? p + load<kWidth>(g.shift + n) : p;
  const Vec<kWidth> inside =
      vmin<kWidth>(vmax<kWidth>(y, splat<kWidth>(float(g.least))), splat<kWidth>(float(g.most)));
  const Vec<kWidth> magic = splat<kWidth>(12582912.0f);  // 1.5 * 2^23
  const Vec<kWidth> rounded = inside + magic, off = inside - (rounded - magic);
  const Ints positive = 0x7fffffff - Ints{};
  const Vec<kWidth> distance = (Vec<kWidth>)((Ints)off & positive), size = (Vec<kWidth>)((Ints)p & positive);
  // Two roundings of p and one of the sum with the shift, which is at most as large where it matters.
  const Ints close = distance + size * 0x1p-21f > kClose;
  if (any_lane(close)) {
    alignas(64) int32_t sums[kWidth];
    store_ints(sums, value);
    return requantize_exactly(g, sums, n, to);
  }
  const Ints whole = (Ints)rounded - 0x4b400000 + g.zero;
  *static_cast<Set::BytesMemory*>(to) = __builtin_convertvector(whole, Set::Bytes);
}

// Rows of kWidth sums, `step` apart, to bytes of columns n..: as `requantize`, with one question for all rows
// whether a lane lies close to a half. No term depends on the row.
template <bool SHIFTED>
static OPFORGE_INLINE void requantize_rows(const IntegerArgs& g, const int32_t* sums, int64_t step,
                                           int64_t rows, int64_t n, uint8_t* to) {
  using Set = IntegersOf<kWidth>;
  const Ints column = load_ints(g.column + n), positive = 0x7fffffff - Ints{};
  const Vec<kWidth> scale = load<kWidth>(g.scale + n), magic = splat<kWidth>(12582912.0f);  // 1.5 * 2^23
  const Vec<kWidth> shift = SHIFTED ? load<kWidth>(g.shift + n) : Vec<kWidth>{};
  const Vec<kWidth> least_ = splat<kWidth>(float(g.least)), most_ = splat<kWidth>(float(g.most));
  const Ints zero = g.zero - Ints{};
  const int64_t c_row = g.c_row;
  Vec<kWidth> worst{};
  for (int64_t p = 0; p < rows; ++p) {
    const Ints value = (Ints)((Set::Unsigned)load_ints(sums + p * step) + (Set::Unsigned)column);
    const Vec<kWidth> product = __builtin_convertvector(value, Vec<kWidth>) * scale;
    const Vec<kWidth> y = SHIFTED ? product + shift : product;
    const Vec<kWidth> inside = vmin<kWidth>(vmax<kWidth>(y, least_), most_);
    const Vec<kWidth> rounded = inside + magic, off = inside - (rounded - magic);
    Vec<kWidth> distance = (Vec<kWidth>)((Ints)off & positive);
    // What is not clipped is below 2^9, and its error at most 2^-14; before a shift it may be larger.
    if (SHIFTED) distance += (Vec<kWidth>)((Ints)product & positive) * 0x1p-21f;
    worst = vmax<kWidth>(distance, worst);
    const Ints whole = (Ints)rounded + zero;  // the low byte is the code
    *reinterpret_cast<Set::BytesMemory*>(to + p * c_row) = __builtin_convertvector(whole, Set::Bytes);
  }
  if (!any_lane((Ints)(worst > kClose))) return;
  for (int64_t p = 0; p < rows; ++p)
    requantize(g, (Ints)((Set::Unsigned)load_ints(sums + p * step) + (Set::Unsigned)column), n,
               to + p * g.c_row);
}

// kWidth finished sums of columns n.. of one row, to `to`.
static OPFORGE_INLINE void finish_sums(const IntegerArgs& g, Ints sum, int64_t row, int64_t n, void* to) {
  using Unsigned = IntegersOf<kWidth>::Unsigned;
  Unsigned total = (Unsigned)sum + (Unsigned)load_ints(g.column + n);
  if (g.row != nullptr) total += (Unsigned)(g.row[row] - Ints{}) * (Unsigned)load_ints(g.row_factor + n);
  const Ints value = (Ints)total;
  if (g.output == IntegerOutput::kI32) return store_ints(static_cast<int32_t*>(to), value);
  if (g.output != IntegerOutput::kF32) return requantize(g, value, n, to);
  Vec<kWidth> y = __builtin_convertvector(value, Vec<kWidth>) * load<kWidth>(g.scale + n);
  if (g.shift != nullptr) y += load<kWidth>(g.shift + n);
  store<kWidth>(static_cast<float*>(to), y);
}

// Bytes of an element of the output.
static OPFORGE_INLINE int64_t output_bytes(const IntegerArgs& g) {
  return g.output == IntegerOutput::kI32 || g.output == IntegerOutput::kF32 ? 4 : 1;
}

// A row of 16 sums (columns n..n+15, some beyond the last one) to its place.
static OPFORGE_INLINE void finish16(const IntegerArgs& g, const Ints* sums, int64_t row, int64_t n) {
  const int64_t size = output_bytes(g);
  auto* to = static_cast<uint8_t*>(g.c) + (row * g.c_row + n) * size;
  alignas(64) uint8_t edge[64];
  const bool whole = n + 16 <= g.n;
  uint8_t* at = whole ? to : edge;
  OPFORGE_UNROLL
  for (int j = 0; j < 16 / kWidth; ++j) finish_sums(g, sums[j], row, n + j * kWidth, at + j * kWidth * size);
  if (!whole) std::memcpy(to, edge, static_cast<size_t>((g.n - n) * size));
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
