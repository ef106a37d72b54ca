/* tuning.h: what `opforge tune` found fastest on this machine's device, as a kernel reads it.
 *
 * Every kernel of a CUDA library has an opforge_tuning of its own, which the host hands over as
 * opforge_context.kernel_data. It is empty until the library's loader, or `opforge tune`, fills it in, which
 * happens before calls and never during one. A zero means: as the kernel itself thinks best. */
#ifndef OPFORGE_CUDA_TUNING_H
#define OPFORGE_CUDA_TUNING_H

#include "opforge/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OPFORGE_TUNING_CLASSES = 8, OPFORGE_TUNING_DEVICES = 16 };

typedef struct opforge_choice {
  int32_t threads;  /* of a block */
  int32_t items;    /* elements, or vectors, that a thread takes one after the other */
  int32_t variant;  /* 1, 2, ...: the operator's variants in the order of TUNING in its cases.py */
  int32_t optional; /* not 0: the kernel's own ways where the variant is not to be had; 0: an error then.
                       Above 1: the version of the library that the variant called when it was measured
                       (major * 1000000 + minor * 1000 + patch); with another one it is not to be had */
} opforge_choice;

/* choices[d][c] is for calls of class c on device d: see opforge::cuda::size_class. GPUs of one process may
 * be of different kinds. Those beyond the last row are launched as the kernel thinks best. */
typedef struct opforge_tuning {
  uint32_t size;  /* of this struct */
  uint32_t count; /* choices that are filled in; 0 = none, nothing need be looked up */
  opforge_choice choices[OPFORGE_TUNING_DEVICES][OPFORGE_TUNING_CLASSES];
  int32_t library; /* written by calls whose choice is not optional: the version of the library they used */
} opforge_tuning;

#ifdef __cplusplus
}  // extern "C"

namespace opforge {
namespace cuda {

// Calls are told apart by the elements of all their tensors together: below 2^12, then in steps of a factor
// of 8.
inline int size_class(int64_t elements) {
  int bits = 0;
  while (bits < 62 && (elements >> (bits + 1)) > 0) ++bits;
  if (bits < 12) return 0;
  const int found = (bits - 12) / 3 + 1;
  return found < OPFORGE_TUNING_CLASSES ? found : OPFORGE_TUNING_CLASSES - 1;
}

inline int64_t elements_of(const opforge_arguments* arguments) {
  int64_t all = 0;
  for (int32_t k = 0; k < arguments->n_tensors; ++k) {
    int64_t elements = 1;
    for (int32_t d = 0; d < arguments->tensors[k].ndim; ++d) elements *= arguments->tensors[k].shape[d];
    all += elements;
  }
  return all;
}

// The choice for a call whose tensors have so many elements together, inputs and outputs.
inline opforge_choice tuned(const opforge_context* context, int64_t elements) {
  const opforge_tuning* tuning = static_cast<const opforge_tuning*>(context->kernel_data);
  const int32_t device = context->device.id;
  if (tuning == nullptr || tuning->count == 0 || device < 0 || device >= OPFORGE_TUNING_DEVICES)
    return opforge_choice{0, 0, 0, 0};
  return tuning->choices[device][size_class(elements)];
}

inline opforge_choice tuned(const opforge_context* context, const opforge_arguments* inputs,
                            const opforge_arguments* outputs) {
  const opforge_tuning* tuning = static_cast<const opforge_tuning*>(context->kernel_data);
  if (tuning == nullptr || tuning->count == 0) return opforge_choice{0, 0, 0, 0};
  return tuned(context, elements_of(inputs) + elements_of(outputs));
}

}  // namespace cuda
}  // namespace opforge
#endif
#endif /* OPFORGE_CUDA_TUNING_H */
