// blocks.cpp: reuse of the dynamic mode's memory.
#include "session/blocks.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace opforge::session {
namespace {

constexpr size_t kHeader = 64;
static_assert(sizeof(Block) <= kHeader, "data behind the header is aligned to 64");

// Class 0 holds 64 bytes; the four classes of a power of two end at 5/4, 6/4, 7/4 and 8/4 of it.
int class_of(int64_t bytes) {
  if (bytes <= 64) return 0;
  const auto units = static_cast<uint64_t>(bytes - 1);  // at least 64
  const int power = 63 - __builtin_clzll(units);
  return 1 + 4 * (power - 6) + static_cast<int>((units >> (power - 2)) & 3);
}

int64_t size_of(int size_class) {
  if (size_class == 0) return 64;
  const int power = 6 + (size_class - 1) / 4, part = (size_class - 1) % 4;
  return ((int64_t{1} << power) / 4 * (5 + part) + 63) / 64 * 64;
}

}  // namespace

void* BlockRef::data() const {
  if (block_->foreign != nullptr) return block_->foreign->get();
  return reinterpret_cast<char*>(block_) + kHeader;
}

void BlockRef::release() {
  if (block_->foreign == nullptr) {
    block_->pool->put(block_);
    return;
  }
  delete block_->foreign;
  delete block_;
}

BlockRef BlockPool::get(int64_t bytes) {
  const int c = class_of(bytes);
  const int64_t size = size_of(c);
  Block* block = free_[c];
  if (block != nullptr) {
    free_[c] = block->next;
    idle_ -= size;
  } else {
    // Blocks of sizes that are no longer wanted make room.
    if (idle_ > std::max(kKept, 2 * std::max(peak_, live_ + size))) trim();
    void* memory = nullptr;
    if (::posix_memalign(&memory, 64, kHeader + static_cast<size_t>(size)) != 0) return BlockRef();
    block = new (memory) Block{this, nullptr, size, 0, c, nullptr};
  }
  live_ += size;
  peak_ = std::max(peak_, live_);
  block->references = 1;
  return BlockRef(block);
}

BlockRef BlockPool::wrap(std::shared_ptr<void> foreign) {
  return BlockRef(new Block{this, nullptr, 0, 1, -1, new std::shared_ptr<void>(std::move(foreign))});
}

void BlockPool::put(Block* block) {
  live_ -= block->bytes;
  if (idle_ + block->bytes > std::max(kKept, 2 * peak_)) trim();
  idle_ += block->bytes;
  block->next = free_[block->size_class];
  free_[block->size_class] = block;
}

void BlockPool::trim() {
  for (Block*& head : free_) {
    while (head != nullptr) {
      Block* block = std::exchange(head, head->next);
      std::free(block);
    }
  }
  idle_ = 0;
}

}  // namespace opforge::session
