// vector_math.h: elementary functions on vectors of 4, 8 or 16 floats or doubles, the same bits at every
// width.
//
// Header-only C++17 on GCC/Clang vector extensions. Compile with -ffp-contract=off, never with -ffast-math.
// Two profiles, chosen at compile time: `fast` (fused multiply-add; where the target has it) and `strict`
// (separate multiply and add, which every IEEE machine reproduces; OPFORGE_PROFILE_STRICT asks for it). Each
// lane performs the same IEEE operations in the same order at every width, so bits are equal inside a
// profile. Nothing calls libm, but for fmod of f64, which is exact.
//
// Functions are named as in runtime/bytecode/opcodes.def and take and return opforge::vm::Vec<E, N>. Errors
// in ULP, for both profiles, are the rows of opforge/vector_math_ulp.def; the tests hold them. NaN
// gives NaN (any NaN equals any NaN), infinities, -0 and denormals behave as the functions of C do.
#pragma once

#include "opforge/detail/vector_core.h"

#include "opforge/detail/vector_arithmetic.h"
#include "opforge/detail/vector_cast.h"
#include "opforge/detail/vector_half.h"

#include "opforge/detail/vector64_erf.h"
#include "opforge/detail/vector64_exp.h"
#include "opforge/detail/vector64_inverse.h"
#include "opforge/detail/vector64_log.h"
#include "opforge/detail/vector64_pow.h"
#include "opforge/detail/vector64_trig.h"
#include "opforge/detail/vector_erf.h"
#include "opforge/detail/vector_exp.h"
#include "opforge/detail/vector_inverse.h"
#include "opforge/detail/vector_log.h"
#include "opforge/detail/vector_pow.h"
#include "opforge/detail/vector_trig.h"

#include "opforge/detail/vector_functions.h"
#include "opforge/detail/vector_pair.h"
