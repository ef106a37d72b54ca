// steps.cuh: how the threads of a grid share elements.
#pragma once

__device__ inline int64_t first_of() { return blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; }
__device__ inline int64_t step_of() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
