// operator.h: what the accelerator keeps of each registered operator, and raising in PyTorch's way.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/program.h"
#include "common/failure.h"
#include "schema.h"

namespace opforge::torch_host {

struct Operator {
  explicit Operator(const opforge_operator* table) : plan(table) {}

  Plan plan;
  std::string full_name;  // namespace::name
  std::optional<c10::OperatorHandle> handle;
  std::optional<detail::GradientProgram> gradient;  // none = not differentiable

  // The program for the gradients that are asked for: one bit per input parameter. Made once per choice.
  const Program& program(uint64_t wanted) {
    std::atomic<const Program*>* quick = wanted < kQuick ? &quick_[wanted] : nullptr;
    if (quick != nullptr) {
      if (const Program* found = quick->load(std::memory_order_acquire)) return *found;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    std::unique_ptr<Program>& found = programs_[wanted];
    if (found == nullptr) found = std::make_unique<Program>(compile_program(*this, wanted));
    if (quick != nullptr) quick->store(found.get(), std::memory_order_release);
    return *found;
  }

 private:
  static constexpr uint64_t kQuick = 64;
  static Program compile_program(Operator& self, uint64_t wanted);
  std::mutex lock_;
  std::map<uint64_t, std::unique_ptr<Program>> programs_;
  std::array<std::atomic<const Program*>, kQuick> quick_{};
};

// Every registered operator by "domain::Name:version".
class Registry {
 public:
  static Registry& instance() {
    static Registry* all = new Registry;  // PyTorch calls into it until the process ends
    return *all;
  }
  Operator* find(const std::string& key) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second.get();
  }
  void add(std::unique_ptr<Operator> one) {
    const std::lock_guard<std::mutex> guard(lock_);
    const std::string key = one->plan.key;
    by_name_[one->full_name] = one.get();
    by_key_[key] = std::move(one);
  }
  Operator* named(const std::string& full_name) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = by_name_.find(full_name);
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  std::mutex lock_;
  std::map<std::string, std::unique_ptr<Operator>> by_key_;
  std::map<std::string, Operator*> by_name_;
};

// Runs `body`; a Failure leaves as the exception that PyTorch turns into the fitting Python class.
template <class Body>
void raising(Body body) {
  try {
    body();
  } catch (const Failure& error) {
    remember(error);
    switch (error.status) {
      case OPFORGE_STATUS_TYPE:
        TORCH_CHECK_TYPE(false, error.text);
      case OPFORGE_STATUS_INVALID_ARGUMENT:
      case OPFORGE_STATUS_UNSUPPORTED:
        TORCH_CHECK_VALUE(false, error.text);
      default:
        TORCH_CHECK(false, error.text);
    }
  }
}

inline AttributeSource attribute_source(const Operator& self, const Operator& target, size_t index,
                                        const detail::GradientStep& step) {
  const detail::Attribute& declared = target.plan.signature.attributes[index];
  AttributeSource source;
  for (const detail::StepAttribute& given : step.attributes) {
    if (given.name != declared.name) continue;
    if (given.forward.empty()) {
      source.value = literal_value(given.literal, declared.kind);
      return source;
    }
    const auto& forward = self.plan.signature.attributes;
    for (size_t f = 0; f < forward.size(); ++f) {
      if (forward[f].name == given.forward) source.forward = static_cast<int32_t>(f);
    }
    return source;
  }
  // One that the step does not give has its default, as PyTorch's schema has it.
  const auto& argument = target.handle->schema().arguments()[target.plan.signature.inputs.size() + index];
  if (!argument.default_value().has_value()) {
    throw failure(OPFORGE_STATUS_INTERNAL, self.plan.where + ", gradient", "a step lacks an attribute",
                  target.plan.key + ", attribute " + declared.name);
  }
  source.value = *argument.default_value();
  return source;
}

inline Program Operator::compile_program(Operator& self, uint64_t wanted) {
  std::vector<bool> asked;
  for (size_t i = 0; i < self.plan.signature.inputs.size(); ++i) asked.push_back((wanted >> i & 1) != 0);
  const detail::GradientProgram pruned = detail::prune(*self.gradient, asked);
  Program program;
  program.results = pruned.results;
  program.reads_inputs = detail::reads(pruned, 'i');
  program.reads_outputs = detail::reads(pruned, 'o');
  program.reads_gradients = detail::reads(pruned, 'g');
  const std::vector<int32_t> used = detail::reads(pruned, 'v');
  for (const detail::GradientStep& step : pruned.steps) {
    CompiledStep compiled;
    const std::string key = step.domain + "::" + step.name + ":" + std::to_string(step.version);
    compiled.target = Registry::instance().find(key);
    if (compiled.target == nullptr) {
      throw failure(OPFORGE_STATUS_NOT_FOUND, self.plan.where + ", gradient",
                    "an operator of the gradient is not registered with PyTorch", key, "nothing",
                    "register the operator package that holds it: opforge.torch.register");
    }
    const detail::Signature& target = compiled.target->plan.signature;
    if (step.operands.size() != target.inputs.size() || step.results.size() != target.outputs.size()) {
      throw failure(OPFORGE_STATUS_INTERNAL, self.plan.where + ", gradient",
                    "a step does not fit the operator that it calls", detail::to_string(target), key);
    }
    compiled.operands = step.operands;
    compiled.results = step.results;
    for (const int32_t result : step.results) {
      compiled.wanted.push_back(std::find(used.begin(), used.end(), result) != used.end());
      program.values = std::max(program.values, result + 1);
    }
    for (size_t a = 0; a < target.attributes.size(); ++a) {
      compiled.attributes.push_back(attribute_source(self, *compiled.target, a, step));
    }
    program.steps.push_back(std::move(compiled));
  }
  return program;
}

}  // namespace opforge::torch_host
