// api.h: the functions of LiteRT's C API that the adapter calls, and the structs that it reads, in our own
// declarations. They are looked up by name, so one binary serves every LiteRT since 2.2.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "common/failure.h"

namespace opforge::litert_host {

struct Options;
struct TensorBuffer;

enum Status : int32_t { kOk = 0, kInvalidArgument = 1, kRuntimeFailure = 3 };
enum LockMode : int32_t { kRead = 0, kWrite = 1 };

inline constexpr int32_t kMaxRank = 8;

struct Layout {
  uint32_t bits;  // rank in the lower 7, then one that says whether there are strides
  int32_t dims[kMaxRank];
  uint32_t strides[kMaxRank];

  int32_t rank() const { return static_cast<int32_t>(bits & 127u); }
};
static_assert(sizeof(Layout) == 68, "LiteRtLayout");

struct TensorType {
  int32_t element_type;
  Layout layout;
};
static_assert(sizeof(TensorType) == 72, "LiteRtRankedTensorType");

// LiteRT heeds no status that these return, and calls one set for all nodes of one name.
struct CustomKernel {
  int32_t (*init)(void* user, const void* options, size_t size);
  int32_t (*output_layouts)(void* user, size_t inputs, const Layout*, size_t outputs, Layout*);
  int32_t (*run)(void* user, size_t inputs, TensorBuffer* const*, size_t outputs, TensorBuffer**);
  int32_t (*destroy)(void* user);
};

// name behind LiteRt, result, arguments
#define OPFORGE_LITERT_API(X)                                                                       \
  X(AddCustomOpKernelOption, int32_t, (Options*, const char*, int32_t, const CustomKernel*, void*)) \
  X(GetTensorBufferTensorType, int32_t, (TensorBuffer*, TensorType*))                               \
  X(GetTensorBufferSize, int32_t, (TensorBuffer*, size_t*))                                         \
  X(LockTensorBuffer, int32_t, (TensorBuffer*, void**, int32_t))                                    \
  X(UnlockTensorBuffer, int32_t, (TensorBuffer*))

struct Api {
#define OPFORGE_LITERT_ROW(name, result, arguments) result(*name) arguments = nullptr;
  OPFORGE_LITERT_API(OPFORGE_LITERT_ROW)
#undef OPFORGE_LITERT_ROW

  // library: a handle of dlopen, or NULL for what the process has loaded globally.
  void load(void* library) {
    const auto find = [&](const char* symbol) {
      void* const found = ::dlsym(library != nullptr ? library : RTLD_DEFAULT, symbol);
      if (found == nullptr) {
        throw adapter::failure(OPFORGE_STATUS_UNSUPPORTED, "opforge", "this LiteRT is too old",
                               "2.2 or newer", std::string("no function ") + symbol,
                               "pip install --upgrade ai-edge-litert");
      }
      return found;
    };
#define OPFORGE_LITERT_ROW(name, result, arguments) \
  name = reinterpret_cast<result(*) arguments>(find("LiteRt" #name));
    OPFORGE_LITERT_API(OPFORGE_LITERT_ROW)
#undef OPFORGE_LITERT_ROW
  }
};

inline Api& api() {
  static Api all;
  return all;
}

}  // namespace opforge::litert_host
