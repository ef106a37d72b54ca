// api.cpp: the C API (opforge/runtime.h) over Session. No exception leaves these functions.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "format/crc32c.h"
#include "kernels/isa/table.h"
#include "opforge/runtime.h"
#include "session/caller.h"
#include "session/faults.h"
#include "session/guarded.h"
#include "session/last_error.h"
#include "threads/pool.h"

using opforge::DType;
using opforge::Error;
using opforge::Tensor;
using opforge::session::guarded;
using opforge::session::needed;
using opforge::session::needed_list;
using opforge::session::Options;
using opforge::session::Session;
using opforge::session::ValueText;

struct opforge_results {
  std::vector<opforge::session::Result> results;
  std::vector<std::vector<opforge_tensor>> tensors;  // one list per output
};

namespace {

// Structs grow at the end only, so a caller that was built with an older header knows a shorter one: at least
// the fields of version 0.1, whose last ones these are.
#define OPFORGE_FIRST_SIZE(type, last) (offsetof(type, last) + sizeof(type::last))
constexpr size_t kOptionsSize = OPFORGE_FIRST_SIZE(opforge_session_options, loop_limit);
constexpr size_t kRunSize = OPFORGE_FIRST_SIZE(opforge_run, allocate_user);
constexpr size_t kStatisticsSize = OPFORGE_FIRST_SIZE(opforge_session_statistics, dynamic);
#undef OPFORGE_FIRST_SIZE

// What the caller knows of a struct; the rest is zero.
template <class Struct>
Struct known_part(const Struct& given) {
  Struct all = {};
  std::memcpy(&all, &given, given.size < sizeof all ? given.size : sizeof all);
  return all;
}

opforge_status check_paths(const char* const* paths, int32_t n, const char* name, Error* error) {
  if (opforge_status status = needed_list(paths, n, name, error)) return status;
  for (int32_t k = 0; k < n; ++k) {
    if (paths[k] == nullptr) return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "%s[%d] is NULL", name, k);
  }
  return OPFORGE_STATUS_OK;
}

// What no number of these can mean is said, not guessed at.
opforge_status check_options(const opforge_session_options* given, Error* error) {
  if (given == nullptr) return OPFORGE_STATUS_OK;
  if (given->size < kOptionsSize)
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "opforge_session_options.size is not set");
  const opforge_session_options o = known_part(*given);
  if (o.verify != OPFORGE_VERIFY_LAZY && o.verify != OPFORGE_VERIFY_FULL) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such verify")
        .wanted("OPFORGE_VERIFY_LAZY or OPFORGE_VERIFY_FULL")
        .found("%d", o.verify);
  }
  const int64_t limit = o.memory_limit < 0 ? o.memory_limit : o.loop_limit;
  if (limit < 0) {
    return error
        ->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "%s is negative",
               o.memory_limit < 0 ? "memory_limit" : "loop_limit")
        .wanted("0 for no limit, or more")
        .found("%lld", static_cast<long long>(limit));
  }
  if (opforge_status status = check_paths(o.libraries, o.n_libraries, "libraries", error)) return status;
  return check_paths(o.search, o.n_search, "search", error);
}

Options options_of(const opforge_session_options* given) {
  Options options;
  if (given == nullptr) return options;
  const opforge_session_options o = known_part(*given);
  options.threads = o.threads;
  options.verify_full = o.verify == OPFORGE_VERIFY_FULL;
  options.copy = o.no_mmap != 0;
  options.allow_native = o.refuse_native == 0;
  options.libraries.assign(o.libraries, o.libraries + o.n_libraries);
  options.search.assign(o.search, o.search + o.n_search);
  options.log = o.log;
  options.log_user = o.log_user;
  options.memory_limit = o.memory_limit;
  options.loop_limit = o.loop_limit;
  options.reuse = o.no_reuse == 0;
  return options;
}

opforge_status only_tensors(const Session& session, Error* error) {
  if (session.takes_tensors()) return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_UNSUPPORTED, "the model takes or gives strings, sequences or optionals")
      .wanted("inputs and outputs that are tensors of numbers or bool")
      .advise("use opforge_session_run_values");
}

template <class Open>
opforge_status open_session(const opforge_session_options* options, opforge_session** session, Open&& open) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    *session = nullptr;
    if (opforge_status status = check_options(options, error)) return status;
    opforge::session::report_faults_if_asked();
    auto made = std::make_unique<opforge_session>();
    if (opforge_status status = open(&made->session, options_of(options), error)) return status;
    *session = made.release();
    return OPFORGE_STATUS_OK;
  });
}

}  // namespace

const char* opforge_runtime_version(void) { return OPFORGE_VERSION; }
const char* opforge_runtime_isa(void) { return opforge::isa_table().name; }
int32_t opforge_thread_count(void) { return opforge::pool_threads(); }

void opforge_parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user, int32_t threads) {
  opforge::parallel_for(n, grain, body, user, threads);
}

uint32_t opforge_crc32c(uint32_t crc, const void* data, size_t size) {
  return opforge::crc32c(crc, data, size);
}

opforge_status opforge_session_open(const char* path, const opforge_session_options* options,
                                    opforge_session** session) {
  return open_session(options, session, [&](Session* made, const Options& o, Error* error) {
    if (opforge_status status = needed(path, "path", error)) return status;
    return made->open(path, o, error);
  });
}

opforge_status opforge_session_open_memory(const void* bytes, size_t size,
                                           const opforge_session_options* options,
                                           opforge_session** session) {
  return open_session(options, session, [&](Session* made, const Options& o, Error* error) {
    if (opforge_status status = needed(bytes, "bytes", error)) return status;
    return made->open(bytes, size, o, error);
  });
}

void opforge_session_close(opforge_session* session) { delete session; }

int32_t opforge_session_input_count(const opforge_session* session) {
  return session == nullptr ? 0 : static_cast<int32_t>(session->session.inputs().size());
}
int32_t opforge_session_output_count(const opforge_session* session) {
  return session == nullptr ? 0 : static_cast<int32_t>(session->session.outputs().size());
}

const opforge_value_info* opforge_session_input(const opforge_session* session, int32_t index) {
  if (session == nullptr) return nullptr;
  const auto& inputs = session->session.inputs();
  return index < 0 || index >= static_cast<int32_t>(inputs.size()) ? nullptr
                                                                   : &inputs[static_cast<size_t>(index)].info;
}

const opforge_value_info* opforge_session_output(const opforge_session* session, int32_t index) {
  if (session == nullptr) return nullptr;
  const auto& outputs = session->session.outputs();
  return index < 0 || index >= static_cast<int32_t>(outputs.size())
             ? nullptr
             : &outputs[static_cast<size_t>(index)].info;
}

int32_t opforge_session_metadata_count(const opforge_session* session) {
  return session == nullptr ? 0 : static_cast<int32_t>(session->session.metadata().size() / 2);
}

opforge_status opforge_session_metadata(const opforge_session* session, int32_t index, const char** key,
                                        const char** value) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed(key, "key", error)) return status;
    if (opforge_status status = needed(value, "value", error)) return status;
    const auto& metadata = session->session.metadata();
    if (index < 0 || 2 * static_cast<size_t>(index) >= metadata.size()) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such metadata entry")
          .found("%d", index);
    }
    *key = metadata[2 * static_cast<size_t>(index)].c_str();
    *value = metadata[2 * static_cast<size_t>(index) + 1].c_str();
    return OPFORGE_STATUS_OK;
  });
}

opforge_status opforge_session_run(opforge_session* session, opforge_run* given) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed(given, "run", error)) return status;
    if (given->size < kRunSize)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "opforge_run.size is not set");
    if (opforge_status status = only_tensors(session->session, error)) return status;
    opforge_run run = known_part(*given);
    if (opforge_status status = needed_list(run.inputs, run.n_inputs, "inputs", error)) return status;
    if (opforge_status status = needed_list(run.outputs, run.n_outputs, "outputs", error)) return status;
    opforge::session::Few<Tensor> inputs(session->session.inputs().size());
    if (opforge_status status =
            opforge::session::gather_inputs(session->session, run, inputs.data(), error)) {
      return status;
    }
    opforge::session::CallerOutputs outputs(session->session, &run);
    if (opforge_status status = outputs.prepare(error)) return status;
    const opforge_status status = session->session.run(inputs.data(), &outputs, error);
    if (status != OPFORGE_STATUS_OK) outputs.withdraw();
    return status;
  });
}

opforge_status opforge_session_prepare(opforge_session* session, const opforge_tensor* inputs,
                                       int32_t n_inputs) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed_list(inputs, n_inputs, "inputs", error)) return status;
    if (opforge_status status = only_tensors(session->session, error)) return status;
    const std::vector<ValueText>& known = session->session.inputs();
    if (n_inputs != static_cast<int32_t>(known.size())) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "shapes of all inputs are needed")
          .wanted("%zu", known.size())
          .found("%d", n_inputs);
    }
    std::vector<Tensor> tensors(known.size());
    for (size_t k = 0; k < known.size(); ++k) {
      opforge_tensor shape_only = inputs[k];
      shape_only.data = &shape_only;  // never read
      shape_only.strides = nullptr;
      shape_only.device = {OPFORGE_DEVICE_CPU, 0};
      if (opforge_status status = opforge::session::to_tensor(shape_only, known[k].name, &tensors[k], error))
        return status;
    }
    return session->session.prepare(tensors.data(), error);
  });
}

int32_t opforge_session_plan(const opforge_session* session, opforge_plan_entry* entries, int32_t capacity) {
  if (session == nullptr) return 0;
  const auto plan = const_cast<opforge_session*>(session)->session.last_plan();
  if (!plan) return 0;
  const auto count = static_cast<int32_t>(plan->entries.size());
  for (int32_t k = 0; entries != nullptr && k < count && k < capacity; ++k) {
    const opforge::format::PlanEntry& entry = plan->entries[static_cast<size_t>(k)];
    entries[k] = {static_cast<int32_t>(entry.kind), static_cast<int32_t>(entry.id),
                  static_cast<int64_t>(entry.offset), static_cast<int64_t>(entry.size)};
  }
  return count;
}

int32_t opforge_session_buffers(const opforge_session* session, opforge_buffer* buffers, int32_t capacity) {
  if (session == nullptr) return 0;
  const auto plan = const_cast<opforge_session*>(session)->session.last_plan();
  if (!plan) return 0;
  const auto count = static_cast<int32_t>(plan->buffers.size());
  for (int32_t k = 0; buffers != nullptr && k < count && k < capacity; ++k) {
    const opforge::session::PlacedBuffer& b = plan->buffers[static_cast<size_t>(k)];
    buffers[k] = {b.scratch ? 1 : 0, b.id, b.values, b.first, b.last, 0, b.offset, b.bytes};
  }
  return count;
}

void opforge_free(void* data) { std::free(data); }

opforge_status opforge_session_run_values(opforge_session* session, const opforge_value* inputs,
                                          int32_t n_inputs, opforge_results** results) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(results, "results", error)) return status;
    *results = nullptr;
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed_list(inputs, n_inputs, "inputs", error)) return status;
    const std::vector<ValueText>& known = session->session.inputs();
    if (n_inputs != static_cast<int32_t>(known.size())) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a value for each input is needed")
          .wanted("%zu", known.size())
          .found("%d", n_inputs);
    }
    std::vector<std::vector<Tensor>> tensors(known.size());
    std::vector<opforge::session::Given> given(known.size());
    for (size_t k = 0; k < known.size(); ++k) {
      given[k].empty = inputs[k].count < 0;
      if (given[k].empty) continue;
      if (opforge_status status = needed_list(inputs[k].tensors, inputs[k].count, "tensors", error))
        return status;
      tensors[k].resize(static_cast<size_t>(inputs[k].count));
      for (size_t i = 0; i < tensors[k].size(); ++i) {
        if (opforge_status status =
                opforge::session::to_tensor(inputs[k].tensors[i], known[k].name, &tensors[k][i], error))
          return status;
      }
      given[k].tensors = tensors[k].data();
      given[k].count = tensors[k].size();
    }
    auto made = std::make_unique<opforge_results>();
    if (opforge_status status = session->session.run_values(given.data(), &made->results, error))
      return status;
    for (opforge::session::Result& result : made->results) {
      std::vector<opforge_tensor> list;
      for (Tensor& tensor : result.tensors) {
        opforge_tensor to = {};
        to.data = tensor.data;
        to.device = {OPFORGE_DEVICE_CPU, 0};
        to.ndim = tensor.shape.rank;
        to.dtype = opforge::to_dlpack(tensor.dtype);
        to.shape = tensor.shape.dims;
        list.push_back(to);
      }
      made->tensors.push_back(std::move(list));
    }
    *results = made.release();
    return OPFORGE_STATUS_OK;
  });
}

opforge_status opforge_results_value(const opforge_results* results, int32_t index, opforge_value* value) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(results, "results", error)) return status;
    if (opforge_status status = needed(value, "value", error)) return status;
    if (index < 0 || static_cast<size_t>(index) >= results->results.size())
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such output").found("%d", index);
    const auto k = static_cast<size_t>(index);
    *value = {results->tensors[k].data(), static_cast<int32_t>(results->tensors[k].size()), 0};
    if (results->results[k].empty) value->count = -1;
    return OPFORGE_STATUS_OK;
  });
}

void opforge_results_free(opforge_results* results) { delete results; }

opforge_status opforge_session_get_statistics(const opforge_session* session,
                                              opforge_session_statistics* statistics) {
  return guarded([&](Error* error) -> opforge_status {
    if (opforge_status status = needed(session, "session", error)) return status;
    if (opforge_status status = needed(statistics, "statistics", error)) return status;
    opforge_session_statistics found = {};
    if (statistics->size < kStatisticsSize)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "opforge_session_statistics.size is not set");
    const_cast<opforge_session*>(session)->session.statistics(&found);
    found.size = statistics->size < sizeof found ? statistics->size : sizeof found;
    std::memcpy(statistics, &found, found.size);
    return OPFORGE_STATUS_OK;
  });
}
