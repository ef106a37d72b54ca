// tensorrt.cpp: a library of plugins for TensorRT, in the form that IPluginRegistry::loadLibrary and
// trtexec --dynamicPlugins take. It knows no operator: those that the kernel libraries beside it and in the
// folders of OPFORGE_LIBRARY_PATH have CUDA kernels for become plugins.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/libraries.h"
#include "tensorrt/plugin.h"

// What a package's file defines: the kernel library beside this one.
#ifndef OPFORGE_TENSORRT_LIBRARY
#define OPFORGE_TENSORRT_LIBRARY ""
#endif

namespace opforge::tensorrt_host {
namespace {

bool has_cuda(const opforge_operator* table) {
  for (int32_t k = 0; k < table->n_kernels; ++k) {
    if (table->kernels[k]->device_type == OPFORGE_DEVICE_CUDA) return true;
  }
  return false;
}

// TensorRT keeps pointers to creators, which keep pointers to definitions; nothing here is ever freed.
struct Plugins {
  std::map<std::string, std::unique_ptr<Definition>> definitions;  // by key
  std::vector<std::unique_ptr<Creator>> creators;
  std::vector<nvinfer1::IPluginCreatorInterface*> all;

  Plugins() {
    const auto define = [&](const opforge_operator* table) { told(0, [&] { return add(table); }); };
    const std::string beside = folder() + OPFORGE_TENSORRT_LIBRARY;
    if (beside.back() != '/') define_library(beside, "tensorrt", define);
    define_libraries("tensorrt", define);
    if (definitions.empty()) {
      say(failure(OPFORGE_STATUS_NOT_FOUND, "tensorrt", "no plugin: no library with CUDA kernels was found",
                  beside + ", or libraries in the folders of OPFORGE_LIBRARY_PATH", "",
                  "opforge build PACKAGE --device cuda makes one")
              .text);
    }
    for (const auto& [key, definition] : definitions) {
      creators.push_back(std::make_unique<Creator>(*definition));
      all.push_back(creators.back().get());
    }
  }

  int add(const opforge_operator* table) {
    if (!has_cuda(table)) return 0;
    auto definition = std::make_unique<Definition>(table);
    if (definition->data_dependent) return 0;
    auto& known = definitions[definition->key];
    if (known == nullptr) {
      known = std::move(definition);
      return 1;
    }
    merge(*known, *definition, definition->key, "TensorRT");
    return 0;
  }

  static std::string folder() {
    Dl_info info{};
    const auto here = reinterpret_cast<void*>(&Plugins::folder);
    const std::string path = ::dladdr(here, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
  }
};

Plugins& plugins() {
  static Plugins* const all = new Plugins;
  return *all;
}

}  // namespace
}  // namespace opforge::tensorrt_host

extern "C" {

OPFORGE_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
  opforge::tensorrt_host::logger_finder().store(finder);
}

OPFORGE_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count) {
  auto& all = opforge::tensorrt_host::plugins().all;
  count = static_cast<int32_t>(all.size());
  return all.data();
}

// The words of this thread's last failure.
OPFORGE_EXPORT const char* opforge_tensorrt_error(void) {
  return opforge::adapter::last_failure().text.c_str();
}
}
