// vector_math_f64_test.cpp: errors of the f64 functions against long double libm where that has more digits,
// equal bits at widths 4, 8, 16, and the bits themselves: those of every processor are kept here, per
// profile. Usage: vector_math_f64_test [sets]: that many sets of random arguments (with another number than
// the usual one the kept bits are not compared). Prints one line per function.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <random>
#include <vector>

#include "opforge/vector_math.h"

namespace vm = opforge::vm;

namespace {

using Wide = long double;

Wide ref_sigmoid(Wide x) { return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x)); }
Wide ref_softplus(Wide x) { return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x))); }
Wide ref_rsqrt(Wide x) { return 1 / sqrtl(x); }
Wide ref_reciprocal(Wide x) { return 1 / x; }
Wide ref_square(Wide x) { return x * x; }
Wide ref_mod(Wide x, Wide y) {
  if (isinf(y) && isfinite(x)) return x == 0 ? copysignl(0, y) : signbit(x) == signbit(y) ? x : y;
  const Wide r = fmodl(x, y);
  return r == 0 ? copysignl(0, y) : signbit(r) == signbit(y) ? r : r + y;
}

// Error in units of the last place of the binade of the reference, denormal spacing respected.
double ulp_error(Wide reference, double got) {
  const double rounded = static_cast<double>(reference);
  if (isnan(rounded) || isnan(got)) return isnan(rounded) && isnan(got) ? 0 : INFINITY;
  if (isinf(rounded) || isinf(got)) {
    if (rounded == got) return 0;
    const bool edge = fabsl(reference) > DBL_MAX || fabs(got) == DBL_MAX;
    return edge && signbit(rounded) == signbit(got) ? 1 : INFINITY;
  }
  if (reference == 0 && got == 0) return signbit(reference) == signbit(got) ? 0 : INFINITY;
  int exponent;
  frexpl(reference, &exponent);
  return static_cast<double>(fabsl(got - reference) /
                             ldexpl(1, exponent - 53 > -1074 ? exponent - 53 : -1074));
}

using Apply = void (*)(const double*, const double*, double*, size_t);
#define ULP_UNARY(name, f32, f64)                                                       \
  template <int N>                                                                      \
  void apply_##name(const double* x, const double*, double* out, size_t n) {            \
    using V = vm::Vec<double, N>;                                                       \
    for (size_t i = 0; i < n; i += N) vm::store(out + i, vm::name(vm::load<V>(x + i))); \
  }
#define ULP_BINARY(name, f32, f64)                                                                          \
  template <int N>                                                                                          \
  void apply_##name(const double* x, const double* y, double* out, size_t n) {                              \
    using V = vm::Vec<double, N>;                                                                           \
    for (size_t i = 0; i < n; i += N) vm::store(out + i, vm::name(vm::load<V>(x + i), vm::load<V>(y + i))); \
  }
#include "opforge/vector_math_ulp.def"
#undef ULP_UNARY
#undef ULP_BINARY

Wide (*const kRefs1[])(Wide) = {
    expl,   exp2l,     expm1l,         logl,       log2l,  log10l,      log1pl,       sinl,
    cosl,   tanl,      asinl,          acosl,      atanl,  sinhl,       coshl,        tanhl,
    asinhl, acoshl,    atanhl,         erfl,       erfcl,  ref_sigmoid, ref_softplus, cbrtl,
    sqrtl,  ref_rsqrt, ref_reciprocal, ref_square, floorl, ceill,       nearbyintl,   truncl};
Wide (*const kRefs2[])(Wide, Wide) = {powl, atan2l, fmodl, ref_mod};

struct Arguments {
  std::vector<double> x, y;
};

double from_word(uint64_t word) {
  double x;
  memcpy(&x, &word, 8);
  return x;
}

const double kSpecial[] = {0.0,
                           1.0,
                           2.0,
                           3.0,
                           0.5,
                           1.5,
                           2.5,
                           0.25,
                           0.75,
                           0.46875,
                           6.0,
                           28.0,
                           22.0,
                           INFINITY,
                           NAN,
                           5e-324,
                           1e-310,
                           DBL_MIN,
                           DBL_MAX,
                           0x1p52,
                           0x1p53,
                           0x1p54,
                           1e22,
                           0x1p-28,
                           0x1p-30,
                           0x1p-54,
                           0x1p28,
                           0x1p20,
                           709.78271289,
                           710.4759,
                           745.13321,
                           36.736825,
                           1024.0,
                           1074.0,
                           0x1.921fb54442d18p+0,
                           0x1p1000,
                           0x1p-1000,
                           6381956970095103.0 * 0x1p797};

// Numbers of every magnitude, where functions bend, next to special ones, next to multiples of pi/2.
Arguments arguments(int sets) {
  Arguments a;
  std::mt19937_64 random(7);
  const auto word = [&] { return static_cast<uint64_t>(random()); };
  const auto uniform = [&](double to) {
    return static_cast<double>(static_cast<int64_t>(word())) * 0x1p-63 * to;
  };
  for (int i = 0; i < sets; ++i) {
    a.x.push_back(from_word(word()));
    const double m = 1.0 + static_cast<double>(word() >> 12) * 0x1p-52;
    const int exponent = static_cast<int>(word() % 140) - 100;
    a.x.push_back(ldexp(word() & 1 ? -m : m, exponent));
    for (const double to : {0.3, 1.0, 3.0, 8.0, 30.0, 750.0}) a.x.push_back(uniform(to));
    a.x.push_back(1.0 + uniform(0.01));
    a.x.push_back(0x1.921fb54442d18p+0 * static_cast<double>(word() % 100000));
  }
  for (const double s : kSpecial) {
    for (uint64_t d = 0; d < 9; ++d) {
      uint64_t w;
      memcpy(&w, &s, 8);
      a.x.push_back(from_word(w + d - 4));
      a.x.push_back(-from_word(w + d - 4));
    }
  }
  while (a.x.size() % 16) a.x.push_back(1.0);
  for (size_t i = 0; i < a.x.size(); ++i) {
    const double other = a.x[(i * 7919 + 13) % a.x.size()];
    const double choices[] = {other, uniform(20.0), rint(uniform(40.0)), a.x[i] * uniform(4.0)};
    a.y.push_back(choices[i % 4]);
  }
  return a;
}

struct Case {
  const char* name;
  double bound;
  Apply apply[3];
  Wide (*unary)(Wide);
  Wide (*binary)(Wide, Wide);
};

// The bits of all results, any NaN as one.
uint64_t fingerprint(const std::vector<double>& values) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const double v : values) {
    uint64_t w;
    memcpy(&w, &v, 8);
    hash = (hash ^ (isnan(v) ? 1 : w)) * 0x100000001b3ull;
  }
  return hash;
}

constexpr int kSets = 4000;
struct Kept {
  const char* name;
  uint64_t strict, fast;
};
constexpr Kept kKept[] = {
#include "vector_math_f64_bits.def"
};

bool check(const Case& c, const Arguments& a, int sets) {
  const size_t n = a.x.size();
  std::vector<double> out[3];
  for (int w = 0; w < 3; ++w) {
    out[w].resize(n);
    c.apply[w](a.x.data(), a.y.data(), out[w].data(), n);
  }
  const uint64_t bits = fingerprint(out[0]);
  const bool widths = bits == fingerprint(out[1]) && bits == fingerprint(out[2]);
  bool same = sets != kSets;
  for (const Kept& k : kKept) same |= !strcmp(k.name, c.name) && (vm::kFast ? k.fast : k.strict) == bits;
  double worst = 0;
  size_t at = 0;
  if (LDBL_MANT_DIG == 64) {  // elsewhere as long as double, or emulated: there the bits stand for it
    for (size_t i = 0; i < n; ++i) {
      const double error = ulp_error(c.unary ? c.unary(a.x[i]) : c.binary(a.x[i], a.y[i]), out[0][i]);
      if (error > worst) {
        worst = error;
        at = i;
      }
    }
  }
  const bool good = worst <= c.bound && widths && same;
  printf("%-12s %.3f ulp (bound %g) at %a %a  widths %s  bits 0x%016" PRIx64 " %s%s\n", c.name, worst,
         c.bound, a.x[at], a.y[at], widths ? "equal" : "DIFFER", bits, same ? "as kept" : "NOT AS KEPT",
         good ? "" : "  FAILED");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const int sets = argc > 1 ? atoi(argv[1]) : kSets;
  const Arguments a = arguments(sets);
  int k1 = 0, k2 = 0, failures = 0;
  printf("profile %s\n", vm::kFast ? "fast" : "strict");
#define ULP_UNARY(name, f32, f64) \
  failures += !check(             \
      {#name, f64, {apply_##name<4>, apply_##name<8>, apply_##name<16>}, kRefs1[k1++], nullptr}, a, sets);
#define ULP_BINARY(name, f32, f64) \
  failures += !check(              \
      {#name, f64, {apply_##name<4>, apply_##name<8>, apply_##name<16>}, nullptr, kRefs2[k2++]}, a, sets);
#include "opforge/vector_math_ulp.def"
  return failures != 0;
}
