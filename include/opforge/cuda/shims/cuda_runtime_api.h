// cuda_runtime_api.h: what an author's #include <cuda_runtime_api.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator.h"
