// isa_choice.cpp: the table of heavy loops for the instruction set that isa_select.h chose.
#include "isa_select.h"
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

}  // namespace opforge
