// cuda_runtime.h: what an author's #include <cuda_runtime.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator.h"
