// elementwise.h: what generated C++ includes. One formula body becomes the kernels of its dtypes.
//
// Generated code looks like this (one struct per operator, gradient operators included):
//
//   #include "opforge/detail/elementwise.h"
//   namespace vm = opforge::vm;
//
//   struct ClipSigmoid {
//     using Inputs = vm::Types<vm::T>;              // vm::T, or bool, int32_t, int64_t, float, double, uint8_t, int8_t
//     using Attributes = vm::Types<vm::T, vm::T>;   // in the signature's order; numeric scalars only
//     using Outputs = vm::Types<vm::T>;
//     static constexpr int kSumTo[] = {-1};         // per output: -1, or the input whose shape it is summed to
//     static constexpr bool kRoundsHalf = false;    // true when the body calls vm::round_half
//     template <class V, class S>                   // V: Vec<float, N> or Vec<double, N>; S: the storage type
//     OPFORGE_INLINE static void body(V i0, V a0, V a1, V& o0) {   // inputs, attributes, outputs
//       const V v3 = vm::sigmoid(i0);
//       o0 = vm::clip(v3, a0, a1);
//     }
//   };
//   // Functions for the kernel table: opforge_kernel.run = opforge::elementwise<ClipSigmoid, float>, and so on
//   // with double, opforge::f16, opforge::bf16 (opforge/half.h).
//
// In a body:
//   vm::NAME(a, ...)        for every NAME of opcodes.def; cast is vm::cast<E>(a) with E = typename V::Element for T,
//                           bool, int32_t, int64_t, float, double, uint8_t, int8_t; round_half is vm::round_half<S>(a)
//   vm::splat<V>(0.5)       a constant of type T (a double, rounded once)
//   vm::splat<vm::Rebind<V, int32_t>>(3)    a constant of another type; bool: vm::splat<vm::Rebind<V, bool>>(1)
//   vm::Rebind<V, E>        the vector of as many elements of type E: a bool input is vm::Rebind<V, bool> i0
//   comparisons give vm::Rebind<V, bool>; vm::select(condition, a, b); vm::logical_and(a, b) ...
//
// The kernels take any strides (set OPFORGE_KERNEL_STRIDED), broadcast as NumPy does, accept zero sizes, skip
// outputs with count 0, use context->parallel_for, and give the bits of the bytecode interpreter.
#pragma once

#include "opforge/detail/elementwise_run.h"
#include "opforge/vector_math.h"
