// value.h: owners of what travels on the stable ABI's stack. A kernel owns its arguments: every handle goes
// into one of these before anything is checked, so that no error path leaks.
#pragma once

#include <cstring>
#include <utility>

#include "stable/shims.h"

namespace opforge::torch_host {

template <class T>
T unpack(StableValue value) {
  static_assert(sizeof(T) <= sizeof(StableValue), "stable values hold 64 bits");
  T result;
  std::memcpy(&result, &value, sizeof(T));
  return result;
}

template <class T>
StableValue pack(T value) {
  static_assert(sizeof(T) <= sizeof(StableValue), "stable values hold 64 bits");
  StableValue result = 0;
  std::memcpy(&result, &value, sizeof(T));
  return result;
}

// A tensor that we own.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Handle handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (handle_ != nullptr) shims().aoti_torch_delete_tensor_object(handle_);
  }

  Handle get() const { return handle_; }
  Handle release() { return std::exchange(handle_, nullptr); }

  // Row-major and dense.
  void densify() {
    const Shims& torch = shims();
    bool dense = false;
    torch.check(torch.aoti_torch_is_contiguous(handle_, &dense), "is_contiguous");
    if (!dense) copy("aten::contiguous");
  }
  // A dense copy at a fresh address, which PyTorch aligns to 512 bytes on CUDA.
  void move_to_new_memory() { copy("aten::clone"); }

 private:
  void copy(const char* name) {
    const Shims& torch = shims();
    // aten::contiguous(Tensor, *, MemoryFormat) and aten::clone(Tensor, *, MemoryFormat?): the second wants
    // its format as an optional, and memory for that is PyTorch's from 2.13 on; "none" keeps a dense tensor
    // dense.
    StableValue stack[2] = {pack(release()), 0};
    if (std::strcmp(name, "aten::contiguous") == 0) stack[1] = pack(torch.contiguous_format);
    torch.check(torch.torch_call_dispatcher(name, "", stack, torch.version), name);
    handle_ = unpack<Handle>(stack[0]);
  }

  Handle handle_ = nullptr;
};

class String {
 public:
  explicit String(Handle handle) : handle_(handle) {}
  String(String&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  String(const String&) = delete;
  ~String() {
    if (handle_ != nullptr) shims().torch_delete_string(handle_);
  }
  opforge_string view() const {
    const Shims& torch = shims();
    opforge_string result{nullptr, 0};
    size_t size = 0;
    torch.check(torch.torch_string_length(handle_, &size), "string_length");
    torch.check(torch.torch_string_c_str(handle_, &result.data), "string_c_str");
    result.size = static_cast<int64_t>(size);
    return result;
  }

 private:
  Handle handle_;
};

class List {
 public:
  explicit List(Handle handle) : handle_(handle) {}
  List(List&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  List(const List&) = delete;
  ~List() {
    if (handle_ != nullptr) shims().torch_delete_list(handle_);
  }
  Handle release() { return std::exchange(handle_, nullptr); }
  size_t size() const {
    size_t size = 0;
    shims().check(shims().torch_list_size(handle_, &size), "list_size");
    return size;
  }
  StableValue operator[](size_t index) const {
    StableValue value = 0;
    shims().check(shims().torch_list_get_item(handle_, index, &value), "list_get_item");
    return value;
  }

 private:
  Handle handle_;
};

// Takes the value out of an optional and frees its box; false where it is empty.
inline bool take_optional(StableValue boxed, StableValue* value) {
  auto* pointer = unpack<StableValue*>(boxed);
  if (pointer == nullptr) return false;
  *value = *pointer;
  if (shims().torch_delete_stable_ivalue != nullptr) {
    shims().torch_delete_stable_ivalue(pointer);
  } else {
    delete pointer;
  }
  return true;
}

// Boxes a value as an optional. From PyTorch 2.13 on the box is PyTorch's memory.
inline StableValue make_optional(StableValue value) {
  StableValue* box = nullptr;
  if (shims().torch_new_stable_ivalue != nullptr) {
    shims().check(shims().torch_new_stable_ivalue(&box), "new_stable_ivalue");
  } else {
    box = new StableValue;
  }
  *box = value;
  return pack(box);
}

}  // namespace opforge::torch_host
