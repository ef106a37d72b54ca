// dispatch.cuh: the boundary between the C ABI and an author's launcher; used by generated units only.
#pragma once

#include "opforge/cuda/kernel.cuh"
#include "opforge/detail/dispatch.h"

namespace opforge {
namespace cuda {
namespace detail {

// Runs `call`, which may throw, where all tensors lie on the call's device.
template <class Call>
Status guarded(opforge_context* raw, const opforge_arguments* inputs, const opforge_arguments* outputs, Call call) {
  Status status = same_device(raw, inputs, "input");
  if (status == kOk) status = same_device(raw, outputs, "output");
  return status != kOk ? status : opforge::detail::guarded<Context>(raw, inputs, outputs, call);
}

}  // namespace detail
}  // namespace cuda
}  // namespace opforge
