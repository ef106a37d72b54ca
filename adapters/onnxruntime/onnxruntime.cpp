// onnxruntime.cpp: the entry points that ONNX Runtime and the Python side call.
#include <cstdlib>
#include <cstring>

#include "onnxruntime/provider.h"
#include "onnxruntime/registry.h"

namespace opforge::onnxruntime_host {
namespace {

// The table of this ONNX Runtime. A process has one: kernels and domains of another's would mix with its own.
Status* open(const ApiBase* base) {
  const char* const version = base->get_version_string();
  const char* const dot = std::strchr(version, '.');
  const int32_t minor = std::strncmp(version, "1.", 2) == 0 && dot != nullptr ? std::atoi(dot + 1) : 0;
  const void* const* rows = base->get_api(static_cast<uint32_t>(minor > 0 ? minor : 1));
  if (rows == nullptr) rows = base->get_api(1);
  const std::lock_guard<std::mutex> guard(registry().lock);
  if (api().table == rows) return nullptr;
  const auto refuse = [&](const std::string& text) {
    return reinterpret_cast<Status* (*)(int32_t, const char*)>(const_cast<void*>(rows[0]))(kFail,
                                                                                           text.c_str());
  };
  if (minor < kOldest) {
    return refuse(failure(OPFORGE_STATUS_UNSUPPORTED, "opforge", "this ONNX Runtime is too old",
                          "1.20 or newer", version, "pip install --upgrade onnxruntime")
                      .text);
  }
  if (api().table != nullptr) {
    return refuse(failure(OPFORGE_STATUS_UNSUPPORTED, "opforge",
                          "a second ONNX Runtime is loaded in this process",
                          "1." + std::to_string(api().minor), version)
                      .text);
  }
  api().load(rows, minor);
  return nullptr;
}

void register_with(SessionOptions* options) {
  registry().search("opforge.onnxruntime.library()");
  const Keys keys = std::exchange(selection(), {});
  const std::lock_guard<std::mutex> guard(registry().lock);
  for (CustomOpDomain* domain : domains_of(registry().chosen(keys)))
    check(api().AddCustomOpDomain(options, domain), "AddCustomOpDomain");
}

}  // namespace
}  // namespace opforge::onnxruntime_host

using namespace opforge::onnxruntime_host;  // NOLINT: the C entry points below

extern "C" {

// What SessionOptions.register_custom_ops_library calls.
OPFORGE_EXPORT Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  if (Status* problem = open(base)) return problem;
  return guarded([&] { register_with(options); });
}

// What onnxruntime.register_execution_provider_library calls, and what it calls at the end.
OPFORGE_EXPORT Status* CreateEpFactories(const char*, const ApiBase* base, const Logger*,
                                         EpFactory** factories, size_t room, size_t* filled) {
  *filled = 0;
  if (Status* problem = open(base)) return problem;
  return guarded([&] {
    if (api().minor < kProviderSince || room < 1) {
      throw opforge::adapter::failure(OPFORGE_STATUS_UNSUPPORTED, kProvider,
                                      "this ONNX Runtime takes no execution provider from a library",
                                      "1.23 or newer", "1." + std::to_string(api().minor),
                                      "register the library of operators instead");
    }
    factories[0] = make_factory();
    *filled = 1;
  });
}
OPFORGE_EXPORT Status* ReleaseEpFactory(EpFactory* factory) {
  delete factory;
  return nullptr;
}

// Makes one operator of a table known to this process.
OPFORGE_EXPORT int32_t opforge_onnxruntime_define(const opforge_operator* table, char* error, size_t size) {
  return opforge::adapter::guarded(error, size, [&] { registry().define(table); }, OPFORGE_STATUS_INTERNAL);
}

// The operators that the next registration on this thread takes; none = the newest of each.
OPFORGE_EXPORT void opforge_onnxruntime_select(const char* const* keys, size_t count) {
  selection().assign(keys, keys + count);
}

}  // extern "C"
