// error.h: the five answers of an error (what, where, expected, got, hint) in fixed buffers, no heap.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "program/kernel_api.h"

namespace opforge {

struct Error {
  static constexpr int kText = 512, kLong = 2048;
  Status status = OPFORGE_STATUS_OK;
  char what[kText] = "";
  char where[kText] = "";
  char expected[kText] = "";
  char got[kLong] = "";
  char hint[kText] = "";

  // Starts an error; the others add to it, so that calls chain: error.fail(...).at(...).wanted(...)
  __attribute__((format(printf, 3, 4))) Error& fail(Status code, const char* format, ...) {
    status = code;
    where[0] = expected[0] = got[0] = hint[0] = '\0';
    va_list list;
    va_start(list, format);
    std::vsnprintf(what, sizeof what, format, list);
    va_end(list);
    return *this;
  }
  __attribute__((format(printf, 2, 3))) Error& at(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::vsnprintf(where, sizeof where, format, list);
    va_end(list);
    return *this;
  }
  __attribute__((format(printf, 2, 3))) Error& wanted(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::vsnprintf(expected, sizeof expected, format, list);
    va_end(list);
    return *this;
  }
  __attribute__((format(printf, 2, 3))) Error& found(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::vsnprintf(got, sizeof got, format, list);
    va_end(list);
    return *this;
  }
  __attribute__((format(printf, 2, 3))) Error& advise(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::vsnprintf(hint, sizeof hint, format, list);
    va_end(list);
    return *this;
  }
  operator Status() const { return status; }
};

}  // namespace opforge
