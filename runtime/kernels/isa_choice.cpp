// isa_choice.cpp: picks the instruction set once: what the CPU runs best, or what OPFORGE_ISA names.
#include <cstdlib>
#include <cstring>

#include "kernels/isa/table.h"

namespace opforge {
namespace {

const IsaTable& choose() {
#if defined(__x86_64__) && defined(OPFORGE_HAVE_V3) && defined(OPFORGE_HAVE_V4)
  __builtin_cpu_init();
  const bool has_v3 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  const char* wanted = std::getenv("OPFORGE_ISA");
  if (wanted != nullptr && std::strcmp(wanted, "baseline") == 0) return baseline::table;
  if (wanted != nullptr && std::strcmp(wanted, "v3") == 0 && has_v3) return v3::table;
  if (has_v4) return v4::table;
  if (has_v3) return v3::table;
#endif
  return baseline::table;
}

}  // namespace

const IsaTable& isa_table() {
  static const IsaTable& chosen = choose();
  return chosen;
}

}  // namespace opforge
