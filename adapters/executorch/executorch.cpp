// executorch.cpp: registers the operators of any kernel library with ExecuTorch. Compiled against the
// ExecuTorch of the process that loads it: on the user's machine for Python, with the application elsewhere.
#include "opforge/executorch.h"

#include <cstdio>
#include <utility>

#include "common/library.h"
#include "executorch/registry.h"

using namespace opforge::executorch_host;  // NOLINT: the C entry points below

extern "C" {

OPFORGE_EXPORT int32_t opforge_executorch_define(const opforge_operator* table, const char* name, char* error,
                                                 size_t size) {
  return guarded(error, size, [&] { define(table, name); }, OPFORGE_STATUS_INTERNAL);
}

OPFORGE_EXPORT int32_t opforge_executorch_register(const opforge_library* library, char* error, size_t size) {
  return guarded(error, size, [&] { define_library(*library); }, OPFORGE_STATUS_INTERNAL);
}

OPFORGE_EXPORT int32_t opforge_executorch_load(const char* path, char* error, size_t size) {
  return guarded(
      error, size, [&] { define_library(*open_library(path, "executorch")); }, OPFORGE_STATUS_INTERNAL);
}

OPFORGE_EXPORT void opforge_executorch_threads(int32_t threads) { pool_threads() = threads; }

OPFORGE_EXPORT int32_t opforge_executorch_last_failure(char* text, size_t size) {
  LastFailure& last = last_failure();
  std::snprintf(text, size, "%s", last.text.c_str());
  return std::exchange(last.status, OPFORGE_STATUS_OK);
}

}  // extern "C"
