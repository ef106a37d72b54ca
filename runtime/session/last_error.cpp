// last_error.cpp: joins the five answers into the text that people read.
#include "session/last_error.h"

namespace opforge::session {
namespace {

struct Published {
  Error error;
  char text[3 * Error::kText + Error::kLong] = "";
  opforge_error view = {OPFORGE_STATUS_OK, "", "", "", "", "", ""};
};
thread_local Published published;

}  // namespace

Error& thread_error() { return published.error; }

opforge_status publish_error() {
  const Error& e = published.error;
  int used =
      std::snprintf(published.text, sizeof published.text, "%s%s%s", e.where, e.where[0] ? ": " : "", e.what);
  const struct {
    const char* label;
    const char* text;
  } parts[] = {{"expected", e.expected}, {"got", e.got}, {"to do", e.hint}};
  for (const auto& part : parts) {
    const auto at = static_cast<size_t>(used);
    if (part.text[0] == '\0' || at >= sizeof published.text) continue;
    used +=
        std::snprintf(published.text + at, sizeof published.text - at, "\n  %s: %s", part.label, part.text);
  }
  published.view = {e.status, e.what, e.where, e.expected, e.got, e.hint, published.text};
  return e.status;
}

}  // namespace opforge::session

const opforge_error* opforge_last_error(void) { return &opforge::session::published.view; }
