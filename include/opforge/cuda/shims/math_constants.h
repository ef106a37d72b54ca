// math_constants.h: what an author's #include <math_constants.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator.h"
#define CUDART_INF_F (__builtin_inff())
#define CUDART_NAN_F (__builtin_nanf(""))
#define CUDART_INF (__builtin_inf())
#define CUDART_NAN (__builtin_nan(""))
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
