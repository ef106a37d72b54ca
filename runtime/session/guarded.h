// guarded.h: what the C API's files share: the handle, and how exceptions become statuses.
#pragma once

#include <new>

#include "session/last_error.h"
#include "session/session.h"

struct opforge_session {
  opforge::session::Session session;
};

namespace opforge::session {

// A pointer of the API that must be there, by the name that the header gives it.
inline opforge_status needed(const void* pointer, const char* name, Error* error) {
  if (pointer != nullptr) return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "%s is NULL", name);
}

// A list of the API: NULL is right for one without entries only.
inline opforge_status needed_list(const void* list, int32_t count, const char* name, Error* error) {
  if (count >= 0 && (count == 0 || list != nullptr)) return OPFORGE_STATUS_OK;
  if (count < 0) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "the number of %s is negative", name)
        .found("%d", count);
  }
  return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "%s is NULL", name).wanted("a list of %d", count);
}

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
