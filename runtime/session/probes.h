// probes.h: static probes (USDT) that perf, bpftrace and gdb find in the library: opforge:node_begin and
// opforge:node_end, each with the operator (a text) and the node's number. A probe is one `nop`, and stands
// in the watched run only; a tool that attaches counts up the semaphore, which is what turns watched runs on.
//
// The note that describes a probe is that of SystemTap's <sys/sdt.h>, version 3: address, base, semaphore,
// then provider, name and where the arguments are. "?" puts it into the group of the function that it is in,
// so that it goes where the linker drops the function.
#pragma once

#include <cstdint>

#if defined(__linux__) && defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
#define OPFORGE_HAVE_PROBES 1
#endif

#if defined(OPFORGE_HAVE_PROBES)
extern "C" {
extern volatile uint16_t opforge_probe_semaphore __attribute__((visibility("hidden")));
}

#define OPFORGE_PROBE(name, text, number)                                      \
  asm volatile(                                                                \
      "990: nop\n"                                                             \
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"                            \
      ".balign 4\n"                                                            \
      ".4byte 992f-991f, 994f-993f, 3\n"                                       \
      "991: .asciz \"stapsdt\"\n"                                              \
      "992: .balign 4\n"                                                       \
      "993: .8byte 990b\n"                                                     \
      ".8byte _.stapsdt.base\n"                                                \
      ".8byte opforge_probe_semaphore\n"                                       \
      ".asciz \"opforge\"\n"                                                   \
      ".asciz \"" #name                                                        \
      "\"\n"                                                                   \
      ".asciz \"8@%0 -4@%1\"\n"                                                \
      "994: .balign 4\n"                                                       \
      ".popsection\n"                                                          \
      ".ifndef _.stapsdt.base\n"                                               \
      ".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat\n" \
      ".weak _.stapsdt.base\n"                                                 \
      ".hidden _.stapsdt.base\n"                                               \
      "_.stapsdt.base: .space 1\n"                                             \
      ".size _.stapsdt.base, 1\n"                                              \
      ".popsection\n"                                                          \
      ".endif\n"                                                               \
      :                                                                        \
      : "r"(text), "r"(number))

namespace opforge::session {
inline bool probes_wanted() { return opforge_probe_semaphore != 0; }
}  // namespace opforge::session
#else
#define OPFORGE_PROBE(name, text, number) (static_cast<void>(text), static_cast<void>(number))
namespace opforge::session {
inline bool probes_wanted() { return false; }
}  // namespace opforge::session
#endif
