// slot.h: a value of the dynamic mode: a tensor, a sequence of tensors, or an optional of either.
#pragma once

#include <memory>
#include <vector>

#include "program/kernel_api.h"
#include "session/blocks.h"

namespace opforge::session {

struct Item {
  Tensor tensor;
  BlockRef memory;  // empty = the file's or the caller's
};

// Shared by the values that hold it; changed in place only by its one holder. What its list takes is charged
// to the pool of the run, so that a limit of memory holds for sequences of nothing, too.
struct Sequence {
  Sequence() = default;
  Sequence(const Sequence& other) : items(other.items) {}
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence() {
    if (pool != nullptr) pool->charge(-charged);
  }
  std::vector<Item> items;
  BlockPool* pool = nullptr;
  int64_t charged = 0;
};

// An empty optional has neither a tensor nor a sequence.
struct Slot : Item {
  std::shared_ptr<Sequence> sequence;
  bool empty() const { return !tensor.present() && sequence == nullptr; }
};

}  // namespace opforge::session
