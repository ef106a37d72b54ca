// session_dynamic.cpp: runs in the dynamic mode, and runs of models that take or give sequences and
// optionals.
#include <cstdlib>
#include <cstring>

#include "session/session.h"

namespace opforge::session {
namespace {

// Keeps each output in memory of its own.
class ResultOutputs final : public Outputs {
 public:
  explicit ResultOutputs(std::vector<Result>* results) : results_(*results) {}
  void* give(int32_t output, const Tensor& tensor, size_t bytes, Error* error) override {
    return add(&results_[static_cast<size_t>(output)], tensor, bytes, error);
  }
  static void* add(Result* result, const Tensor& tensor, size_t bytes, Error* error) {
    void* data = nullptr;
    if (::posix_memalign(&data, 64, bytes == 0 ? 64 : bytes) != 0) {
      error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output")
          .found("%zu bytes asked for", bytes);
      return nullptr;
    }
    result->memory.emplace_back(data, std::free);
    result->tensors.push_back(tensor);
    result->tensors.back().data = data;
    return data;
  }

 private:
  std::vector<Result>& results_;
};

size_t bytes_of(const Tensor& tensor) {
  return static_cast<size_t>(storage_bytes(tensor.dtype, tensor.shape, tensor.layout));
}

const char* kind_text(int32_t kind) {
  constexpr const char* kTexts[] = {"a tensor", "a sequence", "a tensor or nothing", "a sequence or nothing"};
  return kTexts[kind];
}

}  // namespace

std::unique_ptr<DynamicRun> Session::borrow_dynamic() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!dynamics_.empty()) {
      std::unique_ptr<DynamicRun> run = std::move(dynamics_.back());
      dynamics_.pop_back();
      return run;
    }
  }
  return std::make_unique<DynamicRun>(model_);
}

void Session::give_back(std::unique_ptr<DynamicRun> run) {
  run->reset();
  std::lock_guard<std::mutex> lock(mutex_);
  dynamics_.push_back(std::move(run));
}

Status Session::run_dynamic(const Tensor* inputs, Outputs* outputs, Error* error) {
  std::unique_ptr<DynamicRun> run = borrow_dynamic();
  for (uint32_t k = 0; k < inputs_.size(); ++k) run->input(k).tensor = inputs[k];
  Status status = run->run(watched(), error);
  for (uint32_t k = 0; status == OPFORGE_STATUS_OK && k < outputs_.size(); ++k) {
    const Tensor& tensor = run->output(k).tensor;
    const size_t bytes = bytes_of(tensor);
    void* to = outputs->give(static_cast<int32_t>(k), tensor, bytes, error);
    if (to == nullptr && (bytes != 0 || error->status != OPFORGE_STATUS_OK)) status = *error;
    if (to != nullptr && bytes != 0) std::memcpy(to, tensor.data, bytes);
  }
  give_back(std::move(run));
  return status;
}

// Elements of a sequence may differ in shape, so names of dimensions mean nothing in them.
Status Session::check_given(uint32_t k, const Given& given, std::vector<int64_t>* symbols,
                            Error* error) const {
  const int32_t kind = inputs_[k].info.kind;
  const bool sequence = kind == format::kSequenceValue || kind == format::kOptionalSequenceValue;
  const bool optional = kind >= format::kOptionalValue;
  if (given.empty ? !optional : !sequence && given.count != 1) {
    error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an input is not of the model's kind")
        .at("input '%s'", inputs_[k].name.c_str())
        .wanted("%s", kind_text(kind));
    return given.empty ? error->found("nothing") : error->found("%zu tensors", given.count);
  }
  if (given.empty) return OPFORGE_STATUS_OK;
  if (!sequence) return check_input(k, given.tensors[0], symbols, error);
  for (size_t i = 0; i < given.count; ++i) {
    std::vector<int64_t> own(symbols->size(), -1);
    if (check_input(k, given.tensors[i], &own, error)) {
      const std::string where = "element " + std::to_string(i) + " of " + error->where;
      return error->at("%s", where.c_str());
    }
  }
  return OPFORGE_STATUS_OK;
}

Status Session::run_values(const Given* inputs, std::vector<Result>* results, Error* error) {
  error->status = OPFORGE_STATUS_OK;
  results->clear();
  results->resize(outputs_.size());
  if (takes_tensors_) {
    std::vector<Tensor> tensors(inputs_.size());
    std::vector<int64_t> symbols(model_.program().n_strings, -1);
    for (uint32_t k = 0; k < inputs_.size(); ++k) {
      if (check_given(k, inputs[k], &symbols, error)) return *error;
      tensors[k] = inputs[k].tensors[0];
    }
    ResultOutputs outputs(results);
    return run(tensors.data(), &outputs, error);
  }
  std::vector<int64_t> symbols(model_.program().n_strings, -1);
  for (uint32_t k = 0; k < inputs_.size(); ++k) {
    if (check_given(k, inputs[k], &symbols, error)) return *error;
  }
  std::unique_ptr<DynamicRun> run = borrow_dynamic();
  Status status = OPFORGE_STATUS_OK;
  for (uint32_t k = 0; k < inputs_.size(); ++k) {
    Slot& slot = run->input(k);
    const int32_t kind = inputs_[k].info.kind;
    if (inputs[k].empty) continue;
    const bool single = kind == format::kTensorValue || kind == format::kOptionalValue;
    if (!single) slot.sequence = std::make_shared<Sequence>();
    for (size_t i = 0; status == OPFORGE_STATUS_OK && i < inputs[k].count; ++i) {
      Item item{inputs[k].tensors[i], BlockRef()};
      if (item.tensor.dtype == DType::kString)
        status = run->take_strings(inputs[k].tensors[i], inputs_[k].name, &item, error);
      if (single)
        static_cast<Item&>(slot) = std::move(item);
      else
        slot.sequence->items.push_back(std::move(item));
    }
  }
  if (status == OPFORGE_STATUS_OK) status = run->run(watched(), error);
  for (uint32_t k = 0; status == OPFORGE_STATUS_OK && k < outputs_.size(); ++k) {
    const Slot& slot = run->output(k);
    Result& result = (*results)[k];
    result.empty = slot.empty();
    std::vector<const Tensor*> tensors;
    if (slot.sequence != nullptr) {
      for (const Item& item : slot.sequence->items) tensors.push_back(&item.tensor);
    } else if (slot.tensor.present()) {
      tensors.push_back(&slot.tensor);
    }
    for (const Tensor* tensor : tensors) {
      if (tensor->dtype == DType::kString) {
        status = give_strings(*tensor, run->texts(), &result, error);
        if (status != OPFORGE_STATUS_OK) break;
        continue;
      }
      const size_t bytes = bytes_of(*tensor);
      void* to = ResultOutputs::add(&result, *tensor, bytes, error);
      if (to == nullptr) {
        status = *error;
        break;
      }
      if (bytes != 0) std::memcpy(to, tensor->data, bytes);
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_dynamic_ = true;
    last_ = nullptr;
  }
  give_back(std::move(run));
  return status;
}

}  // namespace opforge::session
