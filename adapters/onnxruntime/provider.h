// provider.h: the execution provider: claims nodes of ours, and parts of a graph that were compiled to
// programs.
//
// Which parts are compiled is not decided here: the session's option `opforge.programs` names a folder of
// .bin files (the Python side makes them), and each claims the nodes that compute its outputs from its
// inputs.
#pragma once

#include <dirent.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "onnxruntime/graph.h"
#include "onnxruntime/program.h"
#include "onnxruntime/provider_api.h"
#include "onnxruntime/registry.h"

namespace opforge::onnxruntime_host {

inline constexpr const char* kProvider = "OpforgeExecutionProvider";

struct EpFactory {
  EpFactoryHead head{};
};

struct Ep {
  EpHead head{};
  std::vector<std::shared_ptr<const Program>> programs;
};

inline const EpApi& ep_api() { return *reinterpret_cast<const EpApi*>(api().GetEpApi()); }

// What a claimed node or part runs.
struct Claimed {
  ComputeInfo head{};
  std::unique_ptr<Node> node;
  std::unique_ptr<ProgramNode> program;
};

// ---- which kernel a node takes

inline const Definition* definition_of(const GraphNode* node) {
  int32_t version = 0;
  check(api().Node_GetSinceVersion(node, &version), "node");
  const std::string key = text_of(api().Node_GetDomain, node) +
                          "::" + text_of(api().Node_GetOperatorType, node) + ":" + std::to_string(version);
  const std::lock_guard<std::mutex> guard(registry().lock);
  const auto found = registry().definitions.find(key);
  return found == registry().definitions.end() ? nullptr : found->second.get();
}

// The CPU's kernel for a node's dtypes, or NULL where there is none for them or they are not known.
inline const opforge_kernel* kernel_of(const Definition& definition, const GraphNode* node) {
  const std::vector<int32_t> types = input_types(node);
  const auto& inputs = definition.signature.inputs;
  Small<opforge_dtype, 4> bound;
  bound.resize(definition.signature.types.size());
  for (size_t k = 0; k < types.size(); ++k) {
    const detail::Parameter& input = inputs[std::min(k, inputs.size() - 1)];
    if (input.variable >= 0 && types[k] != 0) bound[static_cast<size_t>(input.variable)] = dtype_of(types[k]);
  }
  return definition.kernels.find(bound.data(), bound.size(), OPFORGE_DEVICE_CPU);
}

// ---- claiming

inline void claim(const Ep& ep, const Graph* graph, SupportInfo* support) {
  const std::vector<const GraphNode*> nodes = nodes_of(graph);
  const Links links(graph, nodes);
  std::set<const GraphNode*> taken;
  for (const auto& program : ep.programs) {
    const std::set<const GraphNode*> region = program->region(links);
    const bool free = std::none_of(region.begin(), region.end(),
                                   [&](const GraphNode* node) { return taken.count(node) > 0; });
    if (region.empty() || !free) continue;
    const std::vector<const GraphNode*> members(region.begin(), region.end());
    const FusionOptions options{kTables, true};
    check(ep_api().EpGraphSupportInfo_AddNodesToFuse(support, members.data(), members.size(), &options),
          kProvider);
    taken.insert(region.begin(), region.end());
  }
  for (const GraphNode* node : nodes) {
    if (taken.count(node) > 0) continue;
    const Definition* const definition = definition_of(node);
    if (definition == nullptr || kernel_of(*definition, node) == nullptr) continue;
    const FusionOptions options{kTables, false};
    check(ep_api().EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &options), kProvider);
  }
}

// ---- compiling what was claimed

inline std::unique_ptr<Claimed> compile_node(const GraphNode* node, const GraphNode* fused) {
  const Definition* const definition = definition_of(node);
  auto made = std::make_unique<Node>();
  made->definition = definition;
  made->kernel = definition == nullptr ? nullptr : kernel_of(*definition, node);
  if (made->kernel == nullptr) {
    throw failure(OPFORGE_STATUS_INTERNAL, text_of(api().Node_GetName, node),
                  "a claimed node is none of ours any more");
  }
  GraphAttributes(node, *definition).read(&made->attributes);
  made->inputs = places(input_names(node), input_names(fused));
  made->outputs = places(output_names(node), output_names(fused));
  auto claimed = std::make_unique<Claimed>();
  claimed->node = std::move(made);
  claimed->head.Compute = [](ComputeInfo* self, void*, KernelContext* context) {
    return guarded([&] { Call(*reinterpret_cast<const Claimed*>(self)->node, context).run(); });
  };
  return claimed;
}

inline std::unique_ptr<Claimed> compile_program(const std::shared_ptr<const Program>& program,
                                                const GraphNode* fused) {
  auto made = std::make_unique<ProgramNode>();
  made->program = program;
  made->inputs = places(program->inputs(), input_names(fused));
  made->outputs = places(program->outputs(), output_names(fused));
  auto claimed = std::make_unique<Claimed>();
  claimed->program = std::move(made);
  claimed->head.Compute = [](ComputeInfo* self, void*, KernelContext* context) {
    return guarded([&] { ProgramRun(*reinterpret_cast<const Claimed*>(self)->program, context).run(); });
  };
  return claimed;
}

inline std::unique_ptr<Claimed> compile(const Ep& ep, const Graph* graph, const GraphNode* fused) {
  const Names inputs = input_names(fused), outputs = output_names(fused);
  const auto all = [](const Names& names, const Names& among) {
    const std::vector<int32_t> found = places(names, among);
    return std::find(found.begin(), found.end(), -1) == found.end();
  };
  std::unique_ptr<Claimed> claimed;
  // A node of ours may make what a program that was not claimed makes: then it has other inputs.
  for (const auto& program : ep.programs) {
    if (!claimed && !outputs.empty() && all(outputs, program->outputs()) && all(program->inputs(), inputs))
      claimed = compile_program(program, fused);
  }
  if (!claimed) claimed = compile_node(nodes_of(graph).at(0), fused);
  claimed->head.version = kTables;
  claimed->head.CreateState = [](ComputeInfo*, void*, void** state) -> Status* {
    *state = nullptr;
    return nullptr;
  };
  claimed->head.ReleaseState = [](ComputeInfo*, void*) {};
  return claimed;
}

// ---- the provider of a session

inline std::string option(const SessionOptions* options, const char* key) {
  size_t size = 0;
  if (!good(api().GetSessionConfigEntry(options, key, nullptr, &size)) || size == 0) return {};
  std::string text(size, '\0');
  if (!good(api().GetSessionConfigEntry(options, key, text.data(), &size))) return {};
  text.resize(std::strlen(text.c_str()));
  return text;
}

inline void open_programs(const SessionOptions* options, Ep* ep) {
  const std::string folder = option(options, "opforge.programs");
  if (folder.empty()) return;
  const std::string threads = option(options, "opforge.threads");
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr)
    throw failure(OPFORGE_STATUS_NOT_FOUND, folder, "the folder of compiled parts is not there", "a folder");
  Names files;
  while (const dirent* entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".bin") == 0)
      files.push_back(folder + "/" + name);
  }
  ::closedir(open);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files)
    ep->programs.push_back(std::make_shared<Program>(file, std::atoi(threads.c_str())));
}

inline Ep* make_ep(const SessionOptions* options) {
  auto ep = std::make_unique<Ep>();
  open_programs(options, ep.get());
  ep->head.version = kTables;
  ep->head.GetName = [](const Ep*) { return kProvider; };
  ep->head.GetCapability = [](Ep* self, const Graph* graph, SupportInfo* support) {
    return guarded([&] { claim(*self, graph, support); });
  };
  ep->head.Compile = [](Ep* self, const Graph** graphs, const GraphNode** fused, size_t count,
                        ComputeInfo** infos, GraphNode**) {
    return guarded([&] {
      std::vector<std::unique_ptr<Claimed>> made;  // all or none: where one fails, nobody releases the others
      for (size_t k = 0; k < count; ++k) made.push_back(compile(*self, graphs[k], fused[k]));
      for (size_t k = 0; k < count; ++k) infos[k] = &made[k].release()->head;
    });
  };
  ep->head.ReleaseNodeComputeInfos = [](Ep*, ComputeInfo** infos, size_t count) {
    for (size_t k = 0; k < count; ++k) delete reinterpret_cast<Claimed*>(infos[k]);
  };
  return ep.release();
}

inline EpFactory* make_factory() {
  auto factory = std::make_unique<EpFactory>();
  EpFactoryHead& head = factory->head;
  head.version = kTables;
  head.GetName = [](const EpFactory*) { return kProvider; };
  head.GetVendor = [](const EpFactory*) { return "opforge"; };
  head.GetVendorId = [](const EpFactory*) -> uint32_t { return 0; };
  head.GetVersion = [](const EpFactory*) { return opforge_runtime_version(); };
  head.GetSupportedDevices = [](EpFactory* self, const HardwareDevice* const* devices, size_t count,
                                EpDevice** made, size_t room, size_t* filled) -> Status* {
    *filled = 0;
    for (size_t k = 0; k < count && *filled < room; ++k) {
      if (api().HardwareDevice_Type(devices[k]) != kCpuDevice) continue;
      if (Status* problem = ep_api().CreateEpDevice(self, devices[k], nullptr, nullptr, &made[*filled]))
        return problem;
      ++*filled;
    }
    return nullptr;
  };
  head.CreateEp = [](EpFactory*, const HardwareDevice* const*, const KeyValuePairs* const*, size_t,
                     const SessionOptions* options, const Logger*,
                     Ep** made) { return guarded([&] { *made = make_ep(options); }); };
  head.ReleaseEp = [](EpFactory*, Ep* ep) { delete ep; };
  head.CreateAllocator = [](EpFactory*, const void*, const KeyValuePairs*, Allocator** made) -> Status* {
    *made = nullptr;  // the CPU's own
    return nullptr;
  };
  head.ReleaseAllocator = [](EpFactory*, Allocator*) {};
  head.CreateDataTransfer = [](EpFactory*, void** made) -> Status* {
    *made = nullptr;
    return nullptr;
  };
  head.IsStreamAware = [](const EpFactory*) { return false; };
  return factory.release();
}

}  // namespace opforge::onnxruntime_host
