// onnxruntime.cpp: the entry points that ONNX Runtime and the Python side call.
#include <dirent.h>
#include <dlfcn.h>

#include <cstdio>

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

// A process without Python names its kernel libraries by OPFORGE_LIBRARY_PATH, as the runtime does.
void define_library(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto entry = reinterpret_cast<opforge_library_fn>(::dlsym(library, "opforge_library_v1"));
  if (entry == nullptr) return;
  char reason[1024] = "";
  opforge_host host{};
  host.size = sizeof host;
  host.abi = OPFORGE_ABI;
  host.name = "onnxruntime";
  host.version = "";
  host.reason = reason;
  host.reason_size = sizeof reason;
  const opforge_library* const table = entry(&host);
  if (table == nullptr) {
    std::fprintf(stderr, "opforge: %s: %s\n", path.c_str(), reason);
    return;
  }
  for (int32_t k = 0; k < table->n_operators; ++k) {
    const bool gradient = (table->operators[k]->flags & OPFORGE_OPERATOR_GRADIENT) != 0;
    if (!gradient) define(table->operators[k]);
  }
}

void search_libraries() {
  const char* const variable = std::getenv("OPFORGE_LIBRARY_PATH");
  const std::string text = variable ? variable : "";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    const std::string folder = text.substr(begin, end - begin);
    begin = end + 1;
    if (folder.empty() || folder[0] != '/') continue;
    DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) continue;
    std::vector<std::string> files;
    while (const dirent* entry = ::readdir(open)) {
      const std::string name = entry->d_name;
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0)
        files.push_back(folder + "/" + name);
    }
    ::closedir(open);
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) define_library(file);
  }
}

bool nothing_defined() {
  const std::lock_guard<std::mutex> guard(registry().lock);
  return registry().definitions.empty() && !std::exchange(registry().searched, true);
}

void register_with(SessionOptions* options) {
  if (nothing_defined()) search_libraries();
  const Keys keys = std::exchange(selection(), {});
  const std::lock_guard<std::mutex> guard(registry().lock);
  if (registry().definitions.empty()) {
    throw failure(
        OPFORGE_STATUS_NOT_FOUND, "opforge", "no operator is known",
        "kernel libraries in the folders of OPFORGE_LIBRARY_PATH, or opforge.onnxruntime.library() in Python",
        "", "opforge build PACKAGE --out FOLDER makes a kernel library");
  }
  for (CustomOpDomain* domain : domains_of(chosen(keys), nullptr))
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
  return opforge::adapter::guarded(error, size, [&] { define(table); }, OPFORGE_STATUS_INTERNAL);
}

// The operators that the next registration on this thread takes; none = the newest of each.
OPFORGE_EXPORT void opforge_onnxruntime_select(const char* const* keys, size_t count) {
  selection().assign(keys, keys + count);
}

}  // extern "C"
