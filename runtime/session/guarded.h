// guarded.h: what the C API's files share: the handle, and how exceptions become statuses.
#pragma once

#include <new>

#include "session/last_error.h"
#include "session/session.h"

struct opforge_session {
  opforge::session::Session session;
};

namespace opforge::session {

// Runs body; bad_alloc and the like become statuses.
template <class Body>
opforge_status guarded(Body&& body) {
  Error& error = thread_error();
  opforge_status status = OPFORGE_STATUS_INTERNAL;
  try {
    status = body(&error);
    if (status != OPFORGE_STATUS_OK && error.status != status) error.fail(status, "the runtime failed");
  } catch (const std::bad_alloc&) {
    status = error.fail(OPFORGE_STATUS_OUT_OF_MEMORY, "out of memory");
  } catch (...) {
    status = error.fail(OPFORGE_STATUS_INTERNAL, "an unexpected exception in the runtime");
  }
  return status == OPFORGE_STATUS_OK ? status : publish_error();
}

}  // namespace opforge::session
