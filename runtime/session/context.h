// context.h: one run at a time of one plan: tensors bound to an arena and to the caller's buffers. No heap in
// run().
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "memory/arena.h"
#include "session/plan.h"

namespace opforge::session {

// Sums of run times per node, shared by all runs.
struct Profile {
  struct Row {
    std::atomic<int64_t> runs{0}, nanoseconds{0};
  };
  std::atomic<bool> on{false};
  std::unique_ptr<Row[]> rows;  // one per node of the program
};

class Context {
 public:
  Context(const Model& model, std::shared_ptr<const Plan> plan);

  const Plan& plan() const { return *plan_; }
  // Points the tensors into this arena; cheap when it is the one of last time.
  Status bind(Arena* arena, Error* error);
  // inputs, outputs: data of each input and output of the model.
  Status run(void* const* inputs, void* const* outputs, Profile* profile, Error* error);

 private:
  struct Patch {  // a tensor on the caller's memory
    uint32_t tensor;
    int32_t index;
  };
  struct Lane {  // of a stretch: its steps with tensors of their own
    std::vector<Tensor> tensors;
    std::vector<RunContext> runs;
  };
  void prepare(const Step& step, Tensor* tensors, int32_t threads, RunContext* run) const;
  // tensors: from the one numbered `first` on. counts: whether the profile counts it as a run.
  Status step(const Step& step, RunContext* run, const Tensor* tensors, uint32_t first, bool counts,
              Profile* profile, Error* error) const;
  Status run_stretch(size_t index, Profile* profile, Error* error);
  Status run_pass(const Stretch& stretch, Lane* lane, int64_t number, int64_t pass, Profile* profile,
                  Error* error) const;

  const Model& model_;
  std::shared_ptr<const Plan> plan_;
  std::vector<Tensor> tensors_;
  std::vector<RunContext> runs_;
  std::vector<std::vector<Lane>> lanes_;  // of each stretch
  std::vector<Patch> input_patches_, output_patches_;
  const Arena* arena_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace opforge::session
