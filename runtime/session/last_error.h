// last_error.h: the error of this thread's last failed call, for the C API.
#pragma once

#include "format/error.h"
#include "opforge/runtime.h"

namespace opforge::session {

// Where calls of this thread leave their error.
Error& thread_error();
// Fills the public view of it; returns its status.
opforge_status publish_error();

}  // namespace opforge::session
