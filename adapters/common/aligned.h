// aligned.h: a kernel that asks more of addresses than its host keeps runs on copies.
#pragma once

#include <cstring>

#include "common/dense.h"
#include "common/small.h"
#include "opforge/abi.h"

namespace opforge::adapter {

// Whether a tensor's first element lies at a multiple of `alignment`; 0 asks for nothing.
inline bool lies_at(const opforge_tensor& tensor, size_t alignment) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  return alignment <= 1 || address % alignment == 0;
}

// Tensors of one call for the time in which a kernel runs, at multiples of the alignment that it asks for.
class Aligned {
 public:
  Aligned(opforge_context* context, size_t alignment) : context_(context), alignment_(alignment) {}
  ~Aligned() {
    for (const Moved& one : moved_) *one.tensor = one.before;
  }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;

  // Moves those of `arguments` that lie elsewhere, with what is in them; false where there is no memory.
  bool move(const opforge_arguments& arguments, bool outputs) {
    for (int32_t k = 0; k < arguments.n_tensors; ++k) {
      if (!move_one(arguments.tensors[k], outputs)) return false;
    }
    return true;
  }

  // The same for one tensor; an output that the kernel allocates comes here when it has its address.
  bool move_one(opforge_tensor& tensor, bool output) {
    forget(&tensor);
    // What the kernel itself allocates has no address before; memory of a device is the host's to align.
    if (tensor.data == nullptr || lies_at(tensor, alignment_) || tensor.device.type != OPFORGE_DEVICE_CPU)
      return true;
    const size_t bytes = (static_cast<size_t>(element_count(tensor)) * tensor.dtype.bits + 7) / 8;
    auto* const copy = static_cast<char*>(context_->scratch(context_, bytes, alignment_));
    if (copy == nullptr) return false;
    moved_.push_back({&tensor, tensor, bytes, output});
    if (!output && tensor.strides != nullptr) {
      copy_dense(tensor, copy);
      tensor.strides = nullptr;
    } else if (!output) {
      std::memcpy(copy, static_cast<const char*>(tensor.data) + tensor.byte_offset, bytes);
    }
    tensor.data = copy;
    tensor.byte_offset = 0;
    return true;
  }

  // Writes outputs to where the host wants them.
  void write_back() const {
    for (const Moved& one : moved_) {
      if (!one.output) continue;
      std::memcpy(static_cast<char*>(one.before.data) + one.before.byte_offset, one.tensor->data, one.bytes);
    }
  }

 private:
  struct Moved {
    opforge_tensor* tensor;
    opforge_tensor before;
    size_t bytes;
    bool output;
  };

  // A kernel may allocate an output twice; the first memory is the host's again.
  void forget(const opforge_tensor* tensor) {
    for (Moved& one : moved_) {
      if (one.tensor != tensor) continue;
      one = moved_.back();
      moved_.resize(moved_.size() - 1);
      return;
    }
  }

  opforge_context* context_;
  size_t alignment_;
  Small<Moved, 4> moved_;
};

}  // namespace opforge::adapter
