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

// Shared by the values that hold it; changed in place only by its one holder.
struct Sequence {
  std::vector<Item> items;
};

// An empty optional has neither a tensor nor a sequence.
struct Slot : Item {
  std::shared_ptr<Sequence> sequence;
  bool empty() const { return !tensor.present() && sequence == nullptr; }
};

}  // namespace opforge::session
