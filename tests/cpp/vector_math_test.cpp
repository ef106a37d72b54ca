// vector_math_test.cpp: errors of the f32 functions against double libm (itself checked against mpmath by
// tests/unit/bytecode), equal bits at widths 4, 8, 16, special values, half conversions.
// Usage: vector_math_test [step]: sweeps every step-th of all 2^32 floats. Prints one line per function.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <random>
#include <vector>

#include "opforge/vector_math.h"

namespace vm = opforge::vm;

namespace {

int failures = 0;

double ref_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
double ref_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
double ref_rsqrt(double x) { return 1 / sqrt(x); }
double ref_reciprocal(double x) { return 1 / x; }
double ref_square(double x) { return x * x; }
double ref_round(double x) { return nearbyint(x); }
double ref_mod(double x, double y) {
  if (isinf(y) && isfinite(x)) return x == 0 ? copysign(0, y) : signbit(x) == signbit(y) ? x : y;
  const double r = fmod(x, y);
  return r == 0 ? copysign(0, y) : signbit(r) == signbit(y) ? r : r + y;
}

// Error in units of the last place of the binade of the reference, denormal spacing respected.
double ulp_error(double reference, float got) {
  const float rounded = static_cast<float>(reference);
  if (isnan(reference) || isnan(got)) return isnan(reference) && isnan(got) ? 0 : INFINITY;
  if (isinf(rounded) || isinf(got)) {
    if (rounded == got) return 0;
    const bool edge = fabs(reference) > 0x1.fffffep127 || fabsf(got) == 0x1.fffffep127f;
    return edge && signbit(rounded) == signbit(got) ? 1 : INFINITY;
  }
  if (reference == 0 && got == 0) return signbit(reference) == signbit(got) ? 0 : INFINITY;
  int exponent;
  frexp(reference, &exponent);
  return fabs(got - reference) / ldexp(1.0, exponent - 24 > -149 ? exponent - 24 : -149);
}

using Apply = void (*)(const float*, const float*, float*, long);
#define ULP_UNARY(name, bound, f64)                                                   \
  template <int N>                                                                    \
  void apply_##name(const float* x, const float*, float* out, long n) {               \
    using V = vm::Vec<float, N>;                                                      \
    for (long i = 0; i < n; i += N) vm::store(out + i, vm::name(vm::load<V>(x + i))); \
  }
#define ULP_BINARY(name, bound, f64)                                        \
  template <int N>                                                          \
  void apply_##name(const float* x, const float* y, float* out, long n) {   \
    using V = vm::Vec<float, N>;                                            \
    for (long i = 0; i < n; i += N) {                                       \
      vm::store(out + i, vm::name(vm::load<V>(x + i), vm::load<V>(y + i))); \
    }                                                                       \
  }
#include "opforge/vector_math_ulp.def"
#undef ULP_UNARY
#undef ULP_BINARY

struct Case {
  const char* name;
  double bound;
  Apply apply[3];
  double (*unary)(double);
  double (*binary)(double, double);
  double worst = 0;
  float worst_x = 0, worst_y = 0;
  long width_differences = 0;
};

double (*const kRefs1[])(double) = {
    exp,   exp2,      expm1,          log,        log2,  log10,       log1p,        sin,
    cos,   tan,       asin,           acos,       atan,  sinh,        cosh,         tanh,
    asinh, acosh,     atanh,          erf,        erfc,  ref_sigmoid, ref_softplus, cbrt,
    sqrt,  ref_rsqrt, ref_reciprocal, ref_square, floor, ceil,        ref_round,    trunc};
double (*const kRefs2[])(double, double) = {pow, atan2, fmod, ref_mod};

constexpr long kBlock = 1 << 14;
float xs[kBlock], ys[kBlock], outs[3][kBlock];

// The reference of fmod and mod in double is exact only while the operands' exponents are close; beyond that
// fmod still is (it is an exact function) but r + y is not, which costs the sum's rounding.
void check_block(Case& c, long n) {
  for (int w = 0; w < 3; ++w) c.apply[w](xs, ys, outs[w], kBlock);
  for (long i = 0; i < n; ++i) {
    const double reference = c.unary ? c.unary(xs[i]) : c.binary(xs[i], ys[i]);
    const double error = ulp_error(reference, outs[2][i]);
    if (error > c.worst) {
      c.worst = error;
      c.worst_x = xs[i];
      c.worst_y = ys[i];
    }
    for (int w = 0; w < 2; ++w) {
      const bool both_nan = isnan(outs[w][i]) && isnan(outs[2][i]);
      if (!both_nan && memcmp(&outs[w][i], &outs[2][i], 4) != 0) ++c.width_differences;
    }
  }
}

float from_word(uint32_t word) {
  float x;
  memcpy(&x, &word, 4);
  return x;
}

const float kSpecial[] = {0.0f,        1.0f,           2.0f,           3.0f,       0.5f,
                          1.5f,        2.5f,           0.25f,          INFINITY,   NAN,
                          1e-45f,      1e-40f,         0x1p-126f,      3.4e38f,    0x1.fffffep127f,
                          16777215.0f, 16777216.0f,    8388607.5f,     8388608.0f, 0.99999994f,
                          1.0000001f,  88.8f,          88.72283f,      88.72284f,  103.97f,
                          104.0f,      0x1.921fb6p+0f, 0x1.921fb6p+1f, 65536.0f,   1048576.0f,
                          0.625f,      0.9375f,        10.05f,         20.0f,      4.0f,
                          0.40625f,    4096.0f,        5e-324};

void sweep_unary(Case& c, uint64_t step) {
  long n = 0;
  const auto push = [&](float x) {
    xs[n++] = x;
    if (n == kBlock) {
      check_block(c, n);
      n = 0;
    }
  };
  for (uint64_t word = 0; word < (1ull << 32); word += step) push(from_word(static_cast<uint32_t>(word)));
  for (const float s : kSpecial) {
    for (int d = -8; d <= 8; ++d) {
      uint32_t word;
      memcpy(&word, &s, 4);
      push(from_word(word + d));
      push(-from_word(word + d));
    }
  }
  // A dense look where functions bend.
  for (int i = 0; i < (1 << 16); ++i) push((i - (1 << 15)) * 0x1p-11f);
  check_block(c, n);
}

void sweep_binary(Case& c, uint64_t step) {
  std::mt19937 random(7);
  const auto uniform = [&](float lo, float hi) { return lo + (hi - lo) * (random() * 0x1p-32f); };
  const long blocks = step >= 1 << 16 ? 16 : step >= 1 << 12 ? 64 : 512;
  for (long b = 0; b < blocks; ++b) {
    for (long i = 0; i < kBlock; ++i) {
      switch (b % 4) {
        case 0:
          xs[i] = from_word(random());
          ys[i] = from_word(random());
          break;
        case 1:
          xs[i] = uniform(0.01f, 4.0f);
          ys[i] = static_cast<float>(uniform(-100, 100) / log(xs[i]));
          break;
        case 2:
          xs[i] = uniform(-50, 50);
          ys[i] = roundf(uniform(-20, 20));
          break;
        default:
          xs[i] = uniform(-1e6f, 1e6f);
          ys[i] = uniform(-100, 100);
      }
    }
    check_block(c, kBlock);
  }
  long n = 0;
  for (const float a : kSpecial) {
    for (const float b : kSpecial) {
      for (int s = 0; s < 4; ++s) {
        xs[n] = s & 1 ? -a : a;
        ys[n++] = s & 2 ? -b : b;
        if (n == kBlock) {
          check_block(c, n);
          n = 0;
        }
      }
    }
  }
  check_block(c, n);
}

template <int N>
long half_mismatches() {
  long bad = 0;
  for (uint32_t h = 0; h < 65536; h += N) {
    uint16_t in[N];
    for (int i = 0; i < N; ++i) in[i] = static_cast<uint16_t>(h + i);
    vm::raw::Half<N> v;
    memcpy(&v, in, sizeof v);
    const auto f = vm::raw::f16_to_float<N>(v), b = vm::raw::bf16_to_float<N>(v);
    for (int i = 0; i < N; ++i) {
      const float want = opforge::detail::f16_to_float(in[i]), got = f[i], wide = b[i];
      if (!(isnan(want) && isnan(got)) && memcmp(&want, &got, 4) != 0) ++bad;
      const float bf = from_word(static_cast<uint32_t>(in[i]) << 16);
      if (!(isnan(bf) && isnan(wide)) && memcmp(&bf, &wide, 4) != 0) ++bad;
    }
  }
  for (uint64_t word = 0; word < (1ull << 32); word += 1021) {
    typename vm::raw::Floats<N> v;
    for (int i = 0; i < N; ++i) v[i] = from_word(static_cast<uint32_t>(word + 509 * i));
    const auto f = vm::raw::float_to_f16<N>(v), b = vm::raw::float_to_bf16<N>(v);
    for (int i = 0; i < N; ++i) {
      if (isnan(v[i])) {
        if (!isnan(opforge::detail::f16_to_float(f[i])) || !isnan(opforge::detail::bf16_to_float(b[i])))
          ++bad;
      } else if (f[i] != opforge::detail::float_to_f16(v[i]) ||
                 b[i] != opforge::detail::float_to_bf16(v[i])) {
        ++bad;
      }
    }
  }
  return bad;
}

template <class E, int N>
long cast_mismatches() {
  long bad = 0;
  for (const float s : kSpecial) {
    for (int sign = -1; sign <= 1; sign += 2) {
      for (const double scale : {1.0, 0x1p7, 0x1p8, 0x1p31, 0x1p63}) {
        const auto f = vm::splat<vm::Vec<float, N>>(sign * s * scale);
        const auto d = vm::splat<vm::Vec<double, N>>(sign * s * scale);
        const E a = vm::cast<E>(f).v[N - 1], b = vm::cast<E>(d).v[0];
        if (a != vm::cast_scalar<E, float>(static_cast<float>(sign * s * scale))) ++bad;
        if (b != vm::cast_scalar<E, double>(sign * s * scale)) ++bad;
      }
    }
  }
  return bad;
}

void expect_zero(const char* what, long bad) {
  printf("%-12s %ld mismatches\n", what, bad);
  if (bad) ++failures;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t step = argc > 1 ? strtoull(argv[1], nullptr, 10) : 4093;
  std::vector<Case> cases;
  int k1 = 0, k2 = 0;
#define ULP_UNARY(name, bound, f64) \
  cases.push_back(                  \
      {#name, bound, {apply_##name<4>, apply_##name<8>, apply_##name<16>}, kRefs1[k1++], nullptr});
#define ULP_BINARY(name, bound, f64) \
  cases.push_back(                   \
      {#name, bound, {apply_##name<4>, apply_##name<8>, apply_##name<16>}, nullptr, kRefs2[k2++]});
#include "opforge/vector_math_ulp.def"
  printf("profile %s\n", vm::kFast ? "fast" : "strict");
  for (Case& c : cases) {
    if (c.unary) {
      sweep_unary(c, step);
    } else {
      sweep_binary(c, step);
    }
    const bool good = c.worst <= c.bound && c.width_differences == 0;
    printf("%-12s %.3f ulp (bound %g) at %a %a  width differences %ld%s\n", c.name, c.worst, c.bound,
           c.worst_x, c.worst_y, c.width_differences, good ? "" : "  FAILED");
    if (!good) ++failures;
  }
  expect_zero("half 4", half_mismatches<4>());
  expect_zero("half 8", half_mismatches<8>());
  expect_zero("half 16", half_mismatches<16>());
  expect_zero("cast", cast_mismatches<int32_t, 8>() + cast_mismatches<int64_t, 8>() +
                          cast_mismatches<uint8_t, 8>() + cast_mismatches<int8_t, 8>());
  return failures != 0;
}
