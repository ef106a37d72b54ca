// numbers.cpp: numbers as text and back, whatever the locale of the process is.
#include <locale.h>
#include <stdlib.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/texts.h"
#include "kernels/types.h"

namespace opforge::kernels {
namespace {

constexpr int64_t kLongest = 1100;  // of a number that is read: all digits of a double

locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

int64_t put(const char* text, char* to) {
  const size_t n = std::strlen(text);
  std::memcpy(to, text, n);
  return static_cast<int64_t>(n);
}

int64_t put_integer(uint64_t size, bool negative, char* to) {
  char digits[24];
  int n = 0;
  do digits[n++] = static_cast<char>('0' + size % 10);
  while ((size /= 10) != 0);
  int64_t at = 0;
  if (negative) to[at++] = '-';
  while (n > 0) to[at++] = digits[--n];
  return at;
}

// The fewest digits that give back the number, and the power of ten of the first one.
template <class T>
int shortest(T value, int most, char* digits, int* exponent) {
  for (int n = 1;; ++n) {
    char text[48];
    std::snprintf(text, sizeof text, "%.*e", n - 1, static_cast<double>(value));
    char* end = nullptr;
    // In the locale that wrote it, whatever its decimal point is.
    const T back =
        sizeof(T) == 4 ? static_cast<T>(std::strtof(text, &end)) : static_cast<T>(std::strtod(text, &end));
    if (back != value && n < most) continue;
    int count = 0;
    const char* p = text;
    for (; *p != 'e'; ++p)
      if (*p >= '0' && *p <= '9') digits[count++] = *p;
    *exponent = std::atoi(p + 1);
    while (count > 1 && digits[count - 1] == '0') --count;
    return count;
  }
}

template <class T>
int64_t put_real(T value, int most, char* to) {
  if (value != value) return put("nan", to);
  int64_t at = 0;
  if (std::signbit(value)) to[at++] = '-';
  const T size = std::fabs(value);
  if (std::isinf(size)) return at + put("inf", to + at);
  if (size == 0) return at + put("0.0", to + at);
  char digits[24] = {};
  int exponent = 0;
  const int n = shortest(size, most, digits, &exponent);
  if (size < T(1e-4) || size >= T(1e16)) {
    to[at++] = digits[0];
    if (n > 1) to[at++] = '.';
    for (int k = 1; k < n; ++k) to[at++] = digits[k];
    to[at++] = 'e';
    to[at++] = exponent < 0 ? '-' : '+';
    const auto power = static_cast<uint64_t>(exponent < 0 ? -exponent : exponent);
    if (power < 10) to[at++] = '0';
    return at + put_integer(power, false, to + at);
  }
  if (exponent < 0) {
    to[at++] = '0';
    to[at++] = '.';
    for (int k = -1; k > exponent; --k) to[at++] = '0';
    for (int k = 0; k < n; ++k) to[at++] = digits[k];
    return at;
  }
  for (int k = 0; k <= exponent; ++k) to[at++] = k < n ? digits[k] : '0';
  to[at++] = '.';
  if (n <= exponent + 1) to[at++] = '0';
  for (int k = exponent + 1; k < n; ++k) to[at++] = digits[k];
  return at;
}

bool space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The text without space around it, ended by a zero; false when it is too long, or has letters of hexadecimal
// numbers, which strtod would take.
bool prepare(StringView text, char* to) {
  int64_t begin = 0, end = text.size;
  while (begin < end && space(text.data[begin])) ++begin;
  while (end > begin && space(text.data[end - 1])) --end;
  if (begin == end || end - begin >= kLongest) return false;
  for (int64_t k = begin; k < end; ++k) {
    const char c = lower(text.data[k]);
    if (c == '\0' || std::strchr("0123456789+-.einfaty", c) == nullptr) return false;
    to[k - begin] = c;
  }
  to[end - begin] = '\0';
  return true;
}

template <class T>
bool real(const char* text, T* value) {
  char* end = nullptr;
  *value = sizeof(T) == 4 ? static_cast<T>(strtof_l(text, &end, c_locale()))
                          : static_cast<T>(strtod_l(text, &end, c_locale()));
  return end != text && *end == '\0';
}

// Sign and size of an integer; one with a fraction or an exponent is cut.
bool integer(const char* text, bool* negative, uint64_t* size) {
  const char* p = text;
  *negative = *p == '-';
  if (*p == '-' || *p == '+') ++p;
  *size = 0;
  bool digits = false, fits = true;
  for (; *p >= '0' && *p <= '9'; ++p) {
    digits = true;
    fits = fits && !__builtin_mul_overflow(*size, uint64_t{10}, size) &&
           !__builtin_add_overflow(*size, static_cast<uint64_t>(*p - '0'), size);
  }
  if (digits && *p == '\0') return fits;
  double value = 0;
  if (!real(text, &value) || !(std::fabs(value) < 18446744073709551616.0)) return false;
  *size = static_cast<uint64_t>(std::fabs(value));
  return true;
}

template <class T>
bool store(bool negative, uint64_t size, void* data, int64_t k) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (size > kMost + (negative && std::numeric_limits<T>::is_signed ? 1u : 0u)) return false;
  if (negative && size != 0 && !std::numeric_limits<T>::is_signed) return false;
  static_cast<T*>(data)[k] = static_cast<T>(negative ? 0 - size : size);
  return true;
}

}  // namespace

int64_t write_number(DType dtype, const void* data, int64_t k, char* to) {
  if (dtype == DType::kBool) return put(static_cast<const uint8_t*>(data)[k] != 0 ? "True" : "False", to);
  int64_t size = 0;
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T value = static_cast<const T*>(data)[k];
    if constexpr (std::is_floating_point<T>::value) {
      size = put_real(value, sizeof(T) == 4 ? 9 : 17, to);
    } else {
      const bool negative = value < T(0);
      const auto wide = static_cast<uint64_t>(value);
      size = put_integer(negative ? 0 - wide : wide, negative, to);
    }
  });
  return size;
}

bool read_number(StringView text, DType dtype, void* data, int64_t k) {
  char plain[kLongest];
  if (!prepare(text, plain)) return false;
  if (dtype == DType::kBool) {
    double value = 0;
    if (!real(plain, &value)) return false;
    static_cast<uint8_t*>(data)[k] = value != 0;
    return true;
  }
  bool good = false;
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_floating_point<T>::value) {
      good = real(plain, static_cast<T*>(data) + k);
    } else {
      bool negative = false;
      uint64_t size = 0;
      good = integer(plain, &negative, &size) && store<T>(negative, size, data, k);
    }
  });
  return good;
}

}  // namespace opforge::kernels
