// bump.h: hands out pieces of memory that the caller owns; nothing is given back singly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace opforge {

class Bump {
 public:
  Bump(void* data, size_t size) : data_(static_cast<uint8_t*>(data)), size_(size) {}
  // Zeroed memory, or null when the rest does not suffice.
  void* take(size_t bytes, size_t alignment = 16) {
    const size_t misfit = (reinterpret_cast<uintptr_t>(data_) + used_) % alignment;
    const size_t gap = misfit == 0 ? 0 : alignment - misfit;
    if (gap > size_ - used_ || bytes > size_ - used_ - gap) return nullptr;
    void* result = data_ + used_ + gap;
    used_ += gap + bytes;
    return std::memset(result, 0, bytes);
  }
  template <class T>
  T* array(size_t count) {
    return static_cast<T*>(take(count * sizeof(T), alignof(T)));
  }
  size_t used() const { return used_; }

 private:
  uint8_t* data_;
  size_t size_;
  size_t used_ = 0;
};

}  // namespace opforge
