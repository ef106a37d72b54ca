// context.h: one run at a time of one plan: tensors bound to an arena and to the caller's buffers. No heap in
// run().
#pragma once

#include <memory>
#include <vector>

#include "memory/arena.h"
#include "session/plan.h"
#include "session/watch.h"

namespace opforge::session {

class Context {
 public:
  Context(const Model& model, std::shared_ptr<const Plan> plan);

  const Plan& plan() const { return *plan_; }
  // Points the tensors into this arena; cheap when it is the one of last time.
  Status bind(Arena* arena, Error* error);
  // inputs, outputs: data of each input and output of the model. recorder: null = nobody watches.
  Status run(void* const* inputs, void* const* outputs, Recorder* recorder, Error* error);

 private:
  struct Patch {  // a tensor on the caller's memory
    uint32_t tensor;
    int32_t index;
  };
  struct Lane {  // of a stretch: its steps with tensors of their own
    std::vector<Tensor> tensors;
    std::vector<RunContext> runs;
    std::vector<Event> events;  // in watched runs
  };
  void prepare(const Step& step, Tensor* tensors, int32_t threads, RunContext* run) const;
  // Everything below exists twice: W is Watch or Unwatched.
  template <class W>
  Status run_all(void* const* inputs, void* const* outputs, W* watch, Error* error);
  // tensors: from the one numbered `first` on. counts: whether the node runs for the first time in this run.
  template <class W>
  Status step(const Step& step, RunContext* run, const Tensor* tensors, uint32_t first, bool counts, W* watch,
              Error* error) const;
  template <class W>
  Status run_stretch(size_t index, W* watch, Error* error);
  template <class W>
  Status run_pass(const Stretch& stretch, Lane* lane, int64_t number, int64_t pass, W* watch,
                  Error* error) const;
  void make_room();

  const Model& model_;
  std::shared_ptr<const Plan> plan_;
  std::vector<Tensor> tensors_;
  std::vector<RunContext> runs_;
  std::vector<std::vector<Lane>> lanes_;  // of each stretch
  std::vector<Event> events_;             // in watched runs
  std::vector<Patch> input_patches_, output_patches_;
  const Arena* arena_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace opforge::session
