// payload.h: reads fields one after the other, none beyond the end: what is not there reads as zero, and is
// remembered.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace opforge::launcher {

class Payload {
 public:
  Payload(const char* data, size_t size) : begin_(data), at_(data), end_(data + size) {}

  bool ok() const { return ok_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  void require(bool holds) {
    if (!holds) fail();
  }

  // So many bytes, or an empty string.
  const char* take(uint64_t size) {
    if (size > left()) {
      fail();
      return "\0\0\0\0\0\0\0";
    }
    const char* taken = at_;
    at_ += size;
    return taken;
  }
  template <class T>
  T number() {
    T value = 0;
    if (sizeof value > left())
      fail();
    else
      memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  // How many follow, of `bytes` each at least.
  uint32_t count(size_t bytes, uint32_t most = 1u << 24) {
    const auto value = number<uint32_t>();
    if (value <= most && value * static_cast<uint64_t>(bytes) <= left()) return value;
    fail();
    return 0;
  }
  const char* text() {
    const auto size = number<uint32_t>();
    const char* taken = take(uint64_t{size} + 1);
    if (!ok_ || taken[size] != 0) fail();
    return ok_ ? taken : "";
  }
  void align(size_t to) {
    const size_t past = static_cast<size_t>(at_ - begin_) % to;
    if (past != 0) take(to - past);
  }

 private:
  void fail() {
    ok_ = false;
    at_ = end_;
  }
  const char *begin_, *at_, *end_;
  bool ok_ = true;
};

// As zlib's crc32.
inline uint32_t crc32(const char* data, size_t size) {
  uint32_t table[256];
  for (uint32_t k = 0; k < 256; ++k) {
    uint32_t value = k;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1u) != 0 ? value >> 1 ^ 0xEDB88320u : value >> 1;
    table[k] = value;
  }
  uint32_t sum = ~0u;
  for (size_t k = 0; k < size; ++k) sum = table[(sum ^ static_cast<uint8_t>(data[k])) & 255u] ^ sum >> 8;
  return ~sum;
}

}  // namespace opforge::launcher
