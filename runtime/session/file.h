// file.h: the bytes of a .bin, mapped or copied, and the lazy verification of its weights.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "program/program.h"

namespace opforge::session {

class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes();

  Status map(const char* path, Error* error);
  Status read(const char* path, Error* error);
  // Borrows the caller's bytes, or copies them when asked to or when they are not aligned.
  Status borrow(const void* bytes, size_t size, bool copy, Error* error);

  const void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Status allocate(size_t size, Error* error);
  void* data_ = nullptr;
  size_t size_ = 0;
  enum { kNone, kMapped, kOwned } kind_ = kNone;
};

// Which blocks of the weights have been found good. Shared by all threads.
class Weights {
 public:
  Status start(const format::File& file, Error* error);
  // Verifies the blocks under [offset, offset + size) that were not verified before.
  Status check(uint64_t offset, uint64_t size, Error* error);
  Status check_all(int32_t threads, Error* error);
  bool all_checked() const { return unchecked_.load(std::memory_order_relaxed) == 0; }

 private:
  const format::File* file_ = nullptr;
  std::unique_ptr<std::atomic<int32_t>[]> good_;  // bytes would need libatomic on riscv64
  std::atomic<int64_t> unchecked_{0};
  uint32_t blocks_ = 0;
};

}  // namespace opforge::session
