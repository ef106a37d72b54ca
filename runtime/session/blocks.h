// blocks.h: memory of the dynamic mode: blocks with a count of references, kept for reuse when the count is
// zero. One run uses a pool at a time, so nothing here is atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace opforge::session {

class BlockPool;

struct Block {
  BlockPool* pool;
  Block* next;    // free list
  int64_t bytes;  // behind the header
  int32_t references;
  int32_t size_class;
  std::shared_ptr<void>* foreign;  // memory that a library's kernel gave
};

class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(Block* block) : block_(block) {}  // takes over one reference
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->references;
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef() {
    if (block_ != nullptr && --block_->references == 0) release();
  }
  explicit operator bool() const { return block_ != nullptr; }
  void* data() const;
  int64_t bytes() const { return block_->bytes; }
  // Nobody else holds it.
  bool alone() const { return block_ != nullptr && block_->references == 1; }

 private:
  void release();
  Block* block_ = nullptr;
};

// Free blocks by size class, four classes per power of two. What is kept idle stays below what was in use at
// one time.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() { trim(); }

  // Aligned to 64; null without memory.
  BlockRef get(int64_t bytes);
  BlockRef wrap(std::shared_ptr<void> foreign);
  // Of blocks in use, and of what else was charged.
  int64_t live_bytes() const { return live_ + charged_; }
  int64_t idle_bytes() const { return idle_; }
  void charge(int64_t bytes) { charged_ += bytes; }
  // A new run begins.
  void restart() { peak_ = live_; }
  // Frees all idle blocks.
  void trim();

 private:
  friend class BlockRef;
  void put(Block* block);
  static constexpr int kClasses = 256;
  static constexpr int64_t kKept = 1 << 20;  // idle bytes that are always allowed
  Block* free_[kClasses] = {};
  int64_t live_ = 0, idle_ = 0, peak_ = 0, charged_ = 0;
};

}  // namespace opforge::session
