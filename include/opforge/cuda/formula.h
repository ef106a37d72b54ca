// formula.h: what a call of a formula operator launches: which of its kernels, on how many blocks and
// threads, in one pass or two. Plain C++, on the host. How a kernel is launched is another's: the kernels
// that nvcc compiled are launched by name (elementwise.cuh), those that NVRTC compiled through the driver
// (adapters/launcher).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "opforge/abi.h"
#include "opforge/cuda/call.h"
#include "opforge/cuda/grid.h"
#include "opforge/cuda/space.h"
#include "opforge/cuda/tuning.h"

namespace opforge {
namespace cuda {

// The kernels of a formula, in the order in which the build lists them (src/opforge/codegen/cuda.py); those
// of sums are there where an output is summed.
enum FormulaKernel : int {
  kWide,       // dense<F, S, 16 bytes of the widest type>
  kDense,      // dense<F, S, 1>
  kStrided32,  // strided<F, S, uint32_t>
  kStrided64,
  kPartial32,  // partial<F, S, uint32_t>
  kPartial64,
  kCombine32,  // combine<S, V, uint32_t>
  kCombine64,
  kFormulaKernels,
};

struct Formula {
  FormulaShape shape;
  int widest;        // bytes of the widest operand's element
  size_t sum_bytes;  // of a partial sum
};

struct Grid {
  unsigned blocks, threads;
};

// Blocks and threads for so many elements, or vectors of them. `most()`: threads of a block that the kernel
// can have.
template <class Most>
Grid grid_of(int64_t count, const opforge_choice& choice, Most most) {
  const int64_t items = choice.items > 0 ? choice.items : 1;
  unsigned threads =
      choice.threads > 0 ? static_cast<unsigned>(choice.threads) : static_cast<unsigned>(kThreads);
  // Found with one kernel of the formula, while another may need more registers. What no kernel takes is
  // CUDA's to refuse.
  if (choice.threads > kThreads && choice.threads <= 1024 && choice.threads > most())
    threads = static_cast<unsigned>(kThreads);
  const int64_t of_block = items * threads;
  return {blocks_of((count + of_block - 1) / of_block), threads};
}

// Launches what computes the outputs that are not summed.
template <class Kernels>
void launch_values(const Formula& formula, Kernels* kernels, const Space& space, uint32_t wanted,
                   const opforge_choice& choice) {
  const FormulaKernel strided = space.small ? kStrided32 : kStrided64;
  const FormulaKernel which = !space.dense ? strided : space.alignment % 16 == 0 ? kWide : kDense;
  const int64_t width = which == kWide ? 16 / formula.widest : 1;
  const Grid grid =
      grid_of((space.total + width - 1) / width, choice, [&] { return kernels->most_threads(which); });
  kernels->values(which, grid, space, wanted);
}

// Launches what computes an output that is summed, in two passes where its sums are cut; false where there is
// no memory for the parts.
template <class Kernels>
bool launch_sum(const Formula& formula, Kernels* kernels, Space space, int output) {
  const Parts parts = space.sort_for_sum(output, formula.shape.n_inputs, formula.shape.n_outputs);
  if (parts.elements == 0) return true;
  const int64_t cells = parts.elements * parts.count;
  const bool cut = parts.count > 1, small = space.small && cells <= INT32_MAX;
  void* sums = cut ? kernels->scratch(static_cast<size_t>(cells) * formula.sum_bytes) : nullptr;
  if (cut && sums == nullptr) return false;
  const auto grid = [](int64_t of, int64_t groups) {
    return Grid{blocks_of((of + groups - 1) / groups), kThreads};
  };
  kernels->partial(small ? kPartial32 : kPartial64, grid(cells, parts.groups()), space, output, parts, sums);
  if (cut)
    kernels->combine(small ? kCombine32 : kCombine64, grid(parts.elements, kThreads / parts.together), space,
                     formula.shape.n_inputs + output, parts, sums);
  return true;
}

// opforge_kernel.run of a formula operator. `Kernels` is a Call of the context with the kernels of one choice
// of dtypes: it is made with the number of elements that are computed, and what else is given.
template <class Kernels, class... More>
opforge_status run_formula(const Formula& formula, opforge_context* context, const opforge_arguments* inputs,
                           const opforge_arguments* outputs, const opforge_attribute* attributes,
                           const More&... more) {
  Space space;
  char reason[200];
  opforge_status status = bind(formula.shape, inputs, outputs, attributes, &space, reason, sizeof reason);
  if (status != OPFORGE_STATUS_OK) return fail(context, status, reason);
  status = same_device(context, inputs, "input");
  if (status == OPFORGE_STATUS_OK) status = same_device(context, outputs, "output");
  if (status != OPFORGE_STATUS_OK) return status;
  Kernels kernels(context, space.work(), more...);
  if (!kernels) return kernels.status();
  const uint32_t summed = space.summed_outputs(), values = space.wanted & ~summed;
  if (space.total > 0 && values != 0) {
    Space flat = space;
    flat.collapse(values, formula.shape.n_inputs, formula.shape.n_outputs);
    launch_values(formula, &kernels, flat, values, tuned(context, inputs, outputs));
  }
  for (int output = 0; output < formula.shape.n_outputs; ++output) {
    if ((summed >> output & 1u) != 0 && !launch_sum(formula, &kernels, space, output)) break;
  }
  return kernels.finish();
}

}  // namespace cuda
}  // namespace opforge
