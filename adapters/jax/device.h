// device.h: what a call on a GPU takes from XLA: its device, its stream, and memory there that lives as long
// as the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/context.h"
#include "common/small.h"
#include "jax/ffi.h"

namespace opforge::jax_host {

class Device {
 public:
  explicit Device(const ffi::CallFrame& frame) : api_(*frame.api), context_(frame.context) {}
  ~Device() {
    for (const Block& block : blocks_) {
      ffi::MemoryFree arguments{sizeof(ffi::MemoryFree), nullptr, context_, block.bytes, block.data};
      text_of(api_.free(&arguments));
    }
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Reads which device and stream the call has.
  void open(const std::string& where) {
    if (api_.size < offsetof(ffi::Api, ordinal) + sizeof(void*)) {
      throw adapter::failure(OPFORGE_STATUS_UNSUPPORTED, where, "this jaxlib does not name a call's device",
                             "XLA's interface with XLA_FFI_DeviceOrdinal_Get",
                             std::to_string(api_.version.major) + "." + std::to_string(api_.version.minor),
                             "pip install --upgrade jax");
    }
    ffi::OrdinalGet ordinal{sizeof(ffi::OrdinalGet), nullptr, context_, 0};
    check(api_.ordinal(&ordinal), where);
    ffi::StreamGet stream{sizeof(ffi::StreamGet), nullptr, context_, nullptr};
    check(api_.stream(&stream), where);
    number_ = ordinal.ordinal;
    stream_ = stream.stream;
  }
  int32_t number() const { return number_; }

  void enter(adapter::CallContext* context, int32_t device_type) {
    context->base.device = {device_type, number_};
    context->base.stream = stream_;
    context->base.scratch = &scratch;
    context->call = this;
  }

 private:
  static constexpr size_t kMostAligned = 16;  // XLA refuses to promise more
  struct Block {
    void* data;
    size_t bytes;
  };

  // The words of an error, which is freed; "" = none.
  std::string text_of(ffi::Error* error) const {
    if (error == nullptr) return {};
    ffi::ErrorMessage message{sizeof(ffi::ErrorMessage), nullptr, error, nullptr};
    api_.error_message(&message);
    std::string text = message.message == nullptr ? "XLA gives no reason" : message.message;
    ffi::ErrorDestroy destroy{sizeof(ffi::ErrorDestroy), nullptr, error};
    api_.destroy_error(&destroy);
    return text;
  }
  void check(ffi::Error* error, const std::string& where) const {
    const std::string text = text_of(error);
    if (!text.empty()) throw adapter::failure(OPFORGE_STATUS_INTERNAL, where, text);
  }

  static void* scratch(opforge_context* context, size_t bytes, size_t alignment) {
    Device& self = *static_cast<Device*>(adapter::context_functions::whole(context).call);
    if (bytes == 0) bytes = 1;
    if (alignment == 0) alignment = 1;
    if (alignment > kMostAligned) bytes += alignment;
    ffi::MemoryAllocate arguments{sizeof(ffi::MemoryAllocate),
                                  nullptr,
                                  self.context_,
                                  bytes,
                                  alignment > kMostAligned ? kMostAligned : alignment,
                                  nullptr};
    if (!self.text_of(self.api_.allocate(&arguments)).empty() || arguments.data == nullptr) return nullptr;
    self.blocks_.push_back({arguments.data, bytes});
    const uintptr_t start = reinterpret_cast<uintptr_t>(arguments.data);
    return reinterpret_cast<void*>((start + alignment - 1) / alignment * alignment);
  }

  const ffi::Api& api_;
  ffi::Context* const context_;
  int32_t number_ = 0;
  void* stream_ = nullptr;
  adapter::Small<Block, 4> blocks_;
};

}  // namespace opforge::jax_host
