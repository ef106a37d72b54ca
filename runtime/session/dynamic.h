// dynamic.h: runs a program whose shapes depend on data: node by node, each output placed when its shape is
// known.
#pragma once

#include <memory>
#include <vector>

#include "session/context.h"

namespace opforge::session {

class DynamicRun {
 public:
  DynamicRun(const Model& model, Profile* profile, Error* error);

  // inputs: dense tensors with data, one per input of the model.
  Status run(const Tensor* inputs);
  // After run(): output k of the model, alive as long as this object.
  const Tensor& output(int32_t k) const;

 private:
  struct Slot {
    Tensor tensor;
    std::shared_ptr<void> memory;  // empty = the file's or the caller's
  };
  Status graph(uint32_t g);
  Status node(uint32_t n);
  Status kernel_node(uint32_t n);
  Status if_node(uint32_t n);
  Status loop_node(uint32_t n);
  Status allocate(Slot* slot);
  Status assign(int32_t value, const Slot& slot);
  Status scan_output(std::vector<Slot>* rows, Slot* result);
  bool scalar(int32_t value, int64_t* number) const;

  const Model& model_;
  const Program& program_;
  Profile* profile_;
  Error* error_;
  std::vector<Slot> slots_;  // one per value
};

}  // namespace opforge::session
