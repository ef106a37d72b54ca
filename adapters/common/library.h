// library.h: a kernel library opened by its path, for processes without Python.
#pragma once

#include <dlfcn.h>

#include <string>

#include "common/failure.h"
#include "opforge/abi.h"

namespace opforge::adapter {

// Asks a library for its table; raises where it refuses this host.
inline const opforge_library* library_table(opforge_library_fn entry, const std::string& where,
                                            const char* host_name) {
  char reason[1024] = "";
  opforge_host host{};
  host.size = sizeof host;
  host.abi = OPFORGE_ABI;
  host.name = host_name;
  host.version = "";
  host.reason = reason;
  host.reason_size = sizeof reason;
  const opforge_library* const table = entry(&host);
  if (table == nullptr) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "the library refuses this host", "", reason);
  }
  return table;
}

// Opens the library, which stays open, and returns its table; raises where it is none or refuses this host.
inline const opforge_library* open_library(const std::string& path, const char* host_name) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw failure(OPFORGE_STATUS_NOT_FOUND, path, "the kernel library does not load", "",
                  reason == nullptr ? "" : reason,
                  "opforge build PACKAGE --out FOLDER makes a kernel library");
  }
  const auto entry = reinterpret_cast<opforge_library_fn>(::dlsym(library, "opforge_library_v1"));
  if (entry == nullptr) {
    throw failure(OPFORGE_STATUS_CORRUPT, path, "not a kernel library",
                  "the exported symbol opforge_library_v1", "no such symbol");
  }
  return library_table(entry, path, host_name);
}

}  // namespace opforge::adapter
