// arena.cpp: blocks of 2 MiB and more come from mmap with a hint for huge pages, which saves TLB misses in
// the strided walks of convolutions; smaller ones from the allocator.
#include "memory/arena.h"

#include <sys/mman.h>

#include <cstdlib>

namespace opforge {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

}  // namespace

Arena::~Arena() { release(); }

void Arena::release() {
  if (data_ != nullptr) {
    if (size_ >= kHuge)
      ::munmap(data_, size_);
    else
      std::free(data_);
  }
  data_ = nullptr;
  size_ = 0;
}

bool Arena::reserve(size_t bytes) {
  if (bytes <= size_ && data_ != nullptr) return true;
  release();
  ++generation_;
  if (bytes < kHuge) {
    void* data = nullptr;
    const size_t size = bytes < 64 ? 64 : bytes;
    if (::posix_memalign(&data, 64, size) != 0) return false;
    data_ = static_cast<uint8_t*>(data);
    size_ = size;
    return true;
  }
  const size_t size = (bytes + kHuge - 1) / kHuge * kHuge;
  // One huge page more, so that the block can begin at a multiple of its size; the rest is given back.
  void* raw = ::mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return false;
  const auto base = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t begin = (base + kHuge - 1) / kHuge * kHuge;
  if (begin != base) ::munmap(raw, begin - base);
  const uintptr_t end = base + size + kHuge;
  if (end != begin + size) ::munmap(reinterpret_cast<void*>(begin + size), end - begin - size);
  data_ = reinterpret_cast<uint8_t*>(begin);
  size_ = size;
#if defined(MADV_HUGEPAGE)
  ::madvise(data_, size_, MADV_HUGEPAGE);
#endif
  return true;
}

}  // namespace opforge
