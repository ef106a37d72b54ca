// isa_select.cpp: cpuid once, then a number.
#include "isa_select.h"

#include <cstdlib>
#include <cstring>

namespace opforge {

namespace {

#if defined(__aarch64__)
constexpr const char* kNames[] = {"baseline", "neon"};
#else
constexpr const char* kNames[] = {"baseline", "v3", "v4"};
#endif

int detect() {
  int level = kBaseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(OPFORGE_HAVE_V3)
  if (__builtin_cpu_supports("x86-64-v3")) level = kV3;
#endif
#if defined(OPFORGE_HAVE_V4)
  if (__builtin_cpu_supports("x86-64-v4")) level = kV4;
#endif
#elif defined(OPFORGE_HAVE_NEON)
  level = kNeon;
#endif
  if (const char* wanted = std::getenv("OPFORGE_ISA")) {
    for (int i = 0; i < level; ++i) {
      if (std::strcmp(wanted, kNames[i]) == 0) level = i;
    }
  }
  return level;
}

}  // namespace

int isa_level() {
  static const int level = detect();
  return level;
}
const char* isa_name(int level) { return kNames[level]; }

}  // namespace opforge
