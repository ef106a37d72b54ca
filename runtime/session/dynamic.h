// dynamic.h: runs a program node by node, each output placed when its shape is known: programs whose shapes
// depend on data, with control flow, sequences or optionals. Values are shared by all graphs of a program, so
// a subgraph reads what it captures where it lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/context.h"
#include "session/slot.h"
#include "session/texts.h"

namespace opforge::session {

// One run at a time. Kept by the session for later runs: its memory and what it learned about shapes stay.
class DynamicRun {
 public:
  explicit DynamicRun(const Model& model);

  // Input k of the model, to be set before run(): tensors are dense, with data that lives through the run.
  Slot& input(uint32_t k) { return slots_[program_.ids[program_.graphs[0].first_input + k]]; }
  // An element of an input whose elements are strings (opforge_string): makes it a tensor of their numbers,
  // which live until reset(). name: for messages.
  Status take_strings(const Tensor& given, const std::string& name, Item* item, Error* error);
  const Texts& texts() const { return texts_; }
  // recorder: null = nobody watches.
  Status run(Recorder* recorder, Error* error);
  // After run(), until reset(): output k of the model.
  const Slot& output(uint32_t k) const { return slots_[program_.ids[program_.graphs[0].first_output + k]]; }
  // What node n read and wrote last, for reports; empty when it did not run. Valid until the next run.
  const std::vector<Tensor>& inputs_of(uint32_t n) const { return memory_[n].inputs; }
  const std::vector<Tensor>& outputs_of(uint32_t n) const { return memory_[n].outputs; }
  // Releases all values.
  void reset();

 private:
  // What a node needs at hand while it runs, and what its last infer gave: it holds while the shapes of the
  // inputs are the same, unless it looked into their data.
  struct Memory {
    std::vector<Tensor> inputs, outputs;
    std::vector<Shape> shapes;  // of the inputs, when infer ran last
    Inferred inferred;
    bool ready = false, holds = false, needs_data = false, views = false;
  };
  // Rows of a scan output, stacked while the loop runs.
  struct Stack {
    Slot rows;  // memory for some rows
    Shape row;
    int64_t count = 0, bytes = 0;  // rows there; bytes of one
  };

  Status run_all(Error* error);
  Status graph(uint32_t g);
  Status node(uint32_t n);
  Status control(uint32_t n);
  Status kernel_node(uint32_t n);
  Status plugin_node(uint32_t n, Memory* memory);
  Status infer(uint32_t n, Memory* memory);
  bool views(const NodeInfo& info, const Memory& memory) const;
  bool take_over(uint32_t n, size_t k, const Memory& memory, Slot* slot);
  Status allocate(Slot* slot);
  Status allocate_bytes(int64_t bytes, BlockRef* memory);

  // dynamic_control.cpp
  Status if_node(uint32_t n);
  Status loop_node(uint32_t n);
  Status loop_limit(uint32_t n, int64_t trip);
  Status assign(uint32_t n, int32_t value, const Slot& slot);
  Status truth(uint32_t n, int32_t value, int64_t* number);
  Status push(uint32_t n, const Slot& row, int64_t expected, Stack* stack);
  Status finish(uint32_t n, int32_t value, Stack* stack);
  void known_dimensions(int32_t value, Shape* shape) const;

  // dynamic_values.cpp
  Status value_node(uint32_t n);
  Status insert(uint32_t n);
  Status erase(uint32_t n);
  Status at(uint32_t n);
  Status split(uint32_t n);
  Status concat(uint32_t n);
  Status scalar_result(uint32_t n, int64_t number);
  Status position(uint32_t n, int32_t value, int64_t size, int64_t* position);
  std::shared_ptr<Sequence> take_sequence(uint32_t n, uint32_t input);
  Status give(uint32_t n, std::shared_ptr<Sequence> sequence);

  Error& fail(uint32_t n, Status status, const char* what) const;
  // The value, moved out of its place where nobody reads it after node n.
  Slot take(uint32_t n, int32_t value);
  bool dies(uint32_t n, int32_t value) const;

  const Model& model_;
  const Program& program_;
  Watch* watch_ = nullptr;  // of this run
  std::vector<Event> events_;
  Error* error_ = nullptr;
  BlockPool pool_;  // outlives the texts and the slots
  RunTexts texts_;
  std::vector<Slot> slots_;          // one per value
  std::vector<Memory> memory_;       // one per node
  std::vector<Shape> input_shapes_;  // of the model; of sequences nothing
};

}  // namespace opforge::session
