// session.h: a model with its plans and contexts; safe to share between threads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "opforge/runtime.h"
#include "session/context.h"
#include "session/dynamic.h"

namespace opforge::session {

// Where the caller's outputs come from.
struct Outputs {
  // Returns memory for output k of the model, or null with the error set.
  virtual void* give(int32_t output, const Tensor& tensor, size_t bytes, Error* error) = 0;

 protected:
  ~Outputs() = default;
};

// One input of a run: one tensor, those of a sequence, or an optional that may be empty.
struct Given {
  bool empty = false;
  const Tensor* tensors = nullptr;
  size_t count = 0;
};

// One output of a run with memory of its own.
struct Result {
  bool empty = false;
  std::vector<Tensor> tensors;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory;
};

// Appends a copy of a tensor of strings, whose elements become opforge_string.
Status give_strings(const Tensor& from, const Texts& texts, Result* result, Error* error);

// One input or output as the C API shows it.
struct ValueText {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> dimensions;
  std::vector<const char*> dimension_texts;
  opforge_value_info info = {};
};

class Session {
 public:
  Status open(const char* path, const Options& options, Error* error);
  Status open(const void* bytes, size_t size, const Options& options, Error* error);

  // inputs: dense, with data, one per input of the model, shape and dtype not yet checked.
  Status run(const Tensor* inputs, Outputs* outputs, Error* error);

  // Runs any model: one Given per input of the model, not yet checked.
  Status run_values(const Given* inputs, std::vector<Result>* results, Error* error);
  // False when an input or output is a sequence, an optional, or has strings.
  bool takes_tensors() const { return takes_tensors_; }

  // Makes the plan for these shapes (only dtype and shape are read).
  Status prepare(const Tensor* inputs, Error* error);

  const Model& model() const { return model_; }
  const std::vector<ValueText>& inputs() const { return inputs_; }
  const std::vector<ValueText>& outputs() const { return outputs_; }
  const std::vector<std::string>& metadata() const { return metadata_; }  // key, value, key, value ...
  Recorder& recorder() { return recorder_; }
  void node_time(uint32_t node, opforge_node_time* time);
  // Inputs, then outputs of a node in the plan or run used last (in a stretch: of one pass); empty when it is
  // not executed.
  std::vector<Tensor> node_tensors(uint32_t node);
  void statistics(opforge_session_statistics* statistics);
  // The plan used last; null when there is none.
  std::shared_ptr<const Plan> last_plan();

 private:
  static constexpr size_t kMaxPlans = 16;
  struct Entry {
    std::vector<Shape> inputs;
    std::shared_ptr<const Plan> plan;  // null = this set of shapes needs the dynamic mode
    std::vector<std::unique_ptr<Context>> idle;
    uint64_t used = 0;
  };
  struct Lease {
    std::shared_ptr<const Plan> plan;
    std::unique_ptr<Context> context;
    std::unique_ptr<Arena> arena;
  };
  void describe();
  Status check_input(uint32_t k, const Tensor& tensor, std::vector<int64_t>* symbols, Error* error) const;
  Status check_inputs(const Tensor* inputs, Error* error) const;
  Entry* find(const Tensor* inputs);
  Status lease(const Tensor* inputs, Lease* lease, bool* dynamic, Error* error);
  void give_back(Lease* lease);
  Status run_planned(const Tensor* inputs, Outputs* outputs, Lease* lease, Error* error);
  Status run_dynamic(const Tensor* inputs, Outputs* outputs, Error* error);
  Status check_given(uint32_t k, const Given& given, std::vector<int64_t>* symbols, Error* error) const;
  std::unique_ptr<DynamicRun> borrow_dynamic();
  void give_back(std::unique_ptr<DynamicRun> run);
  Recorder* watched() { return recorder_.wanted() ? &recorder_ : nullptr; }

  Model model_;
  std::vector<ValueText> inputs_, outputs_;
  std::vector<std::string> metadata_;
  Recorder recorder_;
  std::vector<std::string> node_texts_;  // domain, operator, first output of each node
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Arena>> arenas_;         // idle
  std::vector<std::unique_ptr<DynamicRun>> dynamics_;  // idle
  std::shared_ptr<const Plan> last_;
  bool last_dynamic_ = false, takes_tensors_ = true;
  uint64_t clock_ = 0;
};

}  // namespace opforge::session
