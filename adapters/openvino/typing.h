// typing.h: which kernel a node runs by, in which dtypes. The CPU's plugin changes the dtypes of a model
// before it runs it, so a node remembers those that it was made with. Where there is a kernel for what
// arrives, that one runs (f32 for a model in f16); otherwise the node converts to what it was made with (i64
// for indices that arrive as i32).
//
// Of the dtypes of outputs the plugin asks nobody. Those that depend on inputs follow what became of these.
// One that a signature fixes is from the beginning what the plugin would make of it, and a Convert behind the
// node, which the plugin does change, gives the model its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "openvino/definition.h"
#include "openvino/dtypes.h"

namespace opforge::openvino_host {

using Dtypes = std::vector<opforge_dtype>;

// One place in the list of inputs that the model gives a node, absent optional ones among them.
struct Port {
  bool present = true;
  opforge_dtype original{};  // bits = 0: not known yet
};
using Ports = std::vector<Port>;

inline size_t parameter_of(const Plan& plan, size_t port) {
  return std::min(port, plan.signature.inputs.size() - 1);
}

struct Typing {
  const opforge_kernel* kernel = nullptr;
  Dtypes given;                 // of each input tensor, as OpenVINO passes it
  Dtypes taken;                 // ... as the kernel takes it
  Dtypes made;                  // of each output tensor, as the kernel makes it
  Dtypes shown;                 // ... as OpenVINO gets it
  std::vector<int32_t> counts;  // output tensors per output of the signature
};

namespace detail_typing {

inline bool equal(const Dtypes& a, const Dtypes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), detail::same);
}

// The dtypes of outputs, by the schema; raises where the inputs' do not fit it or no kernel takes them.
inline void bind(const Plan& plan, const Ports& ports, const Attributes& attributes, Typing* typing) {
  std::vector<detail::ShapeView<int64_t>> shapes;
  Dtypes dtypes;
  size_t tensor = 0;
  for (const Port& port : ports) {
    shapes.push_back({nullptr, port.present ? detail::kUnknownRank : detail::kAbsent});
    dtypes.push_back(port.present ? typing->taken[tensor++] : opforge_dtype{});
  }
  std::vector<int64_t> integers;
  for (size_t a = 0; a < attributes.size(); ++a)
    integers.push_back(attributes[a].kind == OPFORGE_ATTRIBUTE_INT ? attributes[a].value.i : 0);
  detail::Binding<int64_t> binding;
  detail::Problem problem;
  if (!detail::bind(plan.signature, plan.where, shapes, dtypes, integers.data(), &binding, &problem))
    throw failure_of(problem);
  typing->made = binding.dtypes;
  typing->counts = binding.output_counts;
  typing->kernel = plan.kernel(binding.types.data(), OPFORGE_DEVICE_CPU);
}

inline bool changed(opforge_dtype original, opforge_dtype given) {
  const DtypeRow* row = row_of(original);
  return row != nullptr && !detail::same(original, given) && row->on_cpu == row_of(given)->theirs;
}

}  // namespace detail_typing

// given: the dtype of each input tensor that is there, all known.
inline std::shared_ptr<const Typing> type_node(const Plan& plan, const Ports& ports,
                                               const Attributes& attributes, const Dtypes& given) {
  auto typing = std::make_shared<Typing>();
  typing->given = typing->taken = given;
  Dtypes originals;
  bool any = false, halves = false;
  for (const Port& port : ports) {
    if (!port.present) continue;
    const opforge_dtype now = given[originals.size()];
    const bool changed = detail::is_known(port.original) && detail_typing::changed(port.original, now);
    any = any || changed;
    halves = halves || (changed && port.original.bits == 16);
    originals.push_back(changed ? port.original : now);
  }
  try {
    detail_typing::bind(plan, ports, attributes, typing.get());
  } catch (const Failure&) {
    if (!any) throw;
    typing->taken = originals;
    detail_typing::bind(plan, ports, attributes, typing.get());
  }
  typing->shown = typing->made;
  size_t tensor = 0;
  for (size_t p = 0; p < typing->counts.size(); ++p) {
    for (int32_t k = 0; k < typing->counts[p]; ++k) {
      opforge_dtype& dtype = typing->shown[tensor++];
      const DtypeRow* row = row_of(dtype);
      if (row == nullptr) continue;
      const bool half = dtype.code == OPFORGE_CODE_FLOAT && dtype.bits == 16;
      const bool fixed = plan.signature.outputs[p].variable < 0;
      if (fixed || (any && (!half || halves))) dtype = dtype_of(row->on_cpu);
    }
  }
  return typing;
}

}  // namespace opforge::openvino_host
