// fake_library.h: what the fakes of NVIDIA's libraries share. They compute on the host's memory, refuse
// descriptions that do not fit each other, and write down every call, which fake_calls() gives as text;
// FAKE_FAIL="cusparseSpMM=10" makes a call fail.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <string>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

enum { kFloat = 0, kDouble = 1, kHalf = 2, kBfloat = 14 };

inline std::mutex& fake_guard() {
  static std::mutex guard;
  return guard;
}
inline std::string& fake_text() {
  static std::string text;
  return text;
}

// The number that a call returns before it does anything, 0 where nothing was asked for.
inline int fake_failure(const char* call) {
  const char* wanted = getenv("FAKE_FAIL");
  const size_t length = strlen(call);
  return wanted != nullptr && strncmp(wanted, call, length) == 0 && wanted[length] == '='
             ? atoi(wanted + length + 1)
             : 0;
}

// Its version: FAKE_VERSION="12 5 10".
inline int fake_property(int which, int* value) {
  const char* at = getenv("FAKE_VERSION");
  if (at == nullptr) at = "12 5 10";
  for (int k = 0; k < which; ++k) at = strchr(at, ' ') + 1;
  return *value = atoi(at), 0;
}

inline void fake_note(const std::string& words) {
  const std::lock_guard<std::mutex> lock(fake_guard());
  fake_text() += words + "\n";
}

FAKE_EXPORT const char* fake_calls(int clear) {
  static std::string given;
  const std::lock_guard<std::mutex> lock(fake_guard());
  given = fake_text();
  if (clear != 0) fake_text().clear();
  return given.c_str();
}

inline size_t size_of(int type) { return type == kDouble ? 8 : type == kFloat ? 4 : 2; }

inline float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 0
                    ? static_cast<float>(fraction) * 0x1p-24f
                    : static_cast<float>(fraction | 1024) * 0x1p-25f * static_cast<float>(1ull << exponent);
  if (exponent == 31) value = fraction == 0 ? __builtin_inff() : __builtin_nanf("");
  return bits >> 15 ? -value : value;
}

inline double load(const void* from, int64_t at, int type) {
  if (type == kDouble) return static_cast<const double*>(from)[at];
  if (type == kFloat) return static_cast<const float*>(from)[at];
  const uint16_t bits = static_cast<const uint16_t*>(from)[at];
  if (type == kHalf) return from_half(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// Rounded to nearest, ties to even.
inline void store(void* to, int64_t at, int type, double value) {
  if (type == kDouble) {
    static_cast<double*>(to)[at] = value;
  } else if (type == kFloat) {
    static_cast<float*>(to)[at] = static_cast<float>(value);
  } else {
    _Float16 half;
    const float single = static_cast<float>(value);
    uint32_t wide;
    memcpy(&wide, &single, 4);
    uint16_t bits = static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    if (type == kHalf) {
      half = static_cast<_Float16>(single);
      memcpy(&bits, &half, 2);
    }
    static_cast<uint16_t*>(to)[at] = bits;
  }
}
