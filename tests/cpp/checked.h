// checked.h: what tests of the adapters' common parts count failures with.
#pragma once

#include <stdio.h>

#include <string>

#include "common/failure.h"

inline int failures = 0;

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      ++failures;                                                 \
      printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                             \
  } while (false)

// The words of the failure that a call raises.
template <class F>
std::string raised_words(F f) {
  try {
    f();
  } catch (const opforge::adapter::Failure& problem) {
    return problem.text;
  }
  return "nothing was raised";
}
