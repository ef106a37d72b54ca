// ranges.cpp: finds the tool that is attached. Tools speak a small protocol of function pointers, so that
// nothing of theirs is linked or included. NVTX: NVTX_INJECTION64_PATH names a library with
// InitializeInjectionNvtx2(get_export_table). It asks for the table of callbacks and writes its functions
// where the entries of the module "core" point. ITT: ranges_itt.cpp.
#include "session/ranges.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace opforge::session {
namespace {

using Function = void (*)();
enum : uint32_t { kTableCallbacks = 1, kTableVersion = 3, kModuleCore = 1 };
// Entries of the module "core"; others stay unused, but a tool may fill them.
enum : uint32_t { kPushA = 9, kPop = 11, kCoreEntries = 16 };

Function functions[kCoreEntries];
Function* entries[kCoreEntries];

int module_table(uint32_t module, Function*** table, unsigned* size) {
  if (module != kModuleCore) return 0;
  if (table != nullptr) *table = entries;
  if (size != nullptr) *size = kCoreEntries;
  return 1;
}
void tool_version(uint32_t) {}

struct Callbacks {
  size_t size = sizeof(Callbacks);
  int (*module_table)(uint32_t, Function***, unsigned*) = session::module_table;
} const callbacks;
struct Version {
  size_t size = sizeof(Version);
  uint32_t version = 3, reserved = 0;
  void (*tool)(uint32_t) = tool_version;
} const version;

const void* export_table(uint32_t id) {
  if (id == kTableCallbacks) return &callbacks;
  return id == kTableVersion ? &version : nullptr;
}

bool attach_nvtx(void* library, Ranges* ranges) {
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(::dlsym(library, "InitializeInjectionNvtx2"));
  for (uint32_t k = 0; k < kCoreEntries; ++k) entries[k] = &functions[k];
  if (initialize == nullptr || initialize(export_table) == 0) return false;
  if (functions[kPushA] == nullptr || functions[kPop] == nullptr) return false;
  ranges->handle = [](const char* name) { return static_cast<void*>(const_cast<char*>(name)); };
  ranges->push = [](void* name) {
    reinterpret_cast<int (*)(const char*)>(functions[kPushA])(static_cast<char*>(name));
  };
  ranges->pop = [] { reinterpret_cast<int (*)()>(functions[kPop])(); };
  return true;
}

struct Tool {
  const char* variable;  // names the library
  bool (*attach)(void* library, Ranges* ranges);
};
constexpr Tool kTools[] = {{"NVTX_INJECTION64_PATH", attach_nvtx}, {"INTEL_LIBITTNOTIFY64", attach_itt}};

}  // namespace

const Ranges& attached_ranges() {
  static const Ranges found = [] {
    for (const Tool& tool : kTools) {
      const char* path = std::getenv(tool.variable);
      void* library = path != nullptr && path[0] != '\0' ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
      Ranges ranges;
      if (library != nullptr && tool.attach(library, &ranges)) return ranges;
    }
    return Ranges();
  }();
  return found;
}

}  // namespace opforge::session
