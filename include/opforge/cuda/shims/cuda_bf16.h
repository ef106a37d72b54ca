// cuda_bf16.h: what an author's #include <cuda_bf16.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator_half.h"
