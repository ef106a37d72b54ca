// arena.h: one block of memory for a run, aligned, on huge pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Grows to at least `bytes`; the contents are lost then. False = out of memory.
  bool reserve(size_t bytes);
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Counts growths, so that users of the memory can tell that it moved.
  uint64_t generation() const { return generation_; }
  // Who used it last: another one's bytes lie in it since.
  const void* user = nullptr;

 private:
  void release();
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace opforge
