// api.cpp: the C API (opforge/runtime.h) over Session. No exception leaves these functions.
#include <cstdlib>
#include <new>

#include "format/crc32c.h"
#include "kernels/isa/table.h"
#include "opforge/runtime.h"
#include "session/last_error.h"
#include "session/names.h"
#include "session/session.h"
#include "threads/pool.h"

using opforge::DType;
using opforge::Error;
using opforge::Tensor;
using opforge::session::Options;
using opforge::session::publish_error;
using opforge::session::Session;
using opforge::session::thread_error;
using opforge::session::ValueText;

struct opforge_session {
  Session session;
};

namespace {

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

Options options_of(const opforge_session_options* given) {
  Options options;
  if (given == nullptr) return options;
  opforge_session_options o = {};
  std::memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
  options.threads = o.threads;
  options.verify_full = o.verify == OPFORGE_VERIFY_FULL;
  options.copy = o.no_mmap != 0;
  options.allow_native = o.refuse_native == 0;
  options.libraries.assign(o.libraries, o.libraries + (o.libraries != nullptr ? o.n_libraries : 0));
  options.search.assign(o.search, o.search + (o.search != nullptr ? o.n_search : 0));
  options.log = o.log;
  options.log_user = o.log_user;
  options.memory_limit = o.memory_limit;
  options.loop_limit = o.loop_limit;
  return options;
}

template <class Open>
opforge_status open_session(const opforge_session_options* options, opforge_session** session, Open&& open) {
  return guarded([&](Error* error) -> opforge_status {
    *session = nullptr;
    auto made = std::make_unique<opforge_session>();
    if (opforge_status status = open(&made->session, options_of(options), error)) return status;
    *session = made.release();
    return OPFORGE_STATUS_OK;
  });
}

std::vector<std::string> names_of(const std::vector<ValueText>& values) {
  std::vector<std::string> names;
  for (const ValueText& value : values) names.push_back(value.name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

int32_t index_of(const std::vector<ValueText>& values, const char* name) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].name == name) return static_cast<int32_t>(k);
  }
  return -1;
}

opforge_status unknown_name(const char* what, const char* name, const std::vector<ValueText>& values,
                            Error* error) {
  const std::vector<std::string> names = names_of(values);
  const std::string nearest = opforge::session::nearest_name(name, names);
  error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such %s", what)
      .wanted("%s", joined(names).c_str())
      .found("'%s'", name);
  if (!nearest.empty()) error->advise("did you mean '%s'?", nearest.c_str());
  return error->status;
}

opforge_status to_tensor(const opforge_tensor& from, const std::string& name, Tensor* to, Error* error) {
  *to = Tensor();
  if (from.device.type != OPFORGE_DEVICE_CPU && from.device.type != OPFORGE_DEVICE_CUDA_HOST) {
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "a tensor is not in the CPU's memory")
        .at("'%s'", name.c_str());
  }
  if (from.ndim < 0 || from.ndim > opforge::kMaxRank) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor has too many dimensions")
        .at("'%s'", name.c_str())
        .wanted("at most %d", opforge::kMaxRank)
        .found("%d", from.ndim);
  }
  to->dtype = opforge::from_dlpack(from.dtype);
  to->shape.rank = from.ndim;
  int64_t dense = 1;
  bool is_dense = true, empty = false;
  for (int32_t k = from.ndim - 1; k >= 0; --k) {
    to->shape.dims[k] = from.shape[k];
    if (from.shape[k] < 0)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a dimension is negative").at("'%s'", name.c_str());
    is_dense = is_dense && (from.strides == nullptr || from.shape[k] == 1 || from.strides[k] == dense);
    empty = empty || from.shape[k] == 0;
    if (__builtin_mul_overflow(dense, from.shape[k], &dense)) dense = 0;
  }
  to->data = from.data == nullptr ? nullptr : static_cast<char*>(from.data) + from.byte_offset;
  if (!is_dense && !empty) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor is not dense")
        .at("'%s'", name.c_str())
        .advise("copy it to row-major order first");
  }
  if (to->data == nullptr && !empty) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor has no data").at("'%s'", name.c_str());
  }
  return OPFORGE_STATUS_OK;
}

thread_local std::vector<std::unique_ptr<int64_t[]>> output_shapes;

// Serves the caller's buffers, the caller's allocator, or malloc; outputs that are not wanted get memory of
// their own.
class CallerOutputs final : public opforge::session::Outputs {
 public:
  CallerOutputs(const Session& session, opforge_run* run) : session_(session), run_(run) {}
  ~CallerOutputs() {
    for (void* data : spare_) std::free(data);
  }

  opforge_status prepare(Error* error) {
    slot_.assign(session_.outputs().size(), -1);
    output_shapes.clear();
    if (run_->output_names == nullptr && run_->n_outputs > static_cast<int32_t>(slot_.size())) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "too many outputs are asked for")
          .wanted("at most %zu", slot_.size())
          .found("%d", run_->n_outputs);
    }
    for (int32_t k = 0; k < run_->n_outputs; ++k) {
      const int32_t at =
          run_->output_names == nullptr ? k : index_of(session_.outputs(), run_->output_names[k]);
      if (at < 0) return unknown_name("output", run_->output_names[k], session_.outputs(), error);
      if (slot_[static_cast<size_t>(at)] >= 0) {
        return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an output is asked for twice")
            .found("'%s'", run_->output_names[k]);
      }
      slot_[static_cast<size_t>(at)] = k;
    }
    return OPFORGE_STATUS_OK;
  }

  void* give(int32_t output, const Tensor& tensor, size_t bytes, Error* error) override {
    const int32_t k = slot_[static_cast<size_t>(output)];
    if (k < 0) {
      spare_.push_back(aligned(bytes, error));
      return spare_.back();
    }
    opforge_tensor& to = run_->outputs[k];
    if (to.data != nullptr) return check(output, tensor, to, error);
    output_shapes.emplace_back(new int64_t[opforge::kMaxRank]);
    int64_t* shape = output_shapes.back().get();
    std::copy(tensor.shape.dims, tensor.shape.dims + tensor.shape.rank, shape);
    void* data = run_->allocate == nullptr
                     ? aligned(bytes, error)
                     : run_->allocate(run_->allocate_user, k, static_cast<int32_t>(tensor.dtype), shape,
                                      tensor.shape.rank, bytes);
    if (data == nullptr && bytes != 0 && error->status == OPFORGE_STATUS_OK) {
      error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output")
          .found("%zu bytes asked for", bytes);
    }
    to = {};
    to.data = data;
    to.device = {OPFORGE_DEVICE_CPU, 0};
    to.ndim = tensor.shape.rank;
    to.dtype = opforge::to_dlpack(tensor.dtype);
    to.shape = shape;
    if (run_->allocate == nullptr) owned_.push_back(k);
    return data;
  }

  // A failed run leaves nothing to release.
  void withdraw() {
    for (int32_t k : owned_) {
      std::free(run_->outputs[k].data);
      run_->outputs[k].data = nullptr;
    }
  }

 private:
  static void* aligned(size_t bytes, Error* error) {
    void* data = nullptr;
    if (::posix_memalign(&data, 64, bytes == 0 ? 64 : bytes) == 0) return data;
    error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output").found("%zu bytes asked for", bytes);
    return nullptr;
  }

  void* check(int32_t output, const Tensor& tensor, const opforge_tensor& to, Error* error) const {
    Tensor given;
    const std::string& name = session_.outputs()[static_cast<size_t>(output)].name;
    if (to_tensor(to, name, &given, error)) return nullptr;
    const bool same = given.dtype == tensor.dtype && given.shape.rank == tensor.shape.rank &&
                      std::equal(given.shape.dims, given.shape.dims + given.shape.rank, tensor.shape.dims);
    if (same) return given.data;
    std::string wanted = opforge::dtype_name(tensor.dtype), found = opforge::dtype_name(given.dtype);
    for (int k = 0; k < tensor.shape.rank; ++k)
      wanted += (k ? "," : "[") + std::to_string(tensor.shape.dims[k]);
    for (int k = 0; k < given.shape.rank; ++k) found += (k ? "," : "[") + std::to_string(given.shape.dims[k]);
    error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "the buffer of an output does not fit")
        .at("output '%s'", name.c_str())
        .wanted("%s]", wanted.c_str())
        .found("%s]", found.c_str());
    return nullptr;
  }

  const Session& session_;
  opforge_run* run_;
  std::vector<int32_t> slot_;  // output of the model -> output of the run, -1 = not wanted
  std::vector<int32_t> owned_;
  std::vector<void*> spare_;
};

opforge_status gather_inputs(const Session& session, const opforge_run& run, std::vector<Tensor>* tensors,
                             Error* error) {
  const std::vector<ValueText>& inputs = session.inputs();
  tensors->assign(inputs.size(), Tensor());
  std::vector<bool> given(inputs.size(), false);
  for (int32_t k = 0; k < run.n_inputs; ++k) {
    const int32_t at = run.input_names != nullptr                ? index_of(inputs, run.input_names[k])
                       : k < static_cast<int32_t>(inputs.size()) ? k
                                                                 : -1;
    if (at < 0)
      return unknown_name("input", run.input_names != nullptr ? run.input_names[k] : "(one too many)", inputs,
                          error);
    const auto index = static_cast<size_t>(at);
    if (given[index])
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an input is given twice")
          .found("'%s'", inputs[index].name.c_str());
    given[index] = true;
    if (opforge_status status = to_tensor(run.inputs[k], inputs[index].name, &(*tensors)[index], error))
      return status;
  }
  std::vector<std::string> missing;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!given[k]) missing.push_back(inputs[k].name);
  }
  if (missing.empty()) return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "inputs are missing")
      .wanted("%s", joined(names_of(inputs)).c_str())
      .found("nothing for %s", joined(missing).c_str());
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
    return made->open(path, o, error);
  });
}

opforge_status opforge_session_open_memory(const void* bytes, size_t size,
                                           const opforge_session_options* options,
                                           opforge_session** session) {
  return open_session(options, session, [&](Session* made, const Options& o, Error* error) {
    return made->open(bytes, size, o, error);
  });
}

void opforge_session_close(opforge_session* session) { delete session; }

int32_t opforge_session_input_count(const opforge_session* session) {
  return static_cast<int32_t>(session->session.inputs().size());
}
int32_t opforge_session_output_count(const opforge_session* session) {
  return static_cast<int32_t>(session->session.outputs().size());
}

const opforge_value_info* opforge_session_input(const opforge_session* session, int32_t index) {
  const auto& inputs = session->session.inputs();
  return index < 0 || index >= static_cast<int32_t>(inputs.size()) ? nullptr
                                                                   : &inputs[static_cast<size_t>(index)].info;
}

const opforge_value_info* opforge_session_output(const opforge_session* session, int32_t index) {
  const auto& outputs = session->session.outputs();
  return index < 0 || index >= static_cast<int32_t>(outputs.size())
             ? nullptr
             : &outputs[static_cast<size_t>(index)].info;
}

int32_t opforge_session_metadata_count(const opforge_session* session) {
  return static_cast<int32_t>(session->session.metadata().size() / 2);
}

opforge_status opforge_session_metadata(const opforge_session* session, int32_t index, const char** key,
                                        const char** value) {
  return guarded([&](Error* error) -> opforge_status {
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

opforge_status opforge_session_run(opforge_session* session, opforge_run* run) {
  return guarded([&](Error* error) -> opforge_status {
    if (run->size < sizeof *run)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "opforge_run.size is not set");
    std::vector<Tensor> inputs;
    if (opforge_status status = gather_inputs(session->session, *run, &inputs, error)) return status;
    CallerOutputs outputs(session->session, run);
    if (opforge_status status = outputs.prepare(error)) return status;
    const opforge_status status = session->session.run(inputs.data(), &outputs, error);
    if (status != OPFORGE_STATUS_OK) outputs.withdraw();
    return status;
  });
}

opforge_status opforge_session_prepare(opforge_session* session, const opforge_tensor* inputs,
                                       int32_t n_inputs) {
  return guarded([&](Error* error) -> opforge_status {
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
      if (opforge_status status = to_tensor(shape_only, known[k].name, &tensors[k], error)) return status;
    }
    return session->session.prepare(tensors.data(), error);
  });
}

int32_t opforge_session_plan(const opforge_session* session, opforge_plan_entry* entries, int32_t capacity) {
  const auto plan = const_cast<opforge_session*>(session)->session.last_plan();
  if (!plan) return 0;
  const auto count = static_cast<int32_t>(plan->entries.size());
  for (int32_t k = 0; k < count && k < capacity; ++k) {
    const opforge::format::PlanEntry& entry = plan->entries[static_cast<size_t>(k)];
    entries[k] = {static_cast<int32_t>(entry.kind), static_cast<int32_t>(entry.id),
                  static_cast<int64_t>(entry.offset), static_cast<int64_t>(entry.size)};
  }
  return count;
}

void opforge_free(void* data) { std::free(data); }

opforge_status opforge_session_get_statistics(const opforge_session* session,
                                              opforge_session_statistics* statistics) {
  return guarded([&](Error* error) -> opforge_status {
    opforge_session_statistics found = {};
    if (statistics->size < sizeof found)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "statistics.size is not set");
    found.size = sizeof found;
    const_cast<opforge_session*>(session)->session.statistics(&found);
    *statistics = found;
    return OPFORGE_STATUS_OK;
  });
}

void opforge_session_profile(opforge_session* session, int32_t on) {
  session->session.start_profile(on != 0);
}

opforge_status opforge_session_node_time(const opforge_session* session, int32_t node,
                                         opforge_node_time* time) {
  return guarded([&](Error* error) -> opforge_status {
    Session& s = const_cast<opforge_session*>(session)->session;
    if (node < 0 || static_cast<uint32_t>(node) >= s.model().program().counts.nodes) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such node").found("%d", node);
    }
    s.node_time(static_cast<uint32_t>(node), time);
    return OPFORGE_STATUS_OK;
  });
}
