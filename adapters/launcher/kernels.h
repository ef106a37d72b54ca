// kernels.h: the kernels of a formula for one choice of dtypes, as images that the driver loads.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "opforge/cuda/formula.h"

namespace opforge::launcher {

// Machine code of an architecture ("sm_90") or PTX ("compute_90"), in the memory that the file was read into.
struct Image {
  const char* architecture;
  const void* data;
};

// The functions of a kernel in one context of the driver.
struct Loaded {
  void* context;
  unsigned long long id;
  void* functions[cuda::kFormulaKernels];
  const Loaded* next;
};

// opforge_kernel.data: the tuning, which the host's loader writes to, comes first.
struct Kernel : opforge_tuning {
  Kernel() : opforge_tuning{sizeof(opforge_tuning), 0, {}, 0} {}

  cuda::Formula formula = {};
  std::vector<opforge_dtype> dtypes, operands;  // of the type variables; of inputs, then outputs
  std::vector<const char*> names;               // of the functions, in the order of FormulaKernel
  std::vector<Image> images;                    // machine code, then PTX, each in the order of architectures
  const char* architectures = "";               // of the whole library
  opforge_kernel row = {};

  // What was loaded so far. It is added to and never taken from, so that calls read it without a lock.
  mutable std::atomic<const Loaded*> loaded{nullptr};
  mutable std::mutex loading;
};

// opforge_kernel.run of all of them: which one is meant, context->kernel_data says.
opforge_status run(opforge_context* context, const opforge_arguments* inputs,
                   const opforge_arguments* outputs, const opforge_attribute* attributes);

}  // namespace opforge::launcher
