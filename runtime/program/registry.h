// registry.h: finds the kernel of a node among the tables of runtime/kernels/ops.
#pragma once

#include "program/program.h"

namespace opforge {

// False when a build has more kernels than the table holds (kSlots in registry.cpp): some would never be
// found.
bool registry_complete();
// Null when no kernel serves it.
const OpKernel* find_kernel(StringView domain, StringView name, int32_t since_version);
// Whether any version of the operator is served, for the message.
bool knows_operator(StringView domain, StringView name);

}  // namespace opforge
