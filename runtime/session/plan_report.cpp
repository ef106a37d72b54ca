// plan_report.cpp: what lies where in the arena and for how long, for `inspect --memory`.
#include "session/planner.h"

namespace opforge::session {

void Planner::describe(const std::vector<Buffer>& buffers, const std::vector<int32_t>& owner) {
  const auto node_of = [&](int32_t s) {
    return static_cast<int32_t>(static_cast<size_t>(s) < pending_.size() ? pending_[s].node
                                                                         : program_.counts.nodes);
  };
  const auto describe_one = [&](const Buffer& buffer, int64_t offset) {
    PlacedBuffer out;
    out.first = out.id = node_of(buffer.first);
    out.last = node_of(buffer.last);
    out.offset = offset + buffer.offset;
    out.bytes = buffer.bytes;
    out.scratch = true;
    plan_.buffers.push_back(out);
  };
  std::vector<int32_t> place = owner;  // in plan_.buffers
  for (size_t k = 0; k + slices_.size() < buffers.size(); ++k) describe_one(buffers[k], 0);
  for (const Slices& s : slices_) {  // the first lane in detail, the others as one piece
    for (size_t b = 0; b < s.buffers.size(); ++b) {
      if (b < s.groups.size()) place[s.groups[b]] = static_cast<int32_t>(plan_.buffers.size());
      describe_one(s.buffers[b], s.offset);
    }
    if (s.lanes > 1) describe_one({(s.lanes - 1) * s.lane_bytes, s.first, s.last, s.lane_bytes}, s.offset);
  }
  for (uint32_t v = 0; v < program_.n_values; ++v) {
    const int32_t g = group_of(static_cast<int32_t>(v));
    if (g < 0 || place[g] < 0) continue;
    PlacedBuffer& out = plan_.buffers[place[g]];
    if (out.scratch) out.id = static_cast<int32_t>(v);
    out.scratch = false;
    ++out.values;
  }
}

}  // namespace opforge::session
