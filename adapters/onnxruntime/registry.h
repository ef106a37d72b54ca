// registry.h: the operators that this process knows, and their registrations with ONNX Runtime. Nothing here
// is ever freed: sessions keep pointers, and may outlive everything.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/known.h"
#include "onnxruntime/call.h"
#include "onnxruntime/shape.h"

namespace opforge::onnxruntime_host {

struct Registry : Known<Definition> {
  std::vector<std::unique_ptr<CustomOp>> ops;
  std::map<std::string, std::vector<CustomOpDomain*>> domains;  // by what they hold

  Registry() : Known("ONNX Runtime", "onnxruntime") {}
};

inline Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

// ---- kernels of ONNX Runtime

inline Status* create_kernel(const CustomOp* op, const void* const*, const KernelInfo* info, void** kernel) {
  return guarded([&] {
    auto node = std::make_unique<Node>();
    node->definition = op->definition;
    node->kernel = op->kernel;
    if (op->kernel->device_type != OPFORGE_DEVICE_CPU)
      node->device = {op->kernel->device_type, node->memory.open(info, op->definition->where)};
    KernelAttributes(info, *op->definition).read(&node->attributes);
    check_shapes(*op->definition, info, node->attributes.values);
    size_t inputs = 0, outputs = 0;
    check(api().KernelInfo_GetInputCount(info, &inputs), op->definition->where);
    check(api().KernelInfo_GetOutputCount(info, &outputs), op->definition->where);
    for (size_t k = 0; k < inputs; ++k) node->inputs.push_back(static_cast<int32_t>(k));
    for (size_t k = 0; k < outputs; ++k) node->outputs.push_back(static_cast<int32_t>(k));
    *kernel = node.release();
  });
}

inline Status* compute(void* kernel, KernelContext* context) {
  return guarded([&] { Call(*static_cast<const Node*>(kernel), context).run(); });
}

inline const CustomOp* make_op(const Definition& definition, const opforge_kernel& kernel,
                               const char* provider) {
  auto op = std::make_unique<CustomOp>();
  op->definition = &definition;
  op->kernel = &kernel;
  op->provider = provider;
  CustomOpHead& head = op->head;
  head.version = static_cast<uint32_t>(std::min(api().minor, kKnownUpTo));
  head.CreateKernel = [](const CustomOp*, const void* const*, const KernelInfo*) -> void* { return nullptr; };
  head.GetName = [](const CustomOp* self) { return self->definition->table->name; };
  head.GetExecutionProviderType = [](const CustomOp* self) { return self->provider; };
  head.GetInputType = &answers::input_type;
  head.GetInputTypeCount = [](const CustomOp* self) { return self->definition->signature.inputs.size(); };
  head.GetOutputType = &answers::output_type;
  head.GetOutputTypeCount = [](const CustomOp* self) { return self->definition->signature.outputs.size(); };
  head.KernelCompute = [](void*, KernelContext*) {};
  head.KernelDestroy = [](void* node) { delete static_cast<Node*>(node); };
  head.GetInputCharacteristic = &answers::input_presence;
  head.GetOutputCharacteristic = &answers::output_presence;
  head.GetInputMemoryType = [](const CustomOp*, size_t) { return 0; };
  head.GetVariadicInputMinArity = &answers::least_inputs;
  head.GetVariadicInputHomogeneity = &answers::yes;
  head.GetVariadicOutputMinArity = &answers::least_outputs;
  head.GetVariadicOutputHomogeneity = &answers::yes;
  head.CreateKernelV2 = &create_kernel;
  head.KernelComputeV2 = &compute;
  // Before 1.24 ONNX Runtime reads the type of an input that is not there, which ends the process.
  if (api().minor >= 24 || !definition.has_optional_input()) {
    head.InferOutputShapeFn = [](const CustomOp* self, ShapeContext* context) {
      return guarded([&] { infer(*self->definition, context); });
    };
  }
  head.GetStartVersion = [](const CustomOp* self) { return self->definition->table->since_version; };
  head.GetEndVersion = [](const CustomOp*) { return INT_MAX; };
  registry().ops.push_back(std::move(op));
  return registry().ops.back().get();
}

// ---- domains

// Called under the lock.
inline const std::vector<CustomOpDomain*>& domains_of(const std::vector<const Definition*>& definitions) {
  std::string key;  // a library for another device may have come since the last registration
  for (const Definition* definition : definitions) {
    int32_t kernels = 0;
    definition->kernels.each([&](const opforge_kernel&) { ++kernels; });
    key += definition->key + " " + std::to_string(kernels) + "\n";
  }
  auto& made = registry().domains[key];
  if (!made.empty()) return made;
  std::map<std::string, CustomOpDomain*> by_name;
  for (const Definition* definition : definitions) {
    CustomOpDomain*& domain = by_name[definition->table->domain];
    if (domain == nullptr)
      check(api().CreateCustomOpDomain(definition->table->domain, &domain), definition->key);
    definition->kernels.each([&](const opforge_kernel& kernel) {
      const ProviderRow* const row = provider_of(kernel.device_type);
      if (row == nullptr) return;
      check(api().CustomOpDomain_Add(domain, make_op(*definition, kernel, row->name)), definition->key);
    });
  }
  for (const auto& [name, domain] : by_name) made.push_back(domain);
  return made;
}

}  // namespace opforge::onnxruntime_host
