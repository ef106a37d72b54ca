// session_report.cpp: what a session says of itself: values, metadata, plans, buffers, times.
#include "binding/session.h"

namespace opforge::binding {

nb::list PySession::values(bool inputs) const {
  nb::list list;
  const int32_t n = inputs ? opforge_session_input_count(session_) : opforge_session_output_count(session_);
  for (int32_t k = 0; k < n; ++k) {
    const opforge_value_info* info =
        inputs ? opforge_session_input(session_, k) : opforge_session_output(session_, k);
    nb::object dims = nb::none();
    if (info->ndim >= 0) {
      nb::list all;
      for (int32_t d = 0; d < info->ndim; ++d) {
        if (info->shape[d] >= 0)
          all.append(info->shape[d]);
        else if (std::strcmp(info->dimensions[d], "?") == 0)
          all.append(nb::none());
        else
          all.append(nb::str(info->dimensions[d]));
      }
      dims = all;
    }
    list.append(nb::make_tuple(nb::str(info->name), info->onnx_dtype, dims, info->kind));
  }
  return list;
}

nb::dict PySession::metadata() const {
  nb::dict result;
  for (int32_t k = 0; k < opforge_session_metadata_count(session_); ++k) {
    const char *key = nullptr, *value = nullptr;
    if (opforge_session_metadata(session_, k, &key, &value) != OPFORGE_STATUS_OK) raise_last_error();
    result[nb::str(key)] = nb::str(value);
  }
  return result;
}

nb::dict PySession::statistics() const {
  opforge_session_statistics s = {};
  s.size = sizeof s;
  if (opforge_session_get_statistics(session_, &s) != OPFORGE_STATUS_OK) raise_last_error();
  nb::dict result;
  result["nodes"] = s.nodes;
  result["plans"] = s.plans;
  result["executed_nodes"] = s.executed_nodes;
  result["arena_bytes"] = s.arena_bytes;
  result["live_bytes"] = s.live_bytes;
  result["dynamic"] = s.dynamic != 0;
  result["views"] = s.views;
  result["in_place"] = s.in_place;
  return result;
}

void PySession::prepare(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<std::vector<int64_t>> copies = shapes;
  std::vector<opforge_tensor> tensors(shapes.size());
  for (size_t k = 0; k < shapes.size() && k < inputs_.size(); ++k) {
    tensors[k] = {};
    tensors[k].ndim = static_cast<int32_t>(copies[k].size());
    tensors[k].shape = copies[k].data();
    tensors[k].dtype = inputs_[k].dlpack;
  }
  opforge_status status;
  {
    nb::gil_scoped_release release;
    status = opforge_session_prepare(session_, tensors.data(), static_cast<int32_t>(tensors.size()));
  }
  if (status != OPFORGE_STATUS_OK) raise_last_error();
}

nb::list PySession::buffers() const {
  std::vector<opforge_buffer> buffers(static_cast<size_t>(opforge_session_buffers(session_, nullptr, 0)));
  const int32_t count =
      opforge_session_buffers(session_, buffers.data(), static_cast<int32_t>(buffers.size()));
  nb::list list;
  for (size_t k = 0; k < buffers.size() && k < static_cast<size_t>(count); ++k) {
    const opforge_buffer& b = buffers[k];
    list.append(nb::make_tuple(b.kind != 0, b.id, b.values, b.first, b.last, b.offset, b.size));
  }
  return list;
}

nb::list PySession::plan() const {
  std::vector<opforge_plan_entry> entries(static_cast<size_t>(opforge_session_plan(session_, nullptr, 0)));
  const int32_t count = opforge_session_plan(session_, entries.data(), static_cast<int32_t>(entries.size()));
  nb::list list;
  for (size_t k = 0; k < entries.size() && k < static_cast<size_t>(count); ++k) {
    const opforge_plan_entry& e = entries[k];
    list.append(nb::make_tuple(e.kind, e.id, e.offset, e.size));
  }
  return list;
}

void PySession::profile(bool on) { opforge_session_profile(session_, on ? 1 : 0); }

void PySession::profile_events(int64_t most, int32_t every) {
  if (opforge_session_profile_events(session_, most, every) != OPFORGE_STATUS_OK) raise_last_error();
}

nb::tuple PySession::events() const {
  std::vector<opforge_event> events;
  int64_t lost = 0;
  {
    nb::gil_scoped_release release;
    events.resize(static_cast<size_t>(opforge_session_events(session_, nullptr, 0, nullptr)));
    const auto capacity = static_cast<int64_t>(events.size());
    events.resize(static_cast<size_t>(opforge_session_events(session_, events.data(), capacity, &lost)));
  }
  return nb::make_tuple(nb::bytes(events.data(), events.size() * sizeof(opforge_event)), lost);
}

nb::list PySession::node_tensors(int32_t node) const {
  std::vector<opforge_node_tensor> tensors(64);
  int32_t count = 0;
  for (int k = 0; k < 2; ++k) {  // once more where there are many
    const auto capacity = static_cast<int32_t>(tensors.size());
    if (opforge_session_node_tensors(session_, node, tensors.data(), capacity, &count) != OPFORGE_STATUS_OK)
      raise_last_error();
    if (count <= capacity) break;
    tensors.resize(static_cast<size_t>(count));
  }
  nb::list list;
  for (int32_t k = 0; k < count && k < static_cast<int32_t>(tensors.size()); ++k) {
    const opforge_node_tensor& tensor = tensors[static_cast<size_t>(k)];
    nb::object dims = nb::none();
    if (tensor.ndim >= 0) {
      nb::list all;
      for (int32_t d = 0; d < tensor.ndim; ++d) all.append(tensor.shape[d]);
      dims = all;
    }
    list.append(nb::make_tuple(tensor.onnx_dtype, tensor.bytes, dims));
  }
  return list;
}

nb::list PySession::node_times() const {
  nb::list list;
  opforge_session_statistics s = {};
  s.size = sizeof s;
  if (opforge_session_get_statistics(session_, &s) != OPFORGE_STATUS_OK) raise_last_error();
  for (int64_t k = 0; k < s.nodes; ++k) {
    opforge_node_time time = {};
    if (opforge_session_node_time(session_, static_cast<int32_t>(k), &time) != OPFORGE_STATUS_OK)
      raise_last_error();
    list.append(nb::make_tuple(nb::str(time.domain), nb::str(time.op), nb::str(time.output), time.runs,
                               time.nanoseconds));
  }
  return list;
}

}  // namespace opforge::binding
