// architectures.h: whether a library's code serves a device. A library lists what it embeds, "sm_80 sm_90
// compute_90": machine code of an architecture, and PTX that the driver translates for any later one. Plain
// C++.
#pragma once

#include <stdio.h>
#include <string.h>

namespace opforge {
namespace cuda {

// GPUs that share a chip with processors (Jetson, Drive). Machine code goes neither from them to others nor
// from others to them; that of 10.1 serves 11.0, as which the same chip is known from CUDA 13 on.
constexpr int kIntegrated[] = {53, 62, 72, 87, 101};

inline bool is_integrated(int capability) {
  for (int one : kIntegrated) {
    if (one == capability) return true;
  }
  return false;
}

// A capability is major * 10 + minor. Machine code serves later minors of its major, PTX every later
// capability. What is built for one architecture alone ("sm_90a") serves that one, what is built for a family
// ("sm_100f") its major.
inline bool serves(const char* architectures, int capability) {
  if (*architectures == 0) return true;  // nothing is known of it
  for (const char* at = architectures; at != nullptr; at = strchr(at, ' ')) {
    while (*at == ' ') ++at;
    int built = 0;
    char variant = 0;
    const bool ptx = strncmp(at, "compute_", 8) == 0;
    if (sscanf(at, ptx ? "compute_%d%c" : "sm_%d%c", &built, &variant) < 1) continue;
    const bool family = variant == 'f' || (!ptx && variant != 'a');
    const bool apart = is_integrated(built) || is_integrated(capability);
    const bool same = capability == built || (built == 101 && capability == 110);
    if (variant == 'a' || (family && apart)
            ? same
            : capability >= built && (!family || capability / 10 == built / 10))
      return true;
  }
  return false;
}

// Why it does not, as a sentence of at most `room` bytes.
inline void say_unserved(const char* architectures, int capability, char* text, size_t room) {
  snprintf(text, room,
           "the library has no code for this GPU (sm_%d): it was built for %s; build it again with "
           "`opforge build --device cuda --arch sm_%d`",
           capability, architectures, capability);
}

}  // namespace cuda
}  // namespace opforge
