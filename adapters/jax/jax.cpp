// jax.cpp: every operator in JAX through two handlers of XLA's foreign function interface, one for the CPU
// and one for CUDA. A call names its operator by text, which survives serialisation; a pointer would not.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "common/attributes.h"
#include "common/bind.h"
#include "common/context.h"
#include "common/device.h"
#include "common/plan.h"
#include "jax/device.h"
#include "jax/ffi.h"
#include "jax/parallel.h"

namespace opforge::jax_host {
namespace {

using namespace adapter;  // NOLINT: what every adapter shares

struct State {
  std::shared_mutex lock;
  std::map<std::string, std::unique_ptr<Plan>, std::less<>> plans;  // by domain::Name:version
  int minor = 1;                                                    // what the handler says of itself
};

State& state() {
  static State* const all = new State;  // calls may outlive static objects
  return *all;
}

// A compiled call keeps its text at one place, so each thread remembers what it found for a place; the text
// decides, since another call's may come to lie there. Plans stay for ever.
const Plan& find(std::string_view key) {
  struct Seen {
    const char* place;
    const Plan* plan;
  };
  static thread_local std::array<Seen, 64> seen{};
  Seen& known = seen[(reinterpret_cast<uintptr_t>(key.data()) >> 4) % seen.size()];
  if (known.place == key.data() && known.plan->key == key) return *known.plan;
  State& all = state();
  const std::shared_lock<std::shared_mutex> guard(all.lock);
  const auto found = all.plans.find(key);
  if (found == all.plans.end()) {
    throw failure(OPFORGE_STATUS_NOT_FOUND, std::string(key),
                  "the operator is not registered in this process", "", "",
                  "import the package that declares it, then opforge.jax.register(operator)");
  }
  known = {key.data(), found->second.get()};
  return *found->second;
}

opforge_dtype dtype_of(int32_t type) {
  switch (type) {
    case ffi::kBool:
      return {OPFORGE_CODE_BOOL, 8, 1};
    case ffi::kS8:
      return {OPFORGE_CODE_INT, 8, 1};
    case ffi::kS16:
      return {OPFORGE_CODE_INT, 16, 1};
    case ffi::kS32:
      return {OPFORGE_CODE_INT, 32, 1};
    case ffi::kS64:
      return {OPFORGE_CODE_INT, 64, 1};
    case ffi::kU8:
      return {OPFORGE_CODE_UINT, 8, 1};
    case ffi::kU16:
      return {OPFORGE_CODE_UINT, 16, 1};
    case ffi::kU32:
      return {OPFORGE_CODE_UINT, 32, 1};
    case ffi::kU64:
      return {OPFORGE_CODE_UINT, 64, 1};
    case ffi::kF16:
      return {OPFORGE_CODE_FLOAT, 16, 1};
    case ffi::kF32:
      return {OPFORGE_CODE_FLOAT, 32, 1};
    case ffi::kF64:
      return {OPFORGE_CODE_FLOAT, 64, 1};
    case ffi::kBF16:
      return {OPFORGE_CODE_BFLOAT, 16, 1};
    case ffi::kF8E5M2:
      return {OPFORGE_CODE_FLOAT8_E5M2, 8, 1};
    case ffi::kF8E4M3FN:
      return {OPFORGE_CODE_FLOAT8_E4M3FN, 8, 1};
    case ffi::kF8E5M2FNUZ:
      return {OPFORGE_CODE_FLOAT8_E5M2FNUZ, 8, 1};
    case ffi::kF8E4M3FNUZ:
      return {OPFORGE_CODE_FLOAT8_E4M3FNUZ, 8, 1};
    case ffi::kF8E8M0FNU:
      return {OPFORGE_CODE_FLOAT8_E8M0FNU, 8, 1};
    default:
      return {OPFORGE_CODE_OPAQUE, 0, 0};
  }
}

// An attribute of the call by name; null where it is not given.
const void* attribute(const ffi::Attributes& given, std::string_view name, int32_t* type) {
  for (int64_t k = 0; k < given.count; ++k) {
    if (std::string_view(given.names[k]->data, given.names[k]->size) == name) {
      *type = given.types[k];
      return given.values[k];
    }
  }
  return nullptr;
}

Failure wrong_attribute(const Plan& plan, const std::string& name) {
  return failure(OPFORGE_STATUS_TYPE, plan.where + ", attribute " + name, "wrong type in the call");
}

// Attributes travel as i64, f64 and bool scalars, text, 1-D arrays, and a dictionary for a list of texts.
void read_scalar(const Plan& plan, const detail::Attribute& declared, const ffi::Scalar& scalar,
                 Attributes* into) {
  if (declared.kind == OPFORGE_ATTRIBUTE_INT && scalar.dtype == ffi::kS64) {
    return into->add_int(*static_cast<const int64_t*>(scalar.value));
  }
  if (declared.kind == OPFORGE_ATTRIBUTE_FLOAT && scalar.dtype == ffi::kF64) {
    return into->add_float(*static_cast<const double*>(scalar.value));
  }
  if (declared.kind == OPFORGE_ATTRIBUTE_BOOL && scalar.dtype == ffi::kBool) {
    return into->add_bool(*static_cast<const bool*>(scalar.value));
  }
  throw wrong_attribute(plan, declared.name);
}

void read_array(const Plan& plan, const detail::Attribute& declared, const ffi::Array& array,
                Attributes* into) {
  if (array.dtype == ffi::kS64 &&
      (declared.kind == OPFORGE_ATTRIBUTE_INTS || declared.kind == OPFORGE_ATTRIBUTE_BOOLS)) {
    const auto* items = static_cast<const int64_t*>(array.data);
    return into->add_ints(std::vector<int64_t>(items, items + array.size), declared.kind);
  }
  if (array.dtype == ffi::kF64 && declared.kind == OPFORGE_ATTRIBUTE_FLOATS) {
    const auto* items = static_cast<const double*>(array.data);
    return into->add_floats(std::vector<double>(items, items + array.size));
  }
  throw wrong_attribute(plan, declared.name);
}

void read_texts(const Plan& plan, const detail::Attribute& declared, const ffi::Attributes& texts,
                Attributes* into) {
  std::vector<opforge_string> values;
  for (int64_t k = 0; k < texts.count; ++k) {
    if (texts.types[k] != ffi::kString) throw wrong_attribute(plan, declared.name);
    const auto& text = *static_cast<const ffi::Span*>(texts.values[k]);
    values.push_back({text.data, static_cast<int64_t>(text.size)});
  }
  into->add_strings(std::move(values));
}

void read_attributes(const Plan& plan, const ffi::Attributes& given, Attributes* into) {
  for (const detail::Attribute& declared : plan.signature.attributes) {
    int32_t type = 0;
    const void* value = attribute(given, "a_" + declared.name, &type);
    if (value == nullptr) {
      into->add_default(declared.default_value);
    } else if (type == ffi::kScalar) {
      read_scalar(plan, declared, *static_cast<const ffi::Scalar*>(value), into);
    } else if (type == ffi::kArray) {
      read_array(plan, declared, *static_cast<const ffi::Array*>(value), into);
    } else if (type == ffi::kString && declared.kind == OPFORGE_ATTRIBUTE_STRING) {
      const auto& text = *static_cast<const ffi::Span*>(value);
      into->add_string({text.data, static_cast<int64_t>(text.size)});
    } else if (type == ffi::kDictionary && declared.kind == OPFORGE_ATTRIBUTE_STRINGS) {
      read_texts(plan, declared, *static_cast<const ffi::Attributes*>(value), into);
    } else {
      throw wrong_attribute(plan, declared.name);
    }
  }
}

// Tensors per parameter: the attribute `name`, or one each.
void read_counts(const Plan& plan, const ffi::Attributes& given, std::string_view name, size_t parameters,
                 int64_t tensors, Small<int32_t, 8>* counts) {
  int32_t type = 0;
  const void* value = attribute(given, name, &type);
  int64_t sum = 0;
  if (value == nullptr) {
    for (size_t k = 0; k < parameters; ++k) counts->push_back(1);
    sum = static_cast<int64_t>(parameters);
  } else {
    const auto& array = *static_cast<const ffi::Array*>(value);
    if (type != ffi::kArray || array.dtype != ffi::kS64 || array.size != parameters) {
      throw failure(OPFORGE_STATUS_INTERNAL, plan.where, "the call's counts do not fit the operator");
    }
    for (size_t k = 0; k < parameters; ++k) {
      const int64_t count = static_cast<const int64_t*>(array.data)[k];
      if (count < 0 || count > tensors) {
        throw failure(OPFORGE_STATUS_INTERNAL, plan.where, "the call's counts do not fit the operator");
      }
      counts->push_back(static_cast<int32_t>(count));
      sum += count;
    }
  }
  if (sum != tensors) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "wrong number of tensors", std::to_string(sum),
                  std::to_string(tensors));
  }
}

void read_buffers(const Plan& plan, const ffi::Buffers& buffers, opforge_device device,
                  Small<opforge_tensor, 8>* tensors) {
  for (int64_t k = 0; k < buffers.count; ++k) {
    if (buffers.types[k] != ffi::kBuffer) {
      throw failure(OPFORGE_STATUS_TYPE, plan.where, "an argument of the call is no array");
    }
    const auto& buffer = *static_cast<const ffi::Buffer*>(buffers.values[k]);
    opforge_tensor tensor{};
    tensor.data = buffer.data;
    tensor.device = device;
    tensor.ndim = static_cast<int32_t>(buffer.rank);
    tensor.dtype = dtype_of(buffer.dtype);
    tensor.shape = buffer.dims;
    tensors->push_back(tensor);
  }
}

// What the result buffers are was said when the call was traced; an artefact of another version could differ.
void check_results(const Plan& plan, const Bound& bound, const Small<opforge_tensor, 8>& results) {
  bool fits = static_cast<size_t>(bound.outputs()) == results.size();
  for (int32_t k = 0; fits && k < bound.outputs(); ++k) {
    const opforge_tensor& result = results[static_cast<size_t>(k)];
    fits = detail::same(bound.dtype(k), result.dtype) && bound.rank(k) == result.ndim;
    for (int32_t d = 0; fits && d < result.ndim; ++d) fits = bound.sizes(k)[d] == result.shape[d];
  }
  if (!fits) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "the call was traced with other output shapes",
                  "", "", "export or trace the function again with this version of the operator");
  }
}

opforge_status run_on_cpu(const ffi::CallFrame& frame, const opforge_kernel& kernel, CallContext* context,
                          const opforge_arguments& in, const opforge_arguments& out,
                          const opforge_attribute* attributes) {
  current_pool() = {frame.api, frame.context};
  const opforge_status status = run_in(*context, kernel, in, out, attributes);
  current_pool() = {};
  return status;
}

void call(const ffi::CallFrame& frame, int32_t device_type) {
  int32_t type = 0;
  const void* name = attribute(frame.attributes, "operator", &type);
  if (name == nullptr || type != ffi::kString) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, "opforge_call", "the call names no operator");
  }
  const auto& key = *static_cast<const ffi::Span*>(name);
  const Plan& plan = find({key.data, key.size});
  const bool on_cpu = device_type == OPFORGE_DEVICE_CPU;
  Device device(frame);
  if (!on_cpu) device.open(plan.where);
  Small<opforge_tensor, 8> inputs, outputs;
  read_buffers(plan, frame.arguments, {device_type, device.number()}, &inputs);
  read_buffers(plan, frame.results, {device_type, device.number()}, &outputs);
  Small<int32_t, 8> counts;
  read_counts(plan, frame.attributes, "counts", plan.signature.inputs.size(), frame.arguments.count, &counts);
  Attributes attributes;
  read_attributes(plan, frame.attributes, &attributes);
  Bound bound;
  bind(plan, inputs.data(), counts.data(), attributes, &bound);
  check_results(plan, bound, outputs);
  const opforge_kernel* kernel = device_kernel(plan, bound.types.data(), device_type);
  CallContext context(&parallel_chunks, kernel->data);
  const opforge_arguments in{inputs.data(), counts.data(), static_cast<int32_t>(inputs.size()),
                             static_cast<int32_t>(counts.size())};
  const opforge_arguments out{outputs.data(), bound.counts.data(), static_cast<int32_t>(outputs.size()),
                              static_cast<int32_t>(bound.counts.size())};
  if (!on_cpu) device.enter(&context, device_type);
  const opforge_status status = on_cpu ? run_on_cpu(frame, *kernel, &context, in, out, attributes.data())
                                       : run_in(context, *kernel, in, out, attributes.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan, status, context.text);
}

ffi::ErrorCode code_of(opforge_status status) {
  switch (status) {
    case OPFORGE_STATUS_INVALID_ARGUMENT:
    case OPFORGE_STATUS_TYPE:
      return ffi::kInvalidArgument;
    case OPFORGE_STATUS_NOT_FOUND:
      return ffi::kNotFound;
    case OPFORGE_STATUS_OUT_OF_MEMORY:
      return ffi::kResourceExhausted;
    case OPFORGE_STATUS_UNSUPPORTED:
      return ffi::kUnimplemented;
    default:
      return ffi::kInternalError;
  }
}

ffi::Error* error_of(const ffi::Api* api, opforge_status status, const char* text) {
  ffi::ErrorCreate arguments{sizeof(ffi::ErrorCreate), nullptr, text, code_of(status)};
  return api->create_error(&arguments);
}

// XLA asks a handler what it is before it registers it. A version that the process does not know would not
// only be refused: it would take the whole CPU backend down.
bool answer_metadata(const ffi::CallFrame& frame) {
  for (ffi::Extension* item = frame.extensions; item != nullptr; item = item->next) {
    if (item->type != ffi::kMetadataExtension) continue;
    ffi::Metadata& metadata = *reinterpret_cast<ffi::MetadataExtension*>(item)->metadata;
    metadata.version.size = sizeof(ffi::Version);
    metadata.version.major = 0;
    metadata.version.minor = state().minor;
    metadata.traits = 0;
    return true;
  }
  return false;
}

ffi::Error* handle(ffi::CallFrame* frame, int32_t device_type) {
  if (answer_metadata(*frame)) return nullptr;
  if (frame->stage != ffi::kExecute) return nullptr;
  try {
    call(*frame, device_type);
    return nullptr;
  } catch (const Failure& problem) {
    remember(problem);
    return error_of(frame->api, problem.status, problem.what());
  } catch (const std::exception& problem) {
    return error_of(frame->api, OPFORGE_STATUS_INTERNAL, problem.what());
  }
}

}  // namespace
}  // namespace opforge::jax_host

using namespace opforge::jax_host;  // NOLINT: the C entry points below
using opforge::adapter::Plan;

extern "C" {

// The handlers, registered with XLA as "opforge_call" for its platforms.
OPFORGE_EXPORT ffi::Error* opforge_jax_call(ffi::CallFrame* frame) {
  return handle(frame, OPFORGE_DEVICE_CPU);
}
OPFORGE_EXPORT ffi::Error* opforge_jax_call_cuda(ffi::CallFrame* frame) {
  return handle(frame, OPFORGE_DEVICE_CUDA);
}

// Says which minor version of the interface the installed jaxlib has.
OPFORGE_EXPORT void opforge_jax_set_version(int32_t minor) { state().minor = minor; }

// Brings the kernels of a device where none is known yet.
OPFORGE_EXPORT void opforge_jax_set_loader(opforge::adapter::DeviceLoader loader) {
  opforge::adapter::device_loader().store(loader, std::memory_order_release);
}

// Makes one operator of a table callable; the row of another library adds its kernels. Another operator of
// that name is an error.
OPFORGE_EXPORT int32_t opforge_jax_define(const opforge_operator* table, char* error, size_t size) {
  return opforge::adapter::guarded(
      error, size,
      [&] {
        auto plan = std::make_unique<Plan>(table);
        State& all = state();
        const std::unique_lock<std::shared_mutex> guard(all.lock);
        const auto known = all.plans.find(plan->key);
        if (known == all.plans.end()) {
          std::string key = plan->key;
          all.plans.emplace(std::move(key), std::move(plan));
          return;
        }
        merge(*known->second, *plan, plan->key, "JAX");
      },
      OPFORGE_STATUS_INTERNAL);
}

}  // extern "C"
