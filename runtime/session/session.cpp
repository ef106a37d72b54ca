// session.cpp: checks inputs, finds or makes the plan for their shapes, lends a context and an arena to the
// run.
#include "session/session.h"

#include <algorithm>

namespace opforge::session {
namespace {

constexpr int kMaxInline = 64;  // inputs and outputs whose pointers fit on the stack

bool same_shapes(const std::vector<Shape>& shapes, const Tensor* tensors) {
  for (size_t k = 0; k < shapes.size(); ++k) {
    const Shape &a = shapes[k], &b = tensors[k].shape;
    if (a.rank != b.rank || !std::equal(a.dims, a.dims + a.rank, b.dims)) return false;
  }
  return true;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (int k = 0; k < shape.rank; ++k) text += (k ? ", " : "") + std::to_string(shape.dims[k]);
  return text + "]";
}

std::string declared_text(const ValueText& value) {
  if (value.info.ndim < 0)
    return std::string(dtype_name(static_cast<DType>(value.info.onnx_dtype))) + " of any rank";
  std::string text = std::string(dtype_name(static_cast<DType>(value.info.onnx_dtype))) + "[";
  for (size_t k = 0; k < value.dimensions.size(); ++k) text += (k ? ", " : "") + value.dimensions[k];
  return text + "]";
}

}  // namespace

Status Session::open(const char* path, const Options& options, Error* error) {
  if (model_.open_file(path, options, error)) return *error;
  describe();
  return OPFORGE_STATUS_OK;
}

Status Session::open(const void* bytes, size_t size, const Options& options, Error* error) {
  if (model_.open_memory(bytes, size, options, error)) return *error;
  describe();
  return OPFORGE_STATUS_OK;
}

void Session::describe() {
  const Program& program = model_.program();
  for (uint32_t k = 0; k < program.n_inputs + program.n_outputs; ++k) {
    ValueText value;
    const format::Value& record = program.values[program.signature[k].id];
    value.name = model_.text(program.signature[k].name);
    for (int d = 0; d < record.rank; ++d) {
      const uint32_t id = program.dimension_ids[record.first_dimension + static_cast<uint32_t>(d)];
      const format::Dimension& dimension = program.dimensions[id];
      std::string text(dimension_text(program, id, nullptr, 0) + 1, '\0');
      dimension_text(program, id, text.data(), text.size());
      text.pop_back();
      value.dimensions.push_back(std::move(text));
      value.shape.push_back(dimension.op == format::kNumber ? dimension.b : -1);
    }
    value.info.onnx_dtype = record.dtype;
    value.info.dtype = to_dlpack(static_cast<DType>(record.dtype));
    value.info.ndim = record.rank;
    value.info.kind = record.kind;
    takes_tensors_ = takes_tensors_ && record.kind == format::kTensorValue && !is_string(record);
    (k < program.n_inputs ? inputs_ : outputs_).push_back(std::move(value));
  }
  for (std::vector<ValueText>* list : {&inputs_, &outputs_}) {
    for (ValueText& value : *list) {  // pointers into their final places
      for (const std::string& text : value.dimensions) value.dimension_texts.push_back(text.c_str());
      value.info.name = value.name.c_str();
      value.info.shape = value.shape.data();
      value.info.dimensions = value.dimension_texts.data();
    }
  }
  for (uint32_t k = 0; k < program.n_metadata; ++k) {
    metadata_.push_back(model_.text(program.metadata[k].name));
    metadata_.push_back(model_.text(program.metadata[k].id));
  }
  recorder_.open(model_);
}

Status Session::check_input(uint32_t k, const Tensor& tensor, std::vector<int64_t>* symbols,
                            Error* error) const {
  const Program& program = model_.program();
  const ValueText& value = inputs_[k];
  const format::Value& record = program.values[program.signature[k].id];
  if (static_cast<uint8_t>(tensor.dtype) != record.dtype) {
    return error->fail(OPFORGE_STATUS_TYPE, "an input has the wrong dtype")
        .at("input '%s'", value.name.c_str())
        .wanted("%s", dtype_name(static_cast<DType>(record.dtype)))
        .found("%s", dtype_name(tensor.dtype));
  }
  bool good = record.rank < 0 || record.rank == tensor.shape.rank;
  for (int pass = 0; pass < 2 && good && record.rank >= 0; ++pass) {
    for (int d = 0; d < record.rank && good; ++d) {  // symbols first, then numbers and expressions
      const uint32_t id = program.dimension_ids[record.first_dimension + static_cast<uint32_t>(d)];
      const format::Dimension& dimension = program.dimensions[id];
      if ((dimension.op == format::kSymbol) != (pass == 0)) continue;
      if (pass == 0 && (*symbols)[dimension.a] < 0) (*symbols)[dimension.a] = tensor.shape.dims[d];
      const int64_t wanted = evaluate_dimension(program, id, symbols->data());
      good = wanted < 0 || wanted == tensor.shape.dims[d];
      if (good) continue;
      std::string known;
      if (dimension.op != format::kNumber) known = " = " + std::to_string(wanted) + " from the inputs before";
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "dimension %d of an input is wrong", d)
          .at("input '%s'", value.name.c_str())
          .wanted("%s, where dimension %d is %s%s", declared_text(value).c_str(), d,
                  value.dimensions[static_cast<size_t>(d)].c_str(), known.c_str())
          .found("%s", shape_text(tensor.shape).c_str());
    }
  }
  if (!good) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an input has the wrong rank")
        .at("input '%s'", value.name.c_str())
        .wanted("%s", declared_text(value).c_str())
        .found("%s", shape_text(tensor.shape).c_str());
  }
  if (!good_shape(tensor.dtype, tensor.shape, Layout())) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an input has an impossible shape")
        .at("input '%s'", value.name.c_str())
        .found("%s", shape_text(tensor.shape).c_str());
  }
  return OPFORGE_STATUS_OK;
}

Status Session::check_inputs(const Tensor* inputs, Error* error) const {
  std::vector<int64_t> symbols(model_.program().n_strings, -1);
  for (uint32_t k = 0; k < inputs_.size(); ++k) {
    if (check_input(k, inputs[k], &symbols, error)) return *error;
  }
  return OPFORGE_STATUS_OK;
}

// The caller holds the mutex. A hit also proves that shapes are good; dtypes are checked by the caller.
Session::Entry* Session::find(const Tensor* inputs) {
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (same_shapes(entry->inputs, inputs)) return entry.get();
  }
  return nullptr;
}

Status Session::lease(const Tensor* inputs, Lease* lease, bool* dynamic, Error* error) {
  std::unique_lock<std::mutex> lock(mutex_);
  Entry* entry = find(inputs);
  if (entry == nullptr) {
    lock.unlock();  // planning may take long; two threads may then plan the same shapes, one result is kept
    if (check_inputs(inputs, error)) return *error;
    auto made = std::make_unique<Entry>();
    for (size_t k = 0; k < inputs_.size(); ++k) made->inputs.push_back(inputs[k].shape);
    std::unique_ptr<Plan> plan;
    bool needs_dynamic = false;
    if (make_plan(model_, made->inputs, &plan, &needs_dynamic, error)) return *error;
    made->plan = std::move(plan);
    lock.lock();
    entry = find(inputs);
    if (entry == nullptr) {
      if (entries_.size() >= kMaxPlans) {
        auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                       [](const auto& a, const auto& b) { return a->used < b->used; });
        entries_.erase(oldest);
      }
      entries_.push_back(std::move(made));
      entry = entries_.back().get();
    }
  }
  entry->used = ++clock_;
  last_ = entry->plan;
  last_dynamic_ = entry->plan == nullptr;
  *dynamic = last_dynamic_;
  if (*dynamic) return OPFORGE_STATUS_OK;
  lease->plan = entry->plan;
  if (!entry->idle.empty()) {
    lease->context = std::move(entry->idle.back());
    entry->idle.pop_back();
  }
  if (!arenas_.empty()) {
    lease->arena = std::move(arenas_.back());
    arenas_.pop_back();
  }
  lock.unlock();
  if (!lease->context) lease->context = std::make_unique<Context>(model_, lease->plan);
  if (!lease->arena) lease->arena = std::make_unique<Arena>();
  return OPFORGE_STATUS_OK;
}

void Session::give_back(Lease* lease) {
  if (!lease->context) return;
  std::lock_guard<std::mutex> lock(mutex_);
  arenas_.push_back(std::move(lease->arena));
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->plan != lease->plan) continue;
    entry->idle.push_back(std::move(lease->context));
    return;
  }
}

Status Session::run_planned(const Tensor* inputs, Outputs* outputs, Lease* lease, Error* error) {
  const Plan& plan = *lease->plan;
  void* few[2 * kMaxInline];
  std::vector<void*> many;
  void** pointers = few;
  if (inputs_.size() > kMaxInline || outputs_.size() > kMaxInline) {
    many.resize(inputs_.size() + outputs_.size());
    pointers = many.data();
  }
  void** results = pointers + inputs_.size();
  for (size_t k = 0; k < inputs_.size(); ++k) pointers[k] = inputs[k].data;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Tensor& tensor = plan.outputs[k];
    const auto bytes = static_cast<size_t>(storage_bytes(tensor.dtype, tensor.shape, tensor.layout));
    results[k] = outputs->give(static_cast<int32_t>(k), tensor, bytes, error);
    if (results[k] == nullptr && (bytes != 0 || error->status != OPFORGE_STATUS_OK)) return *error;
  }
  if (lease->context->bind(lease->arena.get(), error)) return *error;
  return lease->context->run(pointers, results, watched(), error);
}

Status Session::run(const Tensor* inputs, Outputs* outputs, Error* error) {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (static_cast<int32_t>(inputs[k].dtype) != inputs_[k].info.onnx_dtype)
      return check_inputs(inputs, error);
  }
  Lease lease;
  bool dynamic = false;
  error->status = OPFORGE_STATUS_OK;
  if (this->lease(inputs, &lease, &dynamic, error)) return *error;
  if (dynamic) return run_dynamic(inputs, outputs, error);
  const Status status = run_planned(inputs, outputs, &lease, error);
  give_back(&lease);
  return status;
}

Status Session::prepare(const Tensor* inputs, Error* error) {
  Lease lease;
  bool dynamic = false;
  error->status = OPFORGE_STATUS_OK;
  if (check_inputs(inputs, error) || this->lease(inputs, &lease, &dynamic, error)) return *error;
  const Status status = dynamic ? OPFORGE_STATUS_OK : lease.context->bind(lease.arena.get(), error);
  give_back(&lease);
  return status;
}

void Session::node_time(uint32_t node, opforge_node_time* time) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t k = static_cast<uint32_t>(node_texts_.size() / 3); k < model_.program().counts.nodes; ++k) {
    const NodeInfo& info = model_.node(k);
    std::string output;
    for (uint32_t o = 0; o < info.record->outputs && output.empty(); ++o) {
      if (info.outputs[o] >= 0) output = model_.text(model_.program().values[info.outputs[o]].name);
    }
    node_texts_.push_back(model_.text(info.record->domain));
    node_texts_.push_back(model_.text(info.record->op));
    node_texts_.push_back(output);
  }
  const std::string* texts = &node_texts_[3 * size_t{node}];
  *time = {texts[0].c_str(), texts[1].c_str(), texts[2].c_str(), 0, 0};
  recorder_.sum(node, &time->runs, &time->nanoseconds);
}

std::vector<Tensor> Session::node_tensors(uint32_t node) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Tensor> found;
  if (last_ != nullptr) {
    for (const Step& step : last_->steps) {
      if (step.node != node) continue;
      const auto first = last_->tensors.begin() + step.first_tensor;
      found.assign(first, first + step.n_inputs + step.n_outputs);
    }
  } else if (!dynamics_.empty()) {
    const DynamicRun& run = *dynamics_.back();
    found = run.inputs_of(node);
    found.insert(found.end(), run.outputs_of(node).begin(), run.outputs_of(node).end());
  }
  return found;
}

std::shared_ptr<const Plan> Session::last_plan() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

void Session::statistics(opforge_session_statistics* statistics) {
  std::lock_guard<std::mutex> lock(mutex_);
  statistics->nodes = model_.program().counts.nodes;
  statistics->plans = static_cast<int64_t>(entries_.size());
  statistics->executed_nodes = last_ ? static_cast<int64_t>(last_->steps.size()) : statistics->nodes;
  statistics->arena_bytes = last_ ? last_->arena_bytes : 0;
  statistics->live_bytes = last_ ? last_->live_bytes : 0;
  statistics->views = last_ ? last_->views : 0;
  statistics->in_place = last_ ? last_->in_place : 0;
  statistics->dynamic = last_dynamic_;
}

}  // namespace opforge::session
