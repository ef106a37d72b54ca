// device_launch_parameters.h: what an author's #include <device_launch_parameters.h> finds in the emulator.
#pragma once
#include "opforge/cuda/emulator.h"
