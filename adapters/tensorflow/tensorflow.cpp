// tensorflow.cpp: registration of operators with TensorFlow through its C API. The API's callbacks carry no
// pointer of ours, so every operator takes a slot, and each slot has functions of its own.
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tensorflow/api.h"
#include "tensorflow/definition.h"
#include "tensorflow/kernel.h"
#include "tensorflow/shape.h"

namespace opforge::tensorflow_host {
namespace {

constexpr size_t kSlots = 1024;

struct State {
  std::mutex lock;
  bool open = false;
  std::unique_ptr<Definition> slots[kSlots];
  size_t used = 0;
  std::map<std::string, size_t> names;
};

State& state() {
  static State* const all = new State;  // kernels may outlive static objects
  return *all;
}

struct Functions {
  void* (*create)(Construction*);
  void* (*create_on_cuda)(Construction*);
  void (*shape)(ShapeContext*, Status*);
  void* (*refuse)(Construction*);
};

// What the functions of a slot do; those are made a thousand times over, and only name their slot.
void shape_of(size_t slot, ShapeContext* context, Status* status) {
  try {
    infer_shapes(*state().slots[slot], context, status);
  } catch (const std::exception& error) {
    api().TF_SetStatus(status, kInternal, error.what());
  }
}

void* create(size_t slot, int32_t device_type, Construction* construction) {
  return create_node(*state().slots[slot], device_type, construction);
}

// XLA compiles no call of a kernel of ours; it says what to do instead.
void* refuse(size_t slot, Construction* construction) {
  const Definition& definition = *state().slots[slot];
  const bool formula = (definition.table->flags & OPFORGE_OPERATOR_FORMULA) != 0;
  const Failure error =
      failure(OPFORGE_STATUS_UNSUPPORTED, definition.where,
              "jit_compile=True cannot compile the operator's kernel", "", "",
              formula ? "call operator.decomposed(...), or trace inside opforge.tensorflow.decomposed()"
                      : "leave the operator outside of functions with jit_compile=True");
  const OwnStatus status;
  api().TF_SetStatus(status.get(), kUnimplemented, error.what());
  api().TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

template <size_t Slot, int32_t DeviceType>
void* create_in(Construction* construction) {
  return create(Slot, DeviceType, construction);
}

template <size_t Slot>
void shape_in(ShapeContext* context, Status* status) {
  shape_of(Slot, context, status);
}

template <size_t Slot>
void* refuse_in(Construction* construction) {
  return refuse(Slot, construction);
}

template <size_t... Slot>
constexpr std::array<Functions, sizeof...(Slot)> make_pool(std::index_sequence<Slot...>) {
  return {{Functions{&create_in<Slot, OPFORGE_DEVICE_CPU>, &create_in<Slot, OPFORGE_DEVICE_CUDA>,
                     &shape_in<Slot>, &refuse_in<Slot>}...}};
}

constexpr std::array<Functions, kSlots> kPool = make_pool(std::make_index_sequence<kSlots>());

void define_op(const Definition& self, const Functions& functions) {
  OpBuilder* builder = api().TF_NewOpDefinitionBuilder(self.name.c_str());
  for (const std::string& spec : self.input_specs)
    api().TF_OpDefinitionBuilderAddInput(builder, spec.c_str());
  for (const std::string& spec : self.output_specs)
    api().TF_OpDefinitionBuilderAddOutput(builder, spec.c_str());
  for (const std::string& spec : self.attribute_specs)
    api().TF_OpDefinitionBuilderAddAttr(builder, spec.c_str());
  if ((self.table->flags & OPFORGE_OPERATOR_PURE) == 0)
    api().TF_OpDefinitionBuilderSetIsStateful(builder, true);
  api().TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, functions.shape);
  const OwnStatus status;
  api().TF_RegisterOpDefinition(builder, status.get());  // takes the builder
  status.check(self.key);
}

void define_kernel(const Definition& self, const char* device, void* (*create)(Construction*)) {
  KernelBuilder* builder =
      api().TF_NewKernelBuilder(self.name.c_str(), device, create, &compute, &delete_node);
  const OwnStatus status;
  const std::string label = self.name + "_" + device;
  api().TF_RegisterKernelBuilder(label.c_str(), builder, status.get());  // takes the builder
  status.check(self.key);
}

void define(const opforge_operator* table, const std::string& name) {
  State& all = state();
  const std::lock_guard<std::mutex> guard(all.lock);
  if (!all.open) throw failure(OPFORGE_STATUS_INTERNAL, "tensorflow", "the adapter is not open");
  auto definition = std::make_unique<Definition>(table, name);
  if (const auto known = all.names.find(name); known != all.names.end()) {
    return merge(*all.slots[known->second], *definition, name, "TensorFlow");
  }
  if (all.used == kSlots) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, name, "too many operators in one process",
                  std::to_string(kSlots));
  }
  const size_t slot = all.used;
  all.slots[slot] = std::move(definition);
  ++all.used;
  all.names[name] = slot;
  const Definition& self = *all.slots[slot];
  define_op(self, kPool[slot]);
  // TensorFlow moves a node without a kernel for the GPU to the CPU, and its tensors with it, and says
  // nothing; so there is one, which raises where it finds no kernel of ours.
  define_kernel(self, "CPU", kPool[slot].create);
  define_kernel(self, "GPU", kPool[slot].create_on_cuda);
  define_kernel(self, "XLA_CPU_JIT", kPool[slot].refuse);
  define_kernel(self, "XLA_GPU_JIT", kPool[slot].refuse);
}

}  // namespace
}  // namespace opforge::tensorflow_host

using namespace opforge::tensorflow_host;  // NOLINT: the C entry points below

extern "C" {

// Looks up TensorFlow's functions; `library` is the path of the one that this process has loaded.
OPFORGE_EXPORT int32_t opforge_tensorflow_open(const char* library, char* error, size_t size) {
  return guarded(error, size, [&] {
    const std::lock_guard<std::mutex> guard(state().lock);
    if (state().open) return;
    api().load(library);
    state().open = true;
  });
}

// Brings the kernels of a device, and what reads its stream, where they are not there yet.
OPFORGE_EXPORT void opforge_tensorflow_set_loader(opforge::adapter::DeviceLoader loader) {
  opforge::adapter::device_loader().store(loader, std::memory_order_release);
}

// What reads the stream of a kernel's context: opforge_tensorflow_stream of stream.cpp.
OPFORGE_EXPORT void opforge_tensorflow_set_stream(StreamFunction function) {
  stream_function().store(function, std::memory_order_release);
}

// Registers one operator of a table under this name. Doing it again changes nothing; the row of another
// library adds its kernels.
OPFORGE_EXPORT int32_t opforge_tensorflow_define(const opforge_operator* table, const char* name, char* error,
                                                 size_t size) {
  return guarded(error, size, [&] { define(table, name); });
}

}  // extern "C"
