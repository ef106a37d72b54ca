// plugin_kernel.h: one node's kernel from a library: parsed signature, fixed attributes, the chosen instance.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "opforge/detail/infer.h"
#include "opforge/detail/signature.h"
#include "session/model.h"

namespace opforge::session {

struct PluginKernel {
  const opforge_operator* row = nullptr;
  const opforge_kernel* kernel = nullptr;
  std::string name;
  detail::Signature signature;
  std::vector<detail::AttributeValue> values;
  std::unique_ptr<detail::PackedAttributes> attributes;
  std::vector<int64_t> integers;
  bool decides_shapes = false;

  Status prepare(const Program& program, const opforge_operator& op, const NodeInfo& node, Error* error);

 private:
  Status read_attributes(const Program& program, const NodeInfo& node, Error* error);
  Status choose(const Program& program, const NodeInfo& node, Error* error);
};

}  // namespace opforge::session
