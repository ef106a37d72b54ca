// call.h: one call of an operator through the stable ABI: from the stack to the kernel and back.
#pragma once

#include "schema.h"
#include "stable/shims.h"

namespace opforge::torch_host {

// Consumes the `inputs` values on the stack and leaves the outputs there. Throws Failure.
void call_kernel(const Plan& plan, StableValue* stack, uint64_t inputs, uint64_t outputs);

}  // namespace opforge::torch_host
