// model.h: a loaded .bin: verified program, kernels with their states. Immutable after load, shared by all
// runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/attributes.h"
#include "program/registry.h"
#include "session/executor.h"
#include "session/file.h"
#include "session/texts.h"

namespace opforge::session {

class Plugins;
struct PluginKernel;

struct Options {
  int32_t threads = 0;
  bool verify_full = false, copy = false, allow_native = true;
  std::vector<std::string> libraries, search;
  void (*log)(void*, int32_t, const char*) = nullptr;
  void* log_user = nullptr;
  int64_t memory_limit = 0, loop_limit = 0;  // 0 = none
  bool reuse = true;                         // false (OPFORGE_NO_REUSE=1): no two values share memory
};

struct NodeInfo {
  const format::Node* record = nullptr;
  const int32_t* inputs = nullptr;  // value ids, -1 = absent
  const int32_t* outputs = nullptr;
  const OpKernel* kernel = nullptr;  // one of kernel, plugin, control is set
  const PluginKernel* plugin = nullptr;
  Control control = Control::kNone;
  NodeAttributes attributes;
  void* state = nullptr;
  // Values that nobody reads after this node: the dynamic mode releases them, or lets the node take them
  // over.
  std::vector<uint32_t> dead;
};

class Model {
 public:
  Model();
  ~Model();
  Status open_file(const char* path, const Options& options, Error* error);
  Status open_memory(const void* bytes, size_t size, const Options& options, Error* error);

  const Program& program() const { return program_; }
  const Options& options() const { return options_; }
  const NodeInfo& node(uint32_t k) const { return nodes_[k]; }
  // The graph that makes a value or has it as an input; 0 for constants.
  uint32_t graph_of(uint32_t value) const { return graph_of_[value]; }
  int32_t threads() const { return threads_; }
  // True when the executor has work, a value is no tensor or has strings, or a library decides shapes: no
  // plan is possible.
  bool needs_dynamic() const { return needs_dynamic_; }
  // False when this many bytes of one thing are more than the caller allows.
  bool affordable(int64_t bytes) const {
    return options_.memory_limit == 0 || bytes <= options_.memory_limit;
  }
  Status too_dear(int64_t bytes, Error* error) const {
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "a run takes more memory than the session allows")
        .wanted("at most %lld bytes (memory_limit)", static_cast<long long>(options_.memory_limit))
        .found("%lld bytes", static_cast<long long>(bytes));
  }
  Tensor constant(uint32_t value) const;
  Status check_constant(uint32_t value, Error* error) const;
  Status check_strings(uint32_t value, Error* error) const;
  // All weights at once, on all threads: what the first plan of most models touches anyhow.
  Status check_constants(Error* error) const { return weights_.check_all(threads_, error); }
  uint64_t weights_size() const { return program_.file.sections[format::kWeights].size; }
  // "node 12 MatMul (output 'x')"
  void describe(uint32_t node, char* text, size_t size) const;
  std::string text(uint32_t id) const;
  void* allocate_state(size_t bytes);  // lives as long as the model; null when there is none

 private:
  Status load(Error* error);
  Status find_kernels(Error* error);
  std::vector<bool> values_read() const;
  Status check_arity(uint32_t k, Error* error) const;
  Status check_kinds(uint32_t k, Error* error) const;
  Status load_node(uint32_t k, Error* error);
  Status check_target(Error* error);
  void find_dead_values();

  std::string path_;
  Options options_;
  Bytes bytes_;
  Program program_;
  FileTexts texts_{program_};
  mutable Weights weights_;
  std::vector<NodeInfo> nodes_;
  std::vector<uint32_t> graph_of_;  // one per value
  std::vector<std::unique_ptr<uint8_t[]>> states_;
  std::unique_ptr<Plugins> plugins_;
  int32_t threads_ = 1;
  bool needs_dynamic_ = false;
};

}  // namespace opforge::session
