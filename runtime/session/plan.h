// plan.h: what a program does for one set of input shapes: the steps left to run and where each tensor lies.
#pragma once

#include <memory>
#include <vector>

#include "memory/planner.h"
#include "session/model.h"

namespace opforge::session {

struct Place {
  enum Kind : uint8_t { kNone, kArena, kFixed, kInput, kOutput } kind = kNone;
  int32_t index = 0;     // input or output of the session
  int64_t offset = 0;    // in the arena
  void* data = nullptr;  // kFixed: a constant of the file or of the plan
  int64_t pass = 0;      // in a stretch: bytes from the images of one pass to those of the next
  bool lane = false;     // in a stretch: each lane has its own
};

struct Step {
  uint32_t node;
  uint32_t first_tensor;  // inputs, then outputs, in Plan::tensors
  int32_t n_inputs, n_outputs;
  int64_t scratch;  // offset in the arena, -1 = none
  uint32_t first_halo, halos;
};

// A tensor whose halo must be zero before its step runs. Where no other buffer ever lies on its memory, once
// is enough.
struct Halo {
  uint32_t tensor;
  bool every_run;
  int64_t copies, apart;  // in a stretch: one for each pass or lane, and the bytes between them
};

// Steps that run a few images at a time, all steps before the next images, so that what one makes is in cache
// when the next reads it. Lanes work on different images at the same time, each with memory of its own.
struct Stretch {
  uint32_t first_step, steps;
  uint32_t first_tensor, tensors;
  int64_t passes, lane_bytes;
  int32_t lanes;
};

struct Copy {  // an output of the model that is no buffer of its own
  Tensor tensor;
  Place from;
  int32_t output;
};

struct PlacedBuffer {  // for reports; first and last are nodes
  bool scratch = false;
  int32_t id = 0, values = 0, first = 0, last = 0;
  int64_t offset = 0, bytes = 0;
};

struct Plan {
  std::vector<Shape> inputs;
  std::vector<Tensor> tensors;  // data set where it is fixed
  std::vector<Place> places;    // one per tensor
  std::vector<Step> steps;
  std::vector<Stretch> stretches;
  std::vector<Halo> halos;
  std::vector<Copy> copies;
  std::vector<Tensor> outputs;             // dtype and shape of each output of the model
  std::vector<format::PlanEntry> entries;  // as the plan section of a file has them
  int64_t arena_bytes = 0, live_bytes = 0;
  int32_t views = 0, in_place = 0;
  std::vector<PlacedBuffer> buffers;
  std::vector<std::unique_ptr<uint8_t[]>> constants;  // results computed while planning
};

// Sets *dynamic (and returns OK) when a shape depends on data, so that no plan exists.
Status make_plan(const Model& model, const std::vector<Shape>& inputs, std::unique_ptr<Plan>* plan,
                 bool* dynamic, Error* error);

// Zeroes the pixels around the image.
void clear_halo(const Tensor& tensor);

// Shared by planning and dynamic runs: calls infer of a kernel or a plugin, checks what it gives against the
// file.
struct Inferred {
  InferContext context;
  bool needs_data = false;  // an input's values are needed and not known
};
// threads: of the run that it is for. texts: its texts, null in planned runs.
Status infer_node(const Model& model, uint32_t node, const Tensor* inputs, Tensor* outputs, int32_t threads,
                  Inferred* result, Error* error, const Texts* texts = nullptr);
// What kernels call while they run: host is the Error.
void serve(RunContext* context);
// Runs a node on the calling thread or the pool. scratch: context.scratch_bytes, aligned to 64.
Status run_node(const Model& model, uint32_t node, const Tensor* inputs, Tensor* outputs, void* scratch,
                int32_t threads, Error* error, Texts* texts = nullptr);
// Dtype and layout of a value as the file has them; rank -1.
Tensor declared(const Model& model, int32_t value);

}  // namespace opforge::session
