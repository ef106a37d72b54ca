// plugin_kernel.h: one node's kernel from a library: parsed signature, fixed attributes, the chosen instance.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "opforge/detail/infer.h"
#include "opforge/detail/signature.h"
#include "session/faults.h"
#include "session/model.h"

namespace opforge::session {

struct PluginKernel {
  const opforge_operator* row = nullptr;
  const opforge_kernel* kernel = nullptr;
  std::string name;
  const KernelNames* names = nullptr;  // null where nobody asked for them
  detail::Signature signature;
  std::vector<detail::AttributeValue> values;
  std::unique_ptr<detail::PackedAttributes> attributes;
  std::vector<int64_t> integers;
  bool decides_shapes = false;

  Status prepare(const Program& program, const opforge_operator& op, const NodeInfo& node, Error* error);
  // The tensor of the binding that output `output` of the node is, or -1: outputs of absent optional inputs
  // have none.
  int32_t bound_output(const detail::Binding<int64_t>& binding, uint32_t output) const;

 private:
  Status read_attributes(const Program& program, const NodeInfo& node, Error* error);
  Status choose(const Program& program, const NodeInfo& node, Error* error);
  // Kernels get plain tensors, and write what their signature says: the file must not say otherwise.
  Status check_tensors(const Program& program, const NodeInfo& node, const detail::Binding<int64_t>& binding,
                       Error* error) const;
};

}  // namespace opforge::session
