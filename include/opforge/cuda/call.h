// call.h: what launches are to a host: the call's tensors, its status in words, its scratch memory, and
// whether the library has code for the device. Plain C++, of launches through CUDA's runtime (launch.h) and
// through the driver alone (adapters/launcher).
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "opforge/abi.h"
#include "opforge/cuda/architectures.h"

namespace opforge {
namespace cuda {

inline opforge_status fail(opforge_context* context, opforge_status status, const char* text) {
  return context->error != nullptr ? context->error(context, status, text) : status;
}

// Errors whose status is not INTERNAL, and what a user should read before CUDA's own words. The runtime and
// the driver number them alike.
struct ErrorKind {
  int error;
  opforge_status status;
  const char* meaning;
};
constexpr int kNoMemory = 2, kDriverTooOld = 35, kNoDevice = 100, kInvalidDevice = 101, kBadImage = 200,
              kNoImage = 209, kPtxTooNew = 222;
constexpr ErrorKind kErrorKinds[] = {
    {kNoMemory, OPFORGE_STATUS_OUT_OF_MEMORY, "the GPU has no memory left: "},
    {kDriverTooOld, OPFORGE_STATUS_UNSUPPORTED, ""},  // the caller says more
    {kNoDevice, OPFORGE_STATUS_UNSUPPORTED, "no GPU: "},
    {kInvalidDevice, OPFORGE_STATUS_INVALID_ARGUMENT, "no such GPU: "},
    {kBadImage, OPFORGE_STATUS_UNSUPPORTED,
     "the driver cannot read the kernels' code (is it older than their compiler?): "},
    {kNoImage, OPFORGE_STATUS_UNSUPPORTED, "the library has no code for this GPU (it was built for "},
    {kPtxTooNew, OPFORGE_STATUS_UNSUPPORTED, "the driver is older than the compiler of the kernels: "},
};

// CUDA's error as a status, with its name, number and text. `architectures`: what the library embeds; `more`:
// what is known of the error besides.
inline opforge_status fail(opforge_context* context, int error, const char* name, const char* said,
                           const char* architectures, const char* more = "") {
  ErrorKind kind = {0, OPFORGE_STATUS_INTERNAL, ""};
  for (const ErrorKind& one : kErrorKinds) {
    if (one.error == error) kind = one;
  }
  const bool lists = error == kNoImage;
  char text[1024];
  snprintf(text, sizeof text, "%s%s%s%s%s (%d): %s", kind.meaning, lists ? architectures : "",
           lists ? "): " : "", more, name, error, said);
  return fail(context, kind.status, text);
}

// One call of an operator: what a class of launches begins with.
class Call {
 public:
  explicit Call(opforge_context* context) : context_(context) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Whether kernels are to be launched; status() is the call's otherwise.
  explicit operator bool() const { return ready_; }
  opforge_status status() const { return status_; }

  // Memory of the device until the kernels have run, or null.
  void* scratch(size_t bytes, size_t alignment = 16) {
    void* memory = context_->scratch != nullptr ? context_->scratch(context_, bytes, alignment) : nullptr;
    if (memory == nullptr)
      refuse(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory on the GPU for intermediate results");
    return memory;
  }

 protected:
  ~Call() = default;

  // The first of what goes wrong is the call's status.
  bool refuse(opforge_status status, const char* text) {
    if (status_ == OPFORGE_STATUS_OK) status_ = fail(context_, status, text);
    return false;
  }
  bool is_for_cuda() {
    return context_->device.type == OPFORGE_DEVICE_CUDA ||
           refuse(OPFORGE_STATUS_INVALID_ARGUMENT, "a CUDA kernel was called for another device");
  }
  bool has_code(const char* architectures, int capability) {
    if (serves(architectures, capability)) return true;
    char text[400];
    say_unserved(architectures, capability, text, sizeof text);
    return refuse(OPFORGE_STATUS_UNSUPPORTED, text);
  }

  opforge_context* context_;
  opforge_status status_ = OPFORGE_STATUS_OK;
  bool ready_ = false;
};

// Whether all tensors lie on the context's device; otherwise says which does not.
inline opforge_status same_device(opforge_context* context, const opforge_arguments* arguments,
                                  const char* kind) {
  for (int32_t k = 0; k < arguments->n_tensors; ++k) {
    const opforge_device is = arguments->tensors[k].device, wanted = context->device;
    if (is.type == wanted.type && is.id == wanted.id) continue;
    char text[160];
    snprintf(text, sizeof text,
             "%s %d lies on another device (type %d, number %d) than the call's (type %d, number %d)", kind,
             k, is.type, is.id, wanted.type, wanted.id);
    return fail(context, OPFORGE_STATUS_INVALID_ARGUMENT, text);
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace cuda
}  // namespace opforge
