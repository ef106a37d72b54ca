// program.h: a linked program: a list of steps, each a function over a tile and the slots it reads and
// writes.
#pragma once

#include "bytecode/blob.h"
#include "bytecode/isa/table.h"
#include "opforge/detail/elementwise_run.h"

#ifndef OPFORGE_ISA
#error "compile the isa/ sources with -DOPFORGE_ISA=<name of the instruction set>"
#endif

namespace opforge {
namespace OPFORGE_ISA {

namespace bc = opforge::bytecode;
namespace ew = opforge::vm::elementwise;

// Element types after T is known.
enum class Element : uint8_t { kBool, kI32, kI64, kF32, kF64, kU8, kI8 };
constexpr int kElements = 7;
constexpr int kElementWidth[kElements] = {1, 4, 8, 4, 8, 1, 1};
inline int width_of(Element e) { return kElementWidth[static_cast<int>(e)]; }

// slots: where each operand lies (bool as bytes); steps: 1 = an array, 0 = a scalar with kSplat copies.
struct Step;
using Handler = void (*)(const Step& step, char* const* slots, const int32_t* steps, int64_t n);
// A link of a chain (chains.cpp): `run` holds its functions, a and b are slots, or bc::kNone.
struct ChainOp {
  void (*run[4])();
  uint16_t a, b;
};
struct Step {
  Handler run;
  uint16_t out, a, b, c, d;
  uint16_t links;
  const ChainOp* chain;
};

constexpr int64_t kTile = ew::kTile;
constexpr size_t kTempBytes = 48 * 1024;  // stack for temporaries

// Slots are numbered: inputs, attributes, constants, outputs, temporaries.
struct Linked {
  ew::Formula formula;
  int32_t n_constants, n_temps, n_steps, n_slots;
  int32_t temp_width;  // bytes per element of a temporary
  int32_t tile;        // elements per tile, a multiple of 16
  bool rows_ready;
  const Step* steps;
  const uint8_t* input_width;
  const uint8_t* output_width;
  const char* constants;     // kSplat * 8 bytes each
  const double* attributes;  // as given to link, or NULL
  const char* attribute_splats;

  int first_attribute() const { return formula.n_inputs; }
  int first_constant() const { return first_attribute() + formula.n_attributes; }
  int first_output() const { return first_constant() + n_constants; }
  int first_temp() const { return first_output() + formula.n_outputs; }
  // Temporaries that stand in for outputs nobody wants.
  int spares() const { return formula.n_outputs > 1 ? formula.n_outputs : 0; }
};

inline const Linked& linked(const bc::Program* program) { return *reinterpret_cast<const Linked*>(program); }

// handlers.cpp. NULL when the combination does not exist (the verifier has refused it).
Handler number_handler(uint16_t opcode, Element operand);  // arithmetic, unary, fused, comparisons
Handler logic_handler(uint16_t opcode);
Handler select_handler(Element type);
Handler cast_handler(Element from, Element to);
Handler round_handler(uint16_t opcode, Element type);
Handler copy_handler(int width);
// Two cheap f32 operations in one pass, each rounded: outer(inner(a, b), c), or outer(c, inner(a, b)) when
// reversed.
Handler pair_handler(uint16_t inner, uint16_t outer, bool reversed);
// select(a <comparison> b, c, d) on f32
Handler choose_handler(uint16_t comparison);

// link.cpp
size_t program_bytes(const void* blob);
Status link(const void* blob, DType storage, const double* attributes, uint32_t wanted, void* memory,
            size_t bytes, const bc::Program** program, char* reason, size_t reason_size);

// execute.cpp: the BlockFn of a linked program
void run_block(const void* self, const ew::Block& block);
struct Slots {
  char** pointer;
  int32_t* step;
};
// Points the slots of constants, attributes and temporaries; temps holds (n_temps + spares) tiles.
void point_fixed_slots(const Linked& program, Slots slots, char* temps);
inline void run_steps(const Linked& program, Slots slots, int64_t n) {
  for (int i = 0; i < program.n_steps; ++i)
    program.steps[i].run(program.steps[i], slots.pointer, slots.step, n);
}
inline size_t temp_bytes(const Linked& p) {
  return size_t(p.n_temps + p.spares()) * size_t(p.tile) * size_t(p.temp_width);
}

// rows.cpp
bool rows_ready(const bc::Program* program);
void run_rows(const bc::Program* program, const bc::Operand* inputs, const bc::Operand* outputs, int64_t rows,
              int64_t columns);

}  // namespace OPFORGE_ISA
}  // namespace opforge
