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

// A namespace of torch.ops: its schemas, and its kernels per device.
struct Space {
  Handle fragment = nullptr;
  Handle kernels[std::size(kDevices)] = {};
};

struct State {
  std::mutex lock;
  bool open = false;
  size_t used = 0;
  std::unique_ptr<Plan> slots[kSlots];
  std::map<std::string, size_t> names;  // "namespace::name" -> slot
  std::map<std::string, Space> namespaces;
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
  const Shims& torch = shims();
  auto& [fragment, kernels] = all.namespaces[space];
  if (fragment == nullptr) {
    torch.check(torch.aoti_torch_library_init_fragment(space.c_str(), "opforge", 0, &fragment),
                "library_init_fragment");
    for (size_t d = 0; d < std::size(kDevices); ++d) {
      torch.check(torch.aoti_torch_library_init_impl(space.c_str(), kDevices[d], "opforge", 0, &kernels[d]),
                  "library_init_impl");
    }
  }
  const size_t slot = all.used;
  const std::string schema = name + plan->schema;
  const std::string what = "the definition of " + full;
  if (torch.torch_library_def_with_tags != nullptr) {
    const int32_t tags[] = {torch.torch_tag_flexible_layout(), torch.torch_tag_pt2_compliant_tag()};
    torch.check(torch.torch_library_def_with_tags(fragment, schema.c_str(), tags, 2), what.c_str());
  } else {
    torch.check(torch.aoti_torch_library_def(fragment, schema.c_str()), what.c_str());
  }
  all.slots[slot] = std::move(plan);
  ++all.used;
  all.names[full] = slot;
  for (const Handle one : kernels) {
    torch.check(torch.torch_library_impl(one, name.c_str(), kPool[slot], torch.version), "library_impl");
  }
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
