// failure.h: errors of the adapters: one exception with a status, and the last one of each thread, from which
// Python makes the class that opforge promises (a framework turns every failure into one of its own).
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "opforge/abi.h"

namespace opforge::adapter {

struct Failure : std::exception {
  opforge_status status;
  std::string text;

  Failure(opforge_status code, std::string message) : status(code), text(std::move(message)) {}
  const char* what() const noexcept override { return text.c_str(); }
};

// The same form as opforge.errors.OpforgeError.
inline Failure failure(opforge_status status, const std::string& where, const std::string& what,
                       const std::string& expected = "", const std::string& got = "",
                       const std::string& hint = "") {
  std::string text = where.empty() ? what : where + ": " + what;
  if (!expected.empty()) text += "\n  expected: " + expected;
  if (!got.empty()) text += "\n  got: " + got;
  if (!hint.empty()) text += "\n  to do: " + hint;
  return Failure(status, std::move(text));
}

struct LastFailure {
  opforge_status status = OPFORGE_STATUS_OK;
  std::string text;
};

inline LastFailure& last_failure() {
  static thread_local LastFailure last;
  return last;
}

inline void remember(const Failure& error) {
  last_failure().status = error.status;
  last_failure().text = error.text;
}

// Runs the body of a C entry point: no exception leaves it; its status and text do. `foreign` is the status
// of exceptions that are not ours.
template <class Body>
int32_t guarded(char* error, size_t size, Body body, opforge_status foreign = OPFORGE_STATUS_UNSUPPORTED) {
  try {
    body();
    return OPFORGE_STATUS_OK;
  } catch (const Failure& problem) {
    std::snprintf(error, size, "%s", problem.what());
    return problem.status;
  } catch (const std::exception& problem) {
    std::snprintf(error, size, "%s", problem.what());
    return foreign;
  }
}

}  // namespace opforge::adapter
