// kernels.cpp: loads a formula's kernels once per context of the driver, and launches them.
#include "launcher/kernels.h"

#include <stdio.h>
#include <string.h>

#include <memory>
#include <new>

#include "launcher/driver.h"

namespace opforge::launcher {
namespace {

// Loading is not for streams that are being captured, but takes no part in what they record: the thread's
// mode lets it pass, as CUDA's runtime does for kernels of its own.
class Uncaptured {
 public:
  explicit Uncaptured(const Driver& driver) : driver_(driver) { exchange(); }
  ~Uncaptured() { exchange(); }
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

 private:
  void exchange() {
    if (driver_.exchange_capture_mode != nullptr) static_cast<void>(driver_.exchange_capture_mode(&mode_));
  }
  const Driver& driver_;
  int mode_ = kRelaxed;
};

class LoadedKernels : public cuda::Call {
 public:
  LoadedKernels(opforge_context* context, int64_t elements, const Kernel& kernel)
      : Call(context), kernel_(kernel) {
    if (elements > 0) ready_ = enter();
  }
  ~LoadedKernels() {
    void* popped = nullptr;
    if (pushed_) static_cast<void>(driver_->pop(&popped));
  }

  int most_threads(cuda::FormulaKernel which) {
    int most = 0;
    return driver_->function_attribute(&most, kThreadsOfBlock, loaded_->functions[which]) == 0 ? most : 0;
  }
  void values(cuda::FormulaKernel which, cuda::Grid grid, const cuda::Space& space, uint32_t wanted) {
    launch(which, grid, space, wanted);
  }
  void partial(cuda::FormulaKernel which, cuda::Grid grid, const cuda::Space& space, int output,
               const cuda::Parts& parts, void* sums) {
    launch(which, grid, space, output, parts, sums);
  }
  void combine(cuda::FormulaKernel which, cuda::Grid grid, const cuda::Space& space, int operand,
               const cuda::Parts& parts, const void* sums) {
    launch(which, grid, space, operand, parts, sums);
  }
  opforge_status finish() { return status_; }

 private:
  template <class... Parameters>
  void launch(cuda::FormulaKernel which, cuda::Grid grid, const Parameters&... parameters) {
    if (status_ != OPFORGE_STATUS_OK) return;
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
    ok(driver_->launch(loaded_->functions[which], grid.blocks, 1, 1, grid.threads, 1, 1, 0, context_->stream,
                       addresses, nullptr));
  }

  bool enter() {
    if (!is_for_cuda()) return false;
    const char* reason = "";
    int status = 0;
    driver_ = driver(&reason, &status);
    if (driver_ == nullptr) return refuse(OPFORGE_STATUS_UNSUPPORTED, reason);
    int device = 0, of_current = -1;
    void* current = nullptr;
    if (!ok(status) || !ok(driver_->device(&device, context_->device.id)) || !ok(driver_->current(&current)))
      return false;
    // The context of the host's thread where it is one of the call's device, as CUDA's runtime has it.
    if (current != nullptr && !ok(driver_->current_device(&of_current))) return false;
    if (current == nullptr || of_current != device) {
      if (!primary(device, &current) || !ok(driver_->push(current))) return false;
      pushed_ = true;
    }
    unsigned long long id = 0;
    if (driver_->context_id != nullptr && !ok(driver_->context_id(current, &id))) return false;
    loaded_ = known(current, id);
    return loaded_ != nullptr || load(device, current, id);
  }

  // The device's primary context, which is kept for the process.
  bool primary(int device, void** context) {
    constexpr int kMost = 64;
    static std::atomic<void*> kept[kMost];
    const bool keeps = device >= 0 && device < kMost;
    *context = keeps ? kept[device].load(std::memory_order_acquire) : nullptr;
    if (*context != nullptr) return true;
    if (!ok(driver_->retain_primary(context, device))) return false;
    if (keeps) kept[device].store(*context, std::memory_order_release);
    return true;
  }

  const Loaded* known(void* context, unsigned long long id) const {
    const Loaded* at = kernel_.loaded.load(std::memory_order_acquire);
    while (at != nullptr && (at->context != context || at->id != id)) at = at->next;
    return at;
  }

  bool load(int device, void* context, unsigned long long id) {
    int major = 0, minor = 0;
    if (!ok(driver_->device_attribute(&major, kCapabilityMajor, device)) ||
        !ok(driver_->device_attribute(&minor, kCapabilityMinor, device)))
      return false;
    const int capability = 10 * major + minor;
    if (!has_code(kernel_.architectures, capability)) return false;
    const std::lock_guard<std::mutex> lock(kernel_.loading);
    loaded_ = known(context, id);
    if (loaded_ != nullptr) return true;
    std::unique_ptr<Loaded> made(new (std::nothrow) Loaded{context, id, {}, kernel_.loaded.load()});
    if (made == nullptr) return refuse(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for a kernel's functions");
    const Image* image = best(capability);
    if (image == nullptr)
      return refuse(OPFORGE_STATUS_INTERNAL, "the library lists an architecture that it has no code of");
    const Uncaptured loading(*driver_);
    void* module = nullptr;
    if (!load(image->data, &module)) return false;
    if (!find(module, made.get())) {
      static_cast<void>(driver_->unload(module));  // the next call tries again, and may find memory
      return false;
    }
    loaded_ = made.get();
    kernel_.loaded.store(made.release(), std::memory_order_release);
    return true;
  }

  bool find(void* module, Loaded* made) {
    for (size_t k = 0; k < kernel_.names.size(); ++k) {
      if (!ok(driver_->function(&made->functions[k], module, kernel_.names[k]))) return false;
      if (driver_->load_function != nullptr && !ok(driver_->load_function(made->functions[k]))) return false;
    }
    return true;
  }

  // Machine code for the newest architecture that serves the device, else the newest PTX.
  const Image* best(int capability) const {
    const Image* found = nullptr;
    for (const Image& image : kernel_.images) {
      const bool is_ptx = strncmp(image.architecture, "compute_", 8) == 0;
      const bool has_code = found != nullptr && strncmp(found->architecture, "sm_", 3) == 0;
      if (cuda::serves(image.architecture, capability) && !(is_ptx && has_code)) found = &image;
    }
    return found;
  }

  bool load(const void* image, void** module) {
    char log[512] = "";
    const int kinds[] = {kErrorLog, kErrorLogBytes};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    const int status = driver_->load(module, image, 2, kinds, values);
    if (status == 0 || log[0] == 0) return ok(status);
    log[sizeof log - 1] = 0;
    fail(status, log);
    return false;
  }

  bool ok(int status) {
    if (status != 0) fail(status, nullptr);
    return status == 0;
  }
  void fail(int status, const char* words) {
    if (status_ != OPFORGE_STATUS_OK) return;
    const char *name = nullptr, *text = words;
    static_cast<void>(driver_->error_name(status, &name));
    if (text == nullptr) static_cast<void>(driver_->error_text(status, &text));
    status_ = cuda::fail(context_, status, name != nullptr ? name : "an unknown error",
                         text != nullptr ? text : "", kernel_.architectures,
                         status == cuda::kDriverTooOld ? "no GPU: the NVIDIA driver does not start: " : "");
  }

  const Kernel& kernel_;
  const Driver* driver_ = nullptr;
  const Loaded* loaded_ = nullptr;
  bool pushed_ = false;
};

}  // namespace

opforge_status run(opforge_context* context, const opforge_arguments* inputs,
                   const opforge_arguments* outputs, const opforge_attribute* attributes) {
  const auto* tuning = static_cast<const opforge_tuning*>(context->kernel_data);
  if (tuning == nullptr)
    return cuda::fail(
        context, OPFORGE_STATUS_INTERNAL,
        "the host says not which kernel it calls: opforge_kernel.data goes to context->kernel_data");
  const Kernel& kernel = *static_cast<const Kernel*>(tuning);
  return cuda::run_formula<LoadedKernels>(kernel.formula, context, inputs, outputs, attributes, kernel);
}

}  // namespace opforge::launcher
