// chain.h: what the linker and chains.cpp share.
#pragma once

#include "bytecode/isa/program.h"

namespace opforge {
namespace OPFORGE_ISA {

constexpr int kChainVectors = 8, kMaxChain = 24;

// Whether such an instruction can be a link, over f32.
bool chained(uint16_t opcode);
// Its link; operand `at` is the value of the link before. a and b are to be filled in.
ChainOp chain_op(uint16_t opcode, int at);
// The first link: takes its operand a as it is.
ChainOp chain_begin();

// The handler of a step with `links` links.
void run_chain(const Step& step, char* const* slots, const int32_t* steps, int64_t n);

}  // namespace OPFORGE_ISA
}  // namespace opforge
