// cuda.h: what an author's #include <cuda.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator.h"
