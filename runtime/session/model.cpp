// model.cpp: opens, verifies, finds a kernel for every node (reporting all that are missing at once), loads
// them.
#include "session/model.h"

#include <algorithm>
#include <cstdlib>

#include "session/plugin.h"
#include "threads/pool.h"

namespace opforge::session {

namespace {

struct LoadHost {
  Model* model;
  Error* error;
};

void* load_allocate(LoadContext* context, size_t bytes) {
  return static_cast<LoadHost*>(context->host)->model->allocate_state(bytes);
}

Status load_fail(LoadContext* context, Status code, const char* format, ...) {
  Error* error = static_cast<LoadHost*>(context->host)->error;
  va_list list;
  va_start(list, format);
  char text[Error::kText];
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return error->fail(code, "%s", text);
}

// Instruction sets by their names in the file. The names are those of GCC's __builtin_cpu_supports.
bool cpu_has([[maybe_unused]] const std::string& feature) {
#if defined(__x86_64__)
  if (feature == "avx2") return __builtin_cpu_supports("avx2");
  if (feature == "fma") return __builtin_cpu_supports("fma");
  if (feature == "avx512f") return __builtin_cpu_supports("avx512f");
  if (feature == "avx512vnni") return __builtin_cpu_supports("avx512vnni");
  if (feature == "avx512bf16") return __builtin_cpu_supports("avx512bf16");
#endif
#if defined(__aarch64__)
  if (feature == "neon") return true;
#endif
  return false;
}

}  // namespace

Model::Model() = default;
Model::~Model() = default;

Status Model::open_file(const char* path, const Options& options, Error* error) {
  options_ = options;
  path_ = path;
  if (options.copy ? bytes_.read(path, error) : bytes_.map(path, error)) return *error;
  if (load(error) == OPFORGE_STATUS_OK) return OPFORGE_STATUS_OK;
  const std::string where = std::string(path) + (error->where[0] != '\0' ? ", " : "") + error->where;
  error->at("%s", where.c_str());
  return *error;
}

Status Model::open_memory(const void* bytes, size_t size, const Options& options, Error* error) {
  options_ = options;
  if (bytes_.borrow(bytes, size, options.copy, error)) return *error;
  return load(error);
}

Status Model::load(Error* error) {
  const char* no_reuse = std::getenv("OPFORGE_NO_REUSE");
  if (no_reuse != nullptr && std::strcmp(no_reuse, "1") == 0) options_.reuse = false;
  threads_ = options_.threads;
  if (threads_ < 0)
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "threads must be 0 or more").found("%d", threads_);
  if (threads_ == 0) threads_ = pool_threads();
  format::File file;
  if (format::open(bytes_.data(), bytes_.size(), &file, error)) return *error;
  const size_t scratch_size = verify_memory(file);
  const std::unique_ptr<uint8_t[]> scratch(new uint8_t[scratch_size]);
  if (verify(file, &program_, scratch.get(), scratch_size, error)) return *error;
  if (weights_.start(program_.file, error) || check_target(error)) return *error;
  if (options_.verify_full && weights_.check_all(threads_, error)) return *error;
  for (uint32_t k = 0; k < program_.n_values; ++k) {
    const format::Value& v = program_.values[k];
    const bool strings = is_string(v);
    needs_dynamic_ = needs_dynamic_ || v.kind != format::kTensorValue || strings;
    // Small constants are what kernels look into while they load and infer.
    if (program_.is_constant(k) && v.size <= format::kSmall && check_constant(k, error)) return *error;
    if (program_.is_constant(k) && strings && check_strings(k, error)) return *error;
  }
  if (find_kernels(error)) return *error;
  for (uint32_t k = 0; k < program_.counts.nodes; ++k) {
    if (load_node(k, error)) return *error;
  }
  find_dead_values();
  return OPFORGE_STATUS_OK;
}

Status Model::check_target(Error* error) {
  std::string absent;
  for (uint32_t k = 0; k < program_.n_features; ++k) {
    const std::string feature = text(program_.features[k]);
    if (!cpu_has(feature)) absent += (absent.empty() ? "" : " ") + feature;
  }
  if (absent.empty()) return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_UNSUPPORTED, "this CPU lacks what the file was compiled for")
      .at("target '%s'", text(program_.target).c_str())
      .wanted("CPU features: %s", absent.c_str())
      .advise("compile the model with --target cpu");
}

Status Model::find_kernels(Error* error) {
  if (!registry_complete())
    return error->fail(OPFORGE_STATUS_INTERNAL, "this build has more kernels than its table holds");
  nodes_.resize(program_.counts.nodes);
  plugins_ = std::make_unique<Plugins>(program_, options_);
  std::vector<std::string> missing;
  std::vector<bool> read;
  constexpr size_t kMostMissing = 100;  // names in the message
  for (uint32_t k = 0; k < program_.counts.nodes; ++k) {
    NodeInfo& info = nodes_[k];
    info.record = program_.nodes + k;
    info.inputs = program_.ids + info.record->first_input;
    info.outputs = program_.ids + info.record->first_output;
    info.attributes = NodeAttributes(&program_, info.record);
    const StringView domain = program_.text(info.record->domain), op = program_.text(info.record->op);
    const auto version = static_cast<int32_t>(info.record->since_version);
    info.kernel = find_kernel(domain, op, version);
    if (info.kernel != nullptr && check_kinds(k, nullptr) == OPFORGE_STATUS_OK) continue;
    info.control = executor_op(domain, op);
    if (info.control != Control::kNone) {
      info.kernel = nullptr;
      needs_dynamic_ = true;
      continue;
    }
    if (info.kernel != nullptr) continue;  // refused when it is loaded
    const format::Operator* required = plugins_->required(domain, op, version);
    if (required != nullptr) {
      if (plugins_->open(*required, info, &info.plugin, error)) return *error;
      needs_dynamic_ = needs_dynamic_ || plugin_decides_shapes(*info.plugin);
      continue;
    }
    if ((info.record->flags & format::kNodeOptional) != 0) {
      if (read.empty()) read = values_read();
      bool needed = false;
      for (uint32_t o = 0; o < info.record->outputs; ++o) {
        needed = needed || (info.outputs[o] >= 0 && read[static_cast<size_t>(info.outputs[o])]);
      }
      if (!needed) {
        info.control = Control::kLeftOut;
        continue;
      }
    }
    if (missing.size() == kMostMissing) continue;
    std::string name =
        text(info.record->domain) + "::" + text(info.record->op) + ":" + std::to_string(version);
    if (knows_operator(domain, op)) name += " (another version is known)";
    if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
  }
  if (missing.empty()) return OPFORGE_STATUS_OK;
  std::string list;
  for (const std::string& name : missing) list += (list.empty() ? "" : ", ") + name;
  return error
      ->fail(OPFORGE_STATUS_UNSUPPORTED, "the runtime has no kernel for %zu operator%s", missing.size(),
             missing.size() == 1 ? "" : "s")
      .found("%s", list.c_str())
      .advise("upgrade opforge, or compile the model again with this release");
}

void* Model::allocate_state(size_t bytes) {
  if (bytes > format::kMaxBytes) return nullptr;
  std::unique_ptr<uint8_t[]> memory(new (std::nothrow) uint8_t[bytes + 64]());
  if (!memory) return nullptr;
  const auto address = (reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64;
  states_.push_back(std::move(memory));
  return reinterpret_cast<void*>(address);
}

Tensor Model::constant(uint32_t value) const {
  const format::Value& v = program_.values[value];
  Tensor tensor;
  tensor.dtype = static_cast<DType>(v.dtype);
  tensor.layout = {static_cast<LayoutKind>(v.layout), v.halo[0], v.halo[1], v.halo[2], v.halo[3]};
  static_shape(program_, value, &tensor.shape);
  tensor.packing = packing_of(program_.text(v.packing));
  tensor.data = const_cast<uint8_t*>(program_.constant(value));
  return tensor;
}

Status Model::check_constant(uint32_t value, Error* error) const {
  const format::Value& v = program_.values[value];
  if (weights_.check(v.offset, v.size, error) == OPFORGE_STATUS_OK) return OPFORGE_STATUS_OK;
  return *error;
}

// The elements of a constant of strings are numbers of texts that the file has.
Status Model::check_strings(uint32_t value, Error* error) const {
  if (check_constant(value, error)) return *error;
  const Tensor tensor = constant(value);
  const int64_t n = tensor.shape.elements();
  for (int64_t k = 0; k < n; ++k) {
    const uint32_t number = tensor.as<uint32_t>()[k];
    if (number < program_.n_strings) continue;
    return error->fail(OPFORGE_STATUS_CORRUPT, "an element of a constant is no text of the file")
        .at("section 'weights', value '%s'", text(program_.values[value].name).c_str())
        .wanted("a text id below %u", program_.n_strings)
        .found("%u", number);
  }
  return OPFORGE_STATUS_OK;
}

// Which values are read by anybody; made when the first optional node is unknown.
std::vector<bool> Model::values_read() const {
  std::vector<bool> read(program_.n_values, false);
  auto mark = [&](uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const int32_t id = program_.ids[first + i];
      if (id >= 0) read[static_cast<size_t>(id)] = true;
    }
  };
  for (uint32_t n = 0; n < program_.counts.nodes; ++n)
    mark(program_.nodes[n].first_input, program_.nodes[n].inputs);
  for (uint32_t g = 0; g < program_.counts.graphs; ++g) {
    const format::Graph& graph = program_.graphs[g];
    mark(graph.first_output, graph.outputs);
    mark(graph.first_capture, graph.captures);
  }
  return read;
}

// Kernels rely on their required inputs and on an output to write, and know of no more than their row says.
Status Model::check_arity(uint32_t k, Error* error) const {
  const NodeInfo& info = nodes_[k];
  if (info.kernel == nullptr) return OPFORGE_STATUS_OK;  // libraries check by their signature
  const auto required = static_cast<uint32_t>(info.kernel->required_inputs);
  const bool all = (info.kernel->flags & kAllInputs) != 0;
  const auto most_outputs = static_cast<uint32_t>(info.kernel->most_outputs);
  const uint32_t most_inputs = info.kernel->most_inputs != 0 ? static_cast<uint32_t>(info.kernel->most_inputs)
                               : all                         ? UINT32_MAX
                                                             : required;
  if (info.record->inputs > most_inputs || info.record->outputs > most_outputs) {
    char where[Error::kText];
    describe(k, where, sizeof where);
    const bool outputs = info.record->outputs > most_outputs;
    return error
        ->fail(OPFORGE_STATUS_CORRUPT, "a node has more %s than its operator", outputs ? "outputs" : "inputs")
        .at("section 'program', %s", where)
        .wanted("at most %u", outputs ? most_outputs : most_inputs)
        .found("%u", outputs ? info.record->outputs : info.record->inputs);
  }
  uint32_t present = 0, written = 0;
  while (present < info.record->inputs && info.inputs[present] >= 0) ++present;
  for (uint32_t o = 0; o < info.record->outputs; ++o) written += info.outputs[o] >= 0;
  const bool first = info.record->outputs > 0 && info.outputs[0] >= 0;
  const bool good_outputs = (info.kernel->flags & kAnyOutput) != 0 ? written > 0 : first;
  if (present >= (all ? std::max(required, info.record->inputs) : required) && good_outputs)
    return OPFORGE_STATUS_OK;
  char where[Error::kText];
  describe(k, where, sizeof where);
  return error->fail(OPFORGE_STATUS_CORRUPT, "a node lacks inputs or outputs that its operator needs")
      .at("section 'program', %s", where)
      .wanted("%u inputs and %s", required, good_outputs ? "an output" : "the first output")
      .found("%u inputs and %u outputs", present, written);
}

// Kernels know tensors only, and few know strings. Without error: asks quietly about the former.
Status Model::check_kinds(uint32_t k, Error* error) const {
  const NodeInfo& info = nodes_[k];
  bool good = true, strings = false;
  auto look = [&](int32_t id) {
    if (id < 0) return;
    const format::Value& v = program_.values[id];
    good = good && v.kind == format::kTensorValue;
    strings = strings || is_string(v);
  };
  for (uint32_t i = 0; i < info.record->inputs; ++i) look(info.inputs[i]);
  for (uint32_t o = 0; o < info.record->outputs; ++o) look(info.outputs[o]);
  if (error == nullptr) return good ? OPFORGE_STATUS_OK : OPFORGE_STATUS_CORRUPT;
  const bool refused = strings && (info.kernel == nullptr || (info.kernel->flags & kStrings) == 0);
  if (good && !refused) return OPFORGE_STATUS_OK;
  char where[Error::kText];
  describe(k, where, sizeof where);
  if (good) {
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "the kernel takes and gives no strings")
        .at("section 'program', %s", where)
        .wanted("tensors of numbers or bool");
  }
  return error->fail(OPFORGE_STATUS_CORRUPT, "a kernel is given a sequence or an optional")
      .at("section 'program', %s", where)
      .wanted("tensors");
}

Status Model::load_node(uint32_t k, Error* error) {
  NodeInfo& info = nodes_[k];
  if (info.control == Control::kLeftOut) return OPFORGE_STATUS_OK;
  if (info.control != Control::kNone) return check_executor_node(program_, k, info.control, error);
  if (check_kinds(k, error) || check_arity(k, error)) return *error;
  if (info.kernel == nullptr || info.kernel->load == nullptr) return OPFORGE_STATUS_OK;
  std::vector<Tensor> inputs(info.record->inputs);
  for (uint32_t i = 0; i < info.record->inputs; ++i) {
    const int32_t id = info.inputs[i];
    if (id < 0) continue;
    if (program_.is_constant(static_cast<uint32_t>(id))) {
      inputs[i] = constant(static_cast<uint32_t>(id));
    } else {
      const format::Value& v = program_.values[id];
      inputs[i].dtype = static_cast<DType>(v.dtype);
      inputs[i].layout = {static_cast<LayoutKind>(v.layout), v.halo[0], v.halo[1], v.halo[2], v.halo[3]};
      inputs[i].shape.rank = -1;
    }
  }
  LoadHost host{this, error};
  LoadContext context{};
  context.attributes = &info.attributes;
  context.inputs = inputs.data();
  context.n_inputs = static_cast<int32_t>(info.record->inputs);
  context.n_outputs = static_cast<int32_t>(info.record->outputs);
  context.texts = &texts_;
  context.allocate = load_allocate;
  context.fail = load_fail;
  context.host = &host;
  const Status status = info.kernel->load(context);
  info.state = context.state;
  if (status == OPFORGE_STATUS_OK) return status;
  if (error->status != status) error->fail(status, "a node cannot be loaded");
  char where[Error::kText];
  describe(k, where, sizeof where);
  return error->at("%s", where);
}

// A branch of an If runs at most once per If, so what nobody reads after the If dies at its last reader
// inside. The body of a Loop runs again.
void Model::find_dead_values() {
  std::vector<uint32_t> last(program_.n_values, UINT32_MAX);
  std::vector<uint32_t> holder(program_.counts.graphs, UINT32_MAX);
  graph_of_.assign(program_.n_values, 0);
  for (uint32_t g = 0; g < program_.counts.graphs; ++g) {
    const format::Graph& graph = program_.graphs[g];
    std::vector<uint32_t> own(program_.ids + graph.first_input,
                              program_.ids + graph.first_input + graph.inputs);
    for (uint32_t id : own) graph_of_[id] = g;
    if (holder[g] != UINT32_MAX && nodes_[holder[g]].control == Control::kIf) {
      const std::vector<uint32_t>& dying = nodes_[holder[g]].dead;
      for (uint32_t c = 0; c < graph.captures; ++c) {
        const auto id = static_cast<uint32_t>(program_.ids[graph.first_capture + c]);
        if (std::find(dying.begin(), dying.end(), id) == dying.end()) continue;
        own.push_back(id);
        last[id] = UINT32_MAX;
      }
    }
    for (uint32_t n = graph.first_node; n < graph.first_node + graph.nodes; ++n) {
      const format::Node& node = program_.nodes[n];
      auto use = [&](int32_t id) {
        if (id >= 0) last[id] = n;
      };
      for (uint32_t k = 0; k < node.inputs; ++k) use(nodes_[n].inputs[k]);
      for (uint32_t k = 0; k < node.outputs; ++k) {
        if (nodes_[n].outputs[k] >= 0) {
          own.push_back(static_cast<uint32_t>(nodes_[n].outputs[k]));
          graph_of_[own.back()] = g;
        }
        use(nodes_[n].outputs[k]);
      }
      for (uint32_t k = 0; k < node.attributes; ++k) {
        const format::Attribute& a = program_.attributes[node.first_attribute + k];
        if (a.kind != format::kSubgraph) continue;
        holder[a.payload] = n;
        const format::Graph& inner = program_.graphs[a.payload];
        for (uint32_t c = 0; c < inner.captures; ++c) use(program_.ids[inner.first_capture + c]);
      }
    }
    for (uint32_t k = 0; k < graph.outputs; ++k) last[program_.ids[graph.first_output + k]] = UINT32_MAX;
    for (uint32_t id : own) {
      if (last[id] != UINT32_MAX) nodes_[last[id]].dead.push_back(id);
    }
  }
}

void Model::describe(uint32_t k, char* text, size_t size) const {
  const NodeInfo& info = nodes_[k];
  std::string output;
  for (uint32_t o = 0; o < info.record->outputs && output.empty(); ++o) {
    if (info.outputs[o] >= 0) output = this->text(program_.values[info.outputs[o]].name);
  }
  const std::string domain = this->text(info.record->domain);
  std::snprintf(text, size, "node %u %s%s%s (output '%s')", k, domain.c_str(),
                domain.empty() ? "" : "::", this->text(info.record->op).c_str(), output.c_str());
}

std::string Model::text(uint32_t id) const {
  const StringView view = program_.text(id);
  return std::string(view.data, static_cast<size_t>(view.size));
}

}  // namespace opforge::session
