// text_case.cpp: lower and upper case of a character, from Unicode's tables rather than from the locale of
// the process.
#include <algorithm>
#include <iterator>

#include "kernels/texts.h"

namespace opforge::kernels {
namespace {

struct Run {
  uint32_t first, last, step;
  int32_t delta;
};
constexpr Run kLower[] = {
#define LOWER(first, last, step, delta) {first, last, step, delta},
#define UPPER(first, last, step, delta)
#include "kernels/unicode_case.def"
#undef LOWER
#undef UPPER
};
constexpr Run kUpper[] = {
#define LOWER(first, last, step, delta)
#define UPPER(first, last, step, delta) {first, last, step, delta},
#include "kernels/unicode_case.def"
#undef LOWER
#undef UPPER
};

template <size_t N>
uint32_t mapped(const Run (&runs)[N], uint32_t code) {
  // The first run that ends at or behind the code point; runs may interleave, but not with those of its step.
  const Run* run = std::lower_bound(std::begin(runs), std::end(runs), code,
                                    [](const Run& r, uint32_t c) { return r.last < c; });
  if (run == std::end(runs) || code < run->first || (code - run->first) % run->step != 0) return code;
  return static_cast<uint32_t>(static_cast<int64_t>(code) + run->delta);
}

}  // namespace

uint32_t lower_case(uint32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return mapped(kLower, code);
}

uint32_t upper_case(uint32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return mapped(kUpper, code);
}

}  // namespace opforge::kernels
