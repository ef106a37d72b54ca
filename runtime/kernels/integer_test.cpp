// integer_test.cpp: products of bytes, with dot-product instructions and without, against sums formed one
// by one.
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/integer.h"

namespace opforge {
namespace {

int failures = 0;

void check(const IsaTable& isa, int32_t pairs, int64_t m, int64_t k, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t row = (k + 3) / 4 * 4;
  std::vector<uint8_t> a(static_cast<size_t>(m * row + 64));
  std::vector<int8_t> b(static_cast<size_t>(k * n)),
      packed(static_cast<size_t>(kernels::packed_integers(k, n)));
  // Extremes often: two products of them overflow sixteen bits.
  for (uint8_t& x : a) x = random() % 3 == 0 ? 255 : static_cast<uint8_t>(random());
  for (int8_t& x : b) x = random() % 3 == 0 ? -128 : static_cast<int8_t>(random());
  std::vector<int32_t> sums(static_cast<size_t>(kernels::padded16(n))), zero(sums.size());
  kernels::pack_integers(reinterpret_cast<const uint8_t*>(b.data()), n, 1, k, n, 0, packed.data(),
                         sums.data());
  std::vector<int32_t> c(static_cast<size_t>(m * n));
  const int64_t start = 0;
  IntegerArgs g{};
  g.a = a.data(), g.a_row = row;
  g.segments = &start, g.n_segments = 1, g.groups = row / 4;
  g.b = packed.data();
  g.column = zero.data();
  g.output = IntegerOutput::kI32;
  g.c = c.data(), g.c_row = n, g.n = n;
  g.pairs = pairs;
  isa.integer_product(g, 0, m, 0, kernels::padded16(n) / 16);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum += static_cast<int32_t>(a[static_cast<size_t>(i * row + x)]) * b[static_cast<size_t>(x * n + j)];
      if (sum == c[static_cast<size_t>(i * n + j)]) continue;
      if (++failures <= 5)
        std::printf("%s, pairs %d: %lldx%lldx%lld, row %lld, column %lld\n", isa.name, pairs,
                    static_cast<long long>(m), static_cast<long long>(k), static_cast<long long>(n),
                    static_cast<long long>(i), static_cast<long long>(j));
    }
}

void check_all(const IsaTable& isa) {
  constexpr int64_t kSizes[][3] = {{1, 1, 1}, {3, 4, 16}, {12, 64, 32}, {13, 131, 70}, {29, 1000, 49}};
  uint32_t seed = 1;
  for (const auto& size : kSizes)
    for (int32_t pairs : {0, 1}) check(isa, pairs, size[0], size[1], size[2], seed++);
}

}  // namespace
}  // namespace opforge

int main() {
  using namespace opforge;
  check_all(isa_table());  // OPFORGE_ISA chooses another
  std::printf(failures == 0 ? "ok\n" : "%d wrong sums\n", failures);
  return failures == 0 ? 0 : 1;
}
