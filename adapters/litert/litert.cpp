// litert.cpp: what the Python side, or a program in C, calls: open LiteRT, make operators known, make the
// kernels of one model and add them to LiteRT's options.
#include "common/libraries.h"
#include "litert/kernel.h"

namespace opforge::litert_host {
namespace {

void open(const char* path) {
  void* library = nullptr;
  if (path != nullptr && path[0] != '\0') {
    library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = ::dlerror();
      throw failure(OPFORGE_STATUS_NOT_FOUND, path, "LiteRT does not load", "", reason ? reason : "",
                    "pip install 'opforge[litert]'");
    }
  }
  api().load(library);
}

bool nothing_defined() {
  const std::lock_guard<std::mutex> guard(registry().lock);
  return registry().plans.empty();
}

void search() {
  const std::lock_guard<std::mutex> alone(registry().searching);  // who comes meanwhile needs what is found
  if (nothing_defined()) opforge::adapter::define_libraries("litert", &define);
}

}  // namespace
}  // namespace opforge::litert_host

using namespace opforge::litert_host;  // NOLINT: the C entry points below

extern "C" {

// Finds the functions of LiteRT: of this file, or of what the process has loaded (NULL).
OPFORGE_EXPORT int32_t opforge_litert_open(const char* library, char* error, size_t size) {
  return guarded(error, size, [&] { open(library); });
}

// Makes one operator of a table known to this process. A process that defines none gets those of the folders
// of OPFORGE_LIBRARY_PATH with its first kernels.
OPFORGE_EXPORT int32_t opforge_litert_define(const opforge_operator* table, char* error, size_t size) {
  return guarded(error, size, [&] { define(table); }, OPFORGE_STATUS_INTERNAL);
}

// Makes the kernels of one compiled model, for the names of its custom nodes. threads: of opforge's pool, 0 =
// all.
OPFORGE_EXPORT int32_t opforge_litert_create(const char* const* codes, size_t count, int32_t threads,
                                             Kernels** kernels, char* error, size_t size) {
  return guarded(
      error, size,
      [&] {
        search();
        auto made = std::make_unique<Kernels>();
        for (size_t k = 0; k < count; ++k) {
          made->all.push_back(std::make_unique<Kernel>(find(codes[k]), codes[k], threads, &made->failures));
        }
        *kernels = made.release();
      },
      OPFORGE_STATUS_INTERNAL);
}

// Adds them to a LiteRtOptions, from which one compiled model is made.
OPFORGE_EXPORT int32_t opforge_litert_add(const Kernels* kernels, Options* options, char* error,
                                          size_t size) {
  return guarded(error, size, [&] {
    for (const auto& kernel : kernels->all) {
      const int32_t status = api().AddCustomOpKernelOption(options, kernel->code().c_str(), 1,
                                                           &Kernel::functions(), kernel.get());
      if (status != kOk) {
        throw failure(OPFORGE_STATUS_UNSUPPORTED, kernel->code(), "LiteRT does not take the kernel", "",
                      "status " + std::to_string(status));
      }
    }
  });
}

// The first failure since the last call, and its words; 0 = all went well. LiteRT itself runs on after one.
OPFORGE_EXPORT int32_t opforge_litert_failure(Kernels* kernels, char* error, size_t size) {
  const opforge::adapter::LastFailure first = kernels->failures.take();
  if (size > 0) std::snprintf(error, size, "%s", first.text.c_str());
  return first.status;
}

// After the compiled model is destroyed.
OPFORGE_EXPORT void opforge_litert_destroy(Kernels* kernels) { delete kernels; }

}  // extern "C"
