// cuda_fp16.h: what an author's #include <cuda_fp16.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator_half.h"
