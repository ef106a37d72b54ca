// table.h: the interpreter's entry points for one instruction set. The sources in this folder are built once
// per set, in namespace opforge::OPFORGE_ISA; runtime/bytecode/interpreter.cpp picks a table at load
// (runtime/isa_select.h).
#pragma once

#include "bytecode/interpreter.h"

namespace opforge::bytecode {

struct InterpreterTable {
  const char* profile;  // "fast" or "strict"
  size_t (*program_bytes)(const void* blob);
  Status (*link)(const void* blob, DType storage, const double* attributes, uint32_t wanted, void* memory,
                 size_t bytes, const Program** program, char* reason, size_t reason_size);
  bool (*rows_ready)(const Program*);
  void (*run_rows)(const Program*, const Operand* inputs, const Operand* outputs, int64_t rows,
                   int64_t columns);
  int64_t (*scratch_bytes)(const Program*, const opforge_tensor* inputs, const opforge_tensor* outputs);
  Status (*run_tensors)(const Program*, const opforge_tensor* inputs, const opforge_tensor* outputs,
                        const double* attributes, const Workers& workers, void* scratch, char* reason,
                        size_t reason_size);
  // opforge_kernel.run of a program; its kernel_data is the Program.
  Status (*run_kernel)(const Program*, opforge_context*, const opforge_arguments* inputs,
                       const opforge_arguments* outputs, const opforge_attribute* attributes);
};

}  // namespace opforge::bytecode
