// table_select.h: the interpreter's table for this machine, or (tests) for a level of isa_select.h.
#pragma once

#include "bytecode/isa/table.h"

namespace opforge::bytecode {
const InterpreterTable& table();
const InterpreterTable& table_of(int level);
}  // namespace opforge::bytecode
