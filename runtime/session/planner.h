// planner.h: makes a plan in two parts: planner.cpp infers all shapes and computes what depends on shapes
// only; placement.cpp groups values into buffers and places them; stretches.cpp finds steps that run a few
// images at a time. A buffer is a set of values on the same
// memory: an original, its views, and what is written over it.
#pragma once

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "session/plan.h"

namespace opforge::session {

struct Group {
  int64_t bytes = 0;
  int32_t first = INT_MAX, last = -1;  // steps
  Place place;
  bool absorbed = false;  // joined to another one
  int32_t lane = -1;      // the stretch in whose lanes it lies
};

inline int64_t bytes_of(const Tensor& tensor) {
  return storage_bytes(tensor.dtype, tensor.shape, tensor.layout);
}

inline bool has_halo(const Layout& layout) {
  return (layout.top | layout.left | layout.bottom | layout.right) != 0;
}

class Planner {
 public:
  Planner(const Model& model, Plan* plan, Error* error)
      : model_(model), program_(model.program()), plan_(*plan), error_(error) {
    tensors_.resize(program_.n_values);
    group_.assign(program_.n_values, -1);
  }

  Status run(bool* dynamic);

 private:
  struct Pending {  // a node that is left to run
    uint32_t node;
    int64_t scratch;
    int32_t in_place[4];
    std::vector<Tensor> inputs, outputs;  // in a stretch: of the images of one pass
    std::vector<bool> sliced = {};        // in a stretch: inputs of which a pass sees its images only
    int32_t stretch = -1;
    int64_t scratch_offset = -1;
  };
  struct Slices {         // a stretch while planning
    int32_t first, last;  // steps
    int64_t passes;
    int32_t lanes;
    std::vector<Buffer> buffers = {};  // of one lane: groups, then scratch of steps
    std::vector<int32_t> groups = {}, scratch = {};
    int64_t lane_bytes = 0, offset = 0;
  };
  Status start();
  int32_t new_group(int32_t value, Place place);
  Status infer(uint32_t n, bool* dynamic);
  uint8_t* constant_memory(int64_t bytes);
  Status fold(Pending* step, const InferContext& context);
  // A node all of whose outputs are views of inputs need not run.
  bool view(const NodeInfo& info, Pending* step, const InferContext& context);
  void lifetimes();
  // The first output on a buffer of its size becomes the caller's memory; all others are copied at the end.
  void outputs();
  // Finds stretches and gives their steps the tensors of one pass.
  void stretches();
  int64_t images_of(const Pending& step) const;
  int64_t gain_of(const Pending& step, int64_t images) const;
  bool slice(size_t first, size_t end, int64_t images);
  bool slice_step(Pending* step, int64_t images, int64_t pass, int32_t threads, std::vector<bool>* written);
  // Groups that other steps see too live while any pass runs; the others, and scratch, get a place in each
  // lane.
  Status place_lanes();
  Status overlap(int32_t a, int32_t b);
  // Joins an output to the buffer of an input that nobody reads later.
  void in_place();
  int32_t group_of(int32_t value) const;
  int32_t reads_of(const NodeInfo& info, int32_t g) const;
  Status place();
  // Takes the plan of the file, when it has one that covers these buffers and that is proven.
  bool stored(std::vector<Buffer>* buffers, const std::vector<int32_t>& owner, size_t values, int32_t* order,
              int32_t* active);
  // For reports: which values lie on each buffer, and from which node to which.
  void describe(const std::vector<Buffer>& buffers, const std::vector<int32_t>& owner);
  Place place_of(int32_t value, const Tensor& tensor) const;
  void emit(const std::vector<Buffer>& buffers);
  void add(int32_t value, const Tensor& tensor, bool sliced);
  Halo halo_of(const Pending& step, const std::vector<Buffer>& buffers) const;
  // Whether more than one buffer ever lies on these bytes.
  static bool overlaps(const std::vector<Buffer>& buffers, int64_t offset, int64_t bytes);
  Status check_weights();

  const Model& model_;
  const Program& program_;
  Plan& plan_;
  Error* error_;
  std::vector<Tensor> tensors_;  // one per value; data where known
  std::vector<int32_t> group_;   // one per value, -1 = none (constants, results of planning)
  std::vector<int32_t> into_;    // groups that were joined to another
  std::vector<int32_t> joined_;  // step at which a group took another in
  std::vector<Group> groups_;
  std::vector<Pending> pending_;
  std::vector<Slices> slices_;
  std::vector<std::pair<int32_t, int32_t>> copied_;  // value, output
};

}  // namespace opforge::session
