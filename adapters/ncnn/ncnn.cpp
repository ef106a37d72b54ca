// ncnn.cpp: operators of opforge as layers of ncnn's C API. It needs no header of ncnn: compile it into the
// program or library that calls ncnn, with -fopenmp where kernels should use the threads of ncnn's runtime.
#include "ncnn/opforge_ncnn.h"

#include <cstdio>
#include <map>
#include <mutex>

#include "common/library.h"
#include "ncnn/layer.h"

namespace opforge::ncnn_host {
namespace {

constexpr int kFailed = -100;

// ncnn gives a layer no place for what is ours, so that it is found by the layer's address.
struct Registry {
  std::mutex lock;
  std::map<std::string, std::unique_ptr<Plan>> plans;  // by kind
  std::map<const opforge_ncnn_layer*, std::unique_ptr<Layer>> layers;
};

Registry& registry() {
  static Registry* const all = new Registry;  // nets may live longer than what is static
  return *all;
}

Layer& layer_of(const opforge_ncnn_layer* layer) {
  const std::lock_guard<std::mutex> guard(registry().lock);
  return *registry().layers.at(layer);
}

template <class Body>
int report(Body body) {
  try {
    body();
    return 0;
  } catch (const Failure& problem) {
    remember(problem);
  } catch (const std::exception& problem) {
    remember(Failure(OPFORGE_STATUS_INTERNAL, problem.what()));
  }
  std::fprintf(stderr, "opforge: %s\n", last_failure().text.c_str());
  return kFailed;
}

int load_param(opforge_ncnn_layer* handle, ncnn_handle dict) {
  return report([&] {
    Layer& layer = layer_of(handle);
    read_node(Params(dict, layer.plan), layer.plan, &layer.node);
    size_t read = 0;
    for (const int32_t form : layer.node.results) read += form != kUnread;
    ncnn_layer_set_one_blob_only(handle, layer.node.forms.size() == 1 && read == 1);
  });
}

int load_model(opforge_ncnn_layer*, ncnn_handle) { return 0; }
int pipeline(opforge_ncnn_layer*, ncnn_handle) { return 0; }

int forward_n(opforge_ncnn_layer* handle, const ncnn_handle* bottoms, int n, ncnn_handle* tops, int n2,
              ncnn_handle option) {
  // ncnn reads what stands in `tops` after a failure too.
  for (int k = 0; k < n2; ++k) tops[k] = ncnn_mat_create();
  region_threads() = ncnn_option_get_num_threads(option);
  return report([&] { Call(layer_of(handle), bottoms, n, tops, n2).run(); });
}

int forward_1(opforge_ncnn_layer* handle, ncnn_handle bottom, ncnn_handle* top, ncnn_handle option) {
  return forward_n(handle, &bottom, 1, top, 1, option);
}

opforge_ncnn_layer* create(void* user) {
  opforge_ncnn_layer* const layer = ncnn_layer_create();
  ncnn_layer_set_one_blob_only(layer, 0);
  ncnn_layer_set_support_inplace(layer, 0);
  ncnn_layer_set_support_vulkan(layer, 0);
  ncnn_layer_set_support_packing(layer, 0);
  ncnn_layer_set_support_bf16_storage(layer, 0);
  ncnn_layer_set_support_fp16_storage(layer, 0);
  layer->load_param = &load_param;
  layer->load_model = &load_model;
  layer->create_pipeline = &pipeline;
  layer->destroy_pipeline = &pipeline;
  layer->forward_1 = &forward_1;
  layer->forward_n = &forward_n;
  const std::lock_guard<std::mutex> guard(registry().lock);
  registry().layers[layer] = std::make_unique<Layer>(*static_cast<const Plan*>(user));
  return layer;
}

void destroy(opforge_ncnn_layer* layer, void*) {
  {
    const std::lock_guard<std::mutex> guard(registry().lock);
    registry().layers.erase(layer);
  }
  ncnn_layer_destroy(layer);
}

// ncnn knows no domains: everything but letters and digits of domain::Name:version is one '_'.
std::string kind_of(const std::string& key) {
  std::string kind;
  for (const char c : key) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain || kind.empty() || kind.back() != '_') kind += plain ? c : '_';
  }
  return kind;
}

// Returns the kind and the plan; both stay, for a net keeps the pointer to the name that it is given.
const std::pair<const std::string, std::unique_ptr<Plan>>& define(const opforge_operator* table) {
  auto plan = std::make_unique<Plan>(table);
  const std::lock_guard<std::mutex> guard(registry().lock);
  const auto known = registry().plans.try_emplace(kind_of(plan->key)).first;
  if (known->second != nullptr) {
    merge(*known->second, *plan, known->first, "ncnn");
  } else {
    known->second = std::move(plan);
  }
  return *known;
}

int register_library(void* net, const opforge_library* library) {
  int count = 0;
  for (int32_t k = 0; k < library->n_operators; ++k) {
    if ((library->operators[k]->flags & OPFORGE_OPERATOR_GRADIENT) != 0) continue;
    const auto& known = define(library->operators[k]);
    ncnn_net_register_custom_layer_by_type(net, known.first.c_str(), &create, &destroy, known.second.get());
    ++count;
  }
  return count;
}

template <class Body>
int counted(Body body) {
  int count = 0;
  return report([&] { count = body(); }) == 0 ? count : -1;
}

}  // namespace
}  // namespace opforge::ncnn_host

extern "C" {

OPFORGE_EXPORT int opforge_ncnn_register(void* net, const char* path) {
  using namespace opforge::ncnn_host;
  return counted([&] { return register_library(net, open_library(path, "ncnn")); });
}

OPFORGE_EXPORT int opforge_ncnn_register_linked(void* net, const void* (*entry)(const void*)) {
  using namespace opforge::ncnn_host;
  return counted([&] {
    const auto table = reinterpret_cast<opforge_library_fn>(entry);
    return register_library(net, library_table(table, "linked library", "ncnn"));
  });
}

OPFORGE_EXPORT const char* opforge_ncnn_error(void) { return opforge::adapter::last_failure().text.c_str(); }
}
