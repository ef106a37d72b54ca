// api_profile.cpp: the C API of profiles: times, events, what nodes read and wrote, what the machine can do.
#include "session/guarded.h"
#include "session/measure.h"
#include "session/planner.h"

using opforge::Error;
using opforge::Tensor;
using opforge::session::guarded;
using opforge::session::needed;
using opforge::session::needed_list;
using opforge::session::Recorder;
using opforge::session::Session;

namespace {

opforge_status check_node(const Session& session, int32_t node, Error* error) {
  if (node >= 0 && static_cast<uint32_t>(node) < session.model().program().counts.nodes)
    return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such node").found("%d", node);
}

}  // namespace

void opforge_session_profile(opforge_session* session, int32_t on) {
  if (session == nullptr) return;
  if (on != 0)
    session->session.recorder().start(0, 1);
  else
    session->session.recorder().stop();
}

opforge_status opforge_session_profile_events(opforge_session* session, int64_t most, int32_t every) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    constexpr int64_t kMost = int64_t{1} << 26;
    if (most < 0 || most > kMost) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a profile cannot keep so many events")
          .wanted("0 to %lld", static_cast<long long>(kMost))
          .found("%lld", static_cast<long long>(most));
    }
    if (every < 1) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "one run in so many cannot be watched")
          .wanted("1 (every run) or more")
          .found("%d", every);
    }
    session->session.recorder().start(static_cast<size_t>(most), static_cast<uint32_t>(every));
    return OPFORGE_STATUS_OK;
  });
}

int64_t opforge_session_events(opforge_session* session, opforge_event* events, int64_t capacity,
                               int64_t* lost) {
  if (session == nullptr) return 0;
  Recorder& recorder = session->session.recorder();
  if (events == nullptr || capacity <= 0) return static_cast<int64_t>(recorder.count());
  int64_t count = 0;
  const int64_t missing = recorder.each([&](const auto& event, int64_t begin, int64_t end) {
    if (count < capacity)
      events[count++] = {static_cast<int32_t>(event.kind), event.node, event.thread, event.run, begin, end};
  });
  if (lost != nullptr) *lost = missing;
  return count;
}

opforge_status opforge_session_node_time(const opforge_session* session, int32_t node,
                                         opforge_node_time* time) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed(time, "time", error)) return status;
    Session& s = const_cast<opforge_session*>(session)->session;
    if (opforge_status status = check_node(s, node, error)) return status;
    s.node_time(static_cast<uint32_t>(node), time);
    return OPFORGE_STATUS_OK;
  });
}

opforge_status opforge_session_node_tensors(const opforge_session* session, int32_t node,
                                            opforge_node_tensor* tensors, int32_t capacity, int32_t* count) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed(count, "count", error)) return status;
    if (opforge_status status = needed_list(tensors, capacity, "tensors", error)) return status;
    Session& s = const_cast<opforge_session*>(session)->session;
    if (opforge_status status = check_node(s, node, error)) return status;
    const std::vector<Tensor> found = s.node_tensors(static_cast<uint32_t>(node));
    *count = static_cast<int32_t>(found.size());
    for (int32_t k = 0; k < *count && k < capacity; ++k) {
      const Tensor& tensor = found[static_cast<size_t>(k)];
      opforge_node_tensor& to = tensors[k];
      to = {static_cast<int32_t>(tensor.dtype), -1, 0, {}};
      if (!tensor.present() || tensor.shape.rank < 0) continue;
      to.ndim = tensor.shape.rank;
      to.bytes = opforge::session::bytes_of(tensor);
      for (int32_t d = 0; d < to.ndim; ++d) to.shape[d] = tensor.shape.dims[d];
    }
    return OPFORGE_STATUS_OK;
  });
}

double opforge_measure_flops(int32_t threads) { return opforge::session::measure_flops(threads); }

double opforge_measure_copy(int32_t threads, size_t bytes) {
  return opforge::session::measure_copy(threads, bytes);
}
