// registry.h: the operators that this process knows, each a kernel of ExecuTorch. Nothing here is ever freed:
// programs keep pointers to it.
#pragma once

#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/log.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/plan.h"
#include "executorch/call.h"

namespace opforge::executorch_host {

using ::executorch::runtime::Kernel;
using ::executorch::runtime::OpFunction;

// ---- the functions that ExecuTorch calls. It hands a kernel no pointer of its own, so each operator has one
// of these, which knows its number.

constexpr size_t kSlots = 1024;

struct Operator {
  explicit Operator(const opforge_operator* table, std::string its_name)
      : plan(table), name(std::move(its_name)), event("native_call_" + name) {}

  Plan plan;
  std::string name;   // namespace::name.out
  std::string event;  // what ExecuTorch's event tracer calls a run, as for its own kernels
};

inline std::array<const Operator*, kSlots>& slots() {
  static std::array<const Operator*, kSlots> all{};
  return all;
}

inline Error error_of(opforge_status status) {
  switch (status) {
    case OPFORGE_STATUS_INVALID_ARGUMENT:
      return Error::InvalidArgument;
    case OPFORGE_STATUS_TYPE:
      return Error::InvalidType;
    case OPFORGE_STATUS_UNSUPPORTED:
      return Error::NotSupported;
    case OPFORGE_STATUS_OUT_OF_MEMORY:
      return Error::MemoryAllocationFailed;
    case OPFORGE_STATUS_CORRUPT:
      return Error::InvalidProgram;
    case OPFORGE_STATUS_NOT_FOUND:
      return Error::NotFound;
    default:
      return Error::Internal;
  }
}

// ExecuTorch's log cuts lines at 256 characters, so each line of the text is one of its own.
inline void report(KernelRuntimeContext& context, const Failure& problem) {
  remember(problem);
  for (size_t begin = 0; begin <= problem.text.size();) {
    const size_t end = std::min(problem.text.find('\n', begin), problem.text.size());
    const std::string line = problem.text.substr(begin, end - begin);
    ET_LOG(Error, "%s", line.c_str());
    begin = end + 1;
  }
  context.fail(error_of(problem.status));
}

[[gnu::noinline]] inline void run(const Operator& self, KernelRuntimeContext& context, Span<EValue*> stack) {
  const ::executorch::runtime::internal::EventTracerProfileOpScope scope(context.internal_event_tracer(),
                                                                         self.event.c_str());
  try {
    Call(self.plan, stack).run();
  } catch (const Failure& problem) {
    report(context, problem);
  } catch (const std::exception& problem) {
    report(context, failure(OPFORGE_STATUS_INTERNAL, self.plan.where, problem.what()));
  }
}

template <size_t Slot>
void trampoline(KernelRuntimeContext& context, Span<EValue*> stack) {
  run(*slots()[Slot], context, stack);
}

template <size_t... Slots>
constexpr std::array<OpFunction, sizeof...(Slots)> trampolines(std::index_sequence<Slots...>) {
  return {{&trampoline<Slots>...}};
}

// ---- names

// CamelCase to snake_case as opforge's Python side has it: CustomGELU -> custom_gelu, PReLU -> p_re_lu.
inline std::string snake_case(const std::string& name) {
  const auto lower = [&](size_t i) { return i < name.size() && name[i] >= 'a' && name[i] <= 'z'; };
  const auto upper = [&](size_t i) { return i < name.size() && name[i] >= 'A' && name[i] <= 'Z'; };
  const auto digit = [&](size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  std::string made;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool word = upper(i) && i > 0 && (lower(i - 1) || ((upper(i - 1) || digit(i - 1)) && lower(i + 1)));
    if (word) made += '_';
    made += upper(i) ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
  }
  return made;
}

// What a .pte calls an operator: namespace::name.out; versions older than the newest of a library end in _v.
inline std::string kernel_name(const opforge_operator& table, bool newest) {
  std::string space = table.domain;
  std::replace(space.begin(), space.end(), '.', '_');
  const std::string version = newest ? "" : "_v" + std::to_string(table.since_version);
  return space + "::" + snake_case(table.name) + version + ".out";
}

// ---- registration

struct Registry {
  std::mutex lock;
  std::map<std::string, std::unique_ptr<Operator>> operators;  // by the name that ExecuTorch has
};

inline Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

// Why ExecuTorch cannot call an operator with this signature; empty where it can.
inline std::string unsuitable(const detail::Signature& signature) {
  for (const detail::Parameter& output : signature.outputs) {
    if (output.optional)
      return "the output " + output.name + " is optional, ExecuTorch knows no absent outputs";
  }
  return "";
}

// Registers an operator of a table under a name. Doing it again changes nothing; another one of that name is
// an error (ExecuTorch itself would end the process).
inline void define(const opforge_operator* table, const std::string& name) {
  static constexpr auto kFunctions = trampolines(std::make_index_sequence<kSlots>{});
  auto made = std::make_unique<Operator>(table, name);
  const std::string reason = unsuitable(made->plan.signature);
  if (!reason.empty()) throw failure(OPFORGE_STATUS_UNSUPPORTED, made->plan.key, reason);
  Registry& all = registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  const auto known = all.operators.find(name);
  if (known != all.operators.end()) return merge(known->second->plan, made->plan, name, "ExecuTorch");
  for (const Kernel& kernel : ::executorch::runtime::get_registered_kernels()) {
    if (name == kernel.name_) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, name,
                    "another library has registered a kernel of this name", "", "", "load one of them only");
    }
  }
  const size_t slot = all.operators.size();
  if (slot == kSlots) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, name, "too many operators",
                  "at most " + std::to_string(kSlots) + " in a process");
  }
  const Operator& kept = *(all.operators[name] = std::move(made));
  slots()[slot] = &kept;
  const Kernel kernel(kept.name.c_str(), kFunctions[slot]);
  if (::executorch::runtime::register_kernels({&kernel, 1}) != Error::Ok) {
    slots()[slot] = nullptr;
    all.operators.erase(name);
    throw failure(OPFORGE_STATUS_INTERNAL, name, "ExecuTorch registers no kernel", "", "its table is full");
  }
}

// Registers every operator of a library that ExecuTorch can call.
inline void define_library(const opforge_library& library) {
  std::map<std::string, int32_t> newest;
  for (int32_t k = 0; k < library.n_operators; ++k) {
    const opforge_operator& one = *library.operators[k];
    int32_t& version = newest[std::string(one.domain) + "::" + one.name];
    version = std::max(version, one.since_version);
  }
  for (int32_t k = 0; k < library.n_operators; ++k) {
    const opforge_operator& one = *library.operators[k];
    if (!unsuitable(Plan(&one).signature).empty()) continue;
    const bool last = newest[std::string(one.domain) + "::" + one.name] == one.since_version;
    define(&one, kernel_name(one, last));
  }
}

}  // namespace opforge::executorch_host
