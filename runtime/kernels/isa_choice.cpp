// isa_choice.cpp: the table of heavy loops for the instruction set that isa_select.h chose.
#include "isa_select.h"
#include "kernels/isa/peak.h"
#include "kernels/isa/table.h"

namespace opforge {

const IsaTable& isa_table() {
#if defined(OPFORGE_HAVE_V4)
  if (isa_level() >= kV4) return v4::table;
#endif
#if defined(OPFORGE_HAVE_V3)
  if (isa_level() >= kV3) return v3::table;
#endif
#if defined(OPFORGE_HAVE_NEON)
  if (isa_level() >= kNeon) return neon::table;
#endif
  return baseline::table;
}

Peak isa_peak() {
#if defined(OPFORGE_HAVE_V4)
  if (isa_level() >= kV4) return v4::peak;
#endif
#if defined(OPFORGE_HAVE_V3)
  if (isa_level() >= kV3) return v3::peak;
#endif
#if defined(OPFORGE_HAVE_NEON)
  if (isa_level() >= kNeon) return neon::peak;
#endif
  return baseline::peak;
}

bool isa_bf16_pairs() {
#if defined(OPFORGE_HAVE_V4)
  // Asked once: in a virtual machine cpuid leaves the guest.
  static const bool pairs = isa_level() >= kV4 && __builtin_cpu_supports("avx512bf16");
  return pairs;
#else
  return false;
#endif
}

}  // namespace opforge
