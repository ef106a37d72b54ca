// torch_cuda.h: PyTorch's CUDA side, for both routes: the current stream, the device guard, scratch memory.
// Its functions are looked up in the libtorch_cuda.so of this process, so that neither route needs a PyTorch
// with CUDA to be built or loaded.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "common/context.h"
#include "common/failure.h"

namespace opforge::torch_host {

using namespace adapter;  // NOLINT: what every adapter shares

// Where the library lies; set before the first CUDA tensor comes.
inline std::string& libtorch_cuda() {
  static std::string path;
  return path;
}

class Cuda {
 public:
  int32_t (*aoti_torch_get_current_cuda_stream)(int32_t device, void** stream) = nullptr;
  int32_t (*aoti_torch_create_cuda_guard)(int32_t device, void** guard) = nullptr;
  int32_t (*aoti_torch_delete_cuda_guard)(void* guard) = nullptr;

  // Looked up on the first call, that of the first CUDA tensor; raises where they are not there.
  static const Cuda& instance(const std::string& where) {
    static const Cuda table;
    if (table.missing_.empty()) return table;
    throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "this PyTorch cannot launch kernels on CUDA",
                  "a PyTorch with CUDA, 2.10 or newer", table.missing_,
                  "install a PyTorch that is built with CUDA");
  }

 private:
  Cuda() {
    void* library = ::dlopen(libtorch_cuda().c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) library = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
      missing_ = "no libtorch_cuda.so is loaded";
      return;
    }
    look_up(library, aoti_torch_get_current_cuda_stream, "aoti_torch_get_current_cuda_stream");
    look_up(library, aoti_torch_create_cuda_guard, "aoti_torch_create_cuda_guard");
    look_up(library, aoti_torch_delete_cuda_guard, "aoti_torch_delete_cuda_guard");
  }

  template <class Function>
  void look_up(void* library, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    if (function == nullptr) missing_ = std::string("its libtorch_cuda.so has no ") + name;
  }

  std::string missing_;
};

// While it lives, a CUDA device is the current one; `stream` is PyTorch's current stream there.
class CudaScope {
 public:
  void* stream = nullptr;

  CudaScope(int32_t device, const std::string& where) : cuda_(Cuda::instance(where)) {
    if (cuda_.aoti_torch_create_cuda_guard(device, &guard_) != 0) fail(device, where, "the device");
    if (cuda_.aoti_torch_get_current_cuda_stream(device, &stream) != 0) {
      leave();
      fail(device, where, "its current stream");
    }
  }
  ~CudaScope() { leave(); }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  void leave() { static_cast<void>(cuda_.aoti_torch_delete_cuda_guard(guard_)); }
  [[noreturn]] static void fail(int32_t device, const std::string& where, const char* what) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, where, std::string("PyTorch gives no access to ") + what,
                  "a device that works", "cuda:" + std::to_string(device),
                  "PyTorch has written why to the standard error stream");
  }

  const Cuda& cuda_;
  void* guard_ = nullptr;
};

// A call on a CUDA device: what its context has that one on the CPU has not. Scratch memory is PyTorch's,
// from its caching allocator on the current stream: it goes back there when the kernels are launched, and
// whoever gets it next on that stream runs after them. Maker: block(bytes, device) gives a Block, an owner of
// memory, and address(block) where it lies.
template <class Maker>
class CudaCall {
 public:
  CudaCall(int32_t device, const std::string& where) : scope_(device, where), device_(device) {}

  void prepare(opforge_context* context) {
    context->device = {OPFORGE_DEVICE_CUDA, device_};
    context->stream = scope_.stream;
    context->host = this;
    context->scratch = &scratch;
  }

 private:
  using Block = decltype(Maker::block(int64_t{}, int32_t{}));

  static void* scratch(opforge_context* context, size_t bytes, size_t alignment) {
    CudaCall& self = *static_cast<CudaCall*>(context->host);
    if (alignment == 0) alignment = 1;
    constexpr auto kMost = static_cast<size_t>(std::numeric_limits<int64_t>::max());
    if (alignment > kMost / 2 || bytes > kMost / 2) return nullptr;
    // PyTorch's blocks begin at multiples of 512.
    const size_t more = alignment > 512 ? alignment : 0;
    try {
      self.blocks_.push_back(Maker::block(static_cast<int64_t>(bytes + more + (bytes == 0)), self.device_));
    } catch (const std::exception&) {
      return nullptr;  // the kernel says that there is no memory
    }
    const auto address = reinterpret_cast<uintptr_t>(Maker::address(self.blocks_.back()));
    return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
  }

  CudaScope scope_;  // goes last: memory is given back while its device is current
  int32_t device_;
  std::vector<Block> blocks_;
};

}  // namespace opforge::torch_host
