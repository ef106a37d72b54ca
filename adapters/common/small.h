// small.h: a growing array whose first N elements need no heap; a call of an operator touches a handful of
// them.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

namespace opforge::adapter {

template <class T, size_t N>
class Small {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "plain data only");

 public:
  Small() : data_(reinterpret_cast<T*>(inline_)) {}  // elements come to be with their values
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;

  size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }

  void push_back(const T& value) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = value;
  }
  // New elements are zero.
  void resize(size_t size) {
    if (size > capacity_) grow(size);
    if (size > size_) std::memset(static_cast<void*>(data_ + size_), 0, (size - size_) * sizeof(T));
    size_ = size;
  }
  void clear() { size_ = 0; }

 private:
  void grow(size_t least) {
    size_t capacity = capacity_ * 2;
    if (capacity < least) capacity = least;
    std::unique_ptr<T[]> larger(new T[capacity]);
    std::memcpy(static_cast<void*>(larger.get()), data_, size_ * sizeof(T));
    heap_ = std::move(larger);
    data_ = heap_.get();
    capacity_ = capacity;
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  std::unique_ptr<T[]> heap_;
  T* data_;
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace opforge::adapter
