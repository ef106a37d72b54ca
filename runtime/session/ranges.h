// ranges.h: named ranges around nodes for tools that are attached to the process: NVIDIA's (NVTX) and Intel's
// (ITT). Such a tool names its library in the environment of the program that it starts.
#pragma once

namespace opforge::session {

// The tool's two functions; both null when none is attached. push may be called on any thread and nests; the
// handle is what handle() gave for a name.
struct Ranges {
  void* (*handle)(const char* name) = nullptr;  // lives as long as the process
  void (*push)(void* handle) = nullptr;
  void (*pop)() = nullptr;
};

// Intel's collectors; false where the library is none.
bool attach_itt(void* library, Ranges* ranges);

// Looked up once per process, when the first session is opened.
const Ranges& attached_ranges();

}  // namespace opforge::session
