// plugin.h: kernel operators from kernel libraries: where a library is searched, what must match, how it is
// called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/model.h"

namespace opforge::session {

class Plugins {
 public:
  Plugins(const Program& program, const Options& options);
  ~Plugins();

  // The program's entry for an operator; null when the file does not list it.
  const format::Operator* required(StringView domain, StringView name, int32_t version) const;
  // Finds the library and makes the node's kernel (its attributes and dtypes are fixed). The error lists
  // every place that was looked at and why it was not taken.
  Status open(const format::Operator& op, const NodeInfo& node, const PluginKernel** kernel, Error* error);

 private:
  struct Found {
    const format::Operator* op;
    const opforge_operator* row;
  };
  Status find(const format::Operator& op, const opforge_operator** row, Error* error);
  std::string text(uint32_t id) const;
  std::vector<std::string> candidates(const std::string& library, std::string* looked) const;
  const opforge_operator* look_in(const std::string& path, const format::Operator& op,
                                  std::string* why) const;
  void warn(const std::string& text) const;

  const Program& program_;
  const Options& options_;
  std::vector<Found> found_;
  std::vector<std::unique_ptr<PluginKernel>> kernels_;
};

// True when a shape of its outputs is known only when it has run.
bool plugin_decides_shapes(const PluginKernel& kernel);
Status plugin_infer(const PluginKernel& kernel, const Attributes& attributes, InferContext* context,
                    Error* error);
Status plugin_run(const PluginKernel& kernel, const Attributes& attributes, RunContext* context,
                  Error* error);
// Runs one that decides shapes: outputs get shape and data, memory keeps them alive.
Status plugin_run_dynamic(const PluginKernel& kernel, const Model& model, uint32_t node, const Tensor* inputs,
                          Tensor* outputs, std::shared_ptr<void>* memory, Error* error);

}  // namespace opforge::session
