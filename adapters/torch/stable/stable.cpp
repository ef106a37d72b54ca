// stable.cpp: registers the operators of any kernel library with PyTorch through its stable C ABI.
//
// A kernel of that ABI gets no pointer of ours, so there is a pool of functions made from one template:
// function k serves the operator in slot k. Schema and kernel, for the CPU and CUDA, are registered here; the
// fake kernel, autograd and autocast are Python's (src/opforge/frameworks/torch).
#include <array>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/failure.h"
#include "entries.h"
#include "schema.h"
#include "stable/call.h"
#include "stable/dtypes.h"
#include "stable/shims.h"

namespace opforge::torch_host {
namespace {

constexpr size_t kSlots = 1024;

constexpr const char* kDevices[] = {"CPU", "CUDA"};

// What PyTorch knows of one operator: its schema, and its kernel per device. It forgets all of it, as if
// nothing had been registered, unless it is told to keep it.
class Registration {
 public:
  Registration() = default;
  ~Registration() {
    while (!made_.empty()) {
      if (made_.back() != nullptr) static_cast<void>(shims().aoti_torch_delete_library_object(made_.back()));
      made_.pop_back();
    }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  void open(const std::string& space) {
    const Shims& torch = shims();
    made_.reserve(1 + std::size(kDevices));
    torch.check(torch.aoti_torch_library_init_fragment(space.c_str(), "opforge", 0, &take()),
                "library_init_fragment");
    for (const char* const device : kDevices) {
      torch.check(torch.aoti_torch_library_init_impl(space.c_str(), device, "opforge", 0, &take()),
                  "library_init_impl");
    }
  }
  void define(const std::string& schema, const std::string& what) {
    const Shims& torch = shims();
    if (torch.torch_library_def_with_tags != nullptr) {
      const int32_t tags[] = {torch.torch_tag_flexible_layout(), torch.torch_tag_pt2_compliant_tag()};
      torch.check(torch.torch_library_def_with_tags(made_[0], schema.c_str(), tags, 2), what.c_str());
    } else {
      torch.check(torch.aoti_torch_library_def(made_[0], schema.c_str()), what.c_str());
    }
  }
  void implement(const std::string& name, StableKernel kernel) {
    const Shims& torch = shims();
    for (size_t d = 0; d < std::size(kDevices); ++d) {
      torch.check(torch.torch_library_impl(made_[1 + d], name.c_str(), kernel, torch.version),
                  "library_impl");
    }
  }
  void keep() { made_.clear(); }

 private:
  Handle& take() {
    made_.push_back(nullptr);
    return made_.back();
  }
  std::vector<Handle> made_;  // the fragment, then a library per device
};

struct State {
  std::mutex lock;
  bool open = false;
  size_t used = 0;
  std::unique_ptr<Plan> slots[kSlots];
  std::map<std::string, size_t> names;  // "namespace::name" -> slot
};

State& state() {
  static State* all = new State;  // PyTorch calls into it until the process ends
  return *all;
}

void serve(size_t slot, StableValue* stack, uint64_t inputs, uint64_t outputs) {
  try {
    call_kernel(*state().slots[slot], stack, inputs, outputs);
  } catch (const Failure& error) {
    remember(error);
    throw;
  } catch (const std::exception& error) {
    const Failure wrapped(OPFORGE_STATUS_INTERNAL, state().slots[slot]->where + ": " + error.what());
    remember(wrapped);
    throw wrapped;
  }
}

template <size_t Slot>
void trampoline(StableValue* stack, uint64_t inputs, uint64_t outputs) {
  serve(Slot, stack, inputs, outputs);
}

template <size_t... Slot>
constexpr std::array<StableKernel, sizeof...(Slot)> make_pool(std::index_sequence<Slot...>) {
  return {{&trampoline<Slot>...}};
}

constexpr std::array<StableKernel, kSlots> kPool = make_pool(std::make_index_sequence<kSlots>());

void define(const opforge_operator* table, const std::string& space, const std::string& name) {
  State& all = state();
  const std::lock_guard<std::mutex> guard(all.lock);
  if (!all.open) throw failure(OPFORGE_STATUS_INTERNAL, "torch", "the adapter is not open");
  auto plan = std::make_unique<Plan>(table);
  const std::string full = space + "::" + name;
  if (const auto known = all.names.find(full); known != all.names.end()) {
    return merge(*all.slots[known->second], *plan, full, "PyTorch");
  }
  if (all.used == kSlots) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, full, "too many operators in one process",
                  std::to_string(kSlots), "",
                  "build the accelerator (opforge build --host torch): it has no such limit");
  }
  const size_t slot = all.used;
  Registration made;
  made.open(space);
  made.define(name + plan->schema, "the definition of " + full);
  all.slots[slot] =
      std::move(plan);  // before calls can come; the next operator takes the slot if this one fails
  made.implement(name, kPool[slot]);
  all.names[full] = slot;
  ++all.used;
  made.keep();
}

}  // namespace
}  // namespace opforge::torch_host

using namespace opforge::torch_host;  // NOLINT: the C entry points below

extern "C" {

// Looks up PyTorch's functions; `libtorch_cpu` is the path of the library that this process has loaded.
OPFORGE_EXPORT int32_t opforge_torch_open(const char* libtorch_cpu, char* error, size_t size) {
  return guarded(error, size, [&] {
    const std::lock_guard<std::mutex> guard(state().lock);
    if (state().open) return;
    shims().load(libtorch_cpu);
    dtypes().load();
    state().open = true;
  });
}

// Registers one operator of a table as torch.ops.<space>.<name>. Doing it again changes nothing.
OPFORGE_EXPORT int32_t opforge_torch_define(const opforge_operator* table, const char* space,
                                            const char* name, char* error, size_t size) {
  return guarded(error, size, [&] { define(table, space, name); });
}

}  // extern "C"
