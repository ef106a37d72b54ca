// call.cpp: one call of an operator through the stable ABI.
#include "stable/call.h"

#include <optional>
#include <vector>

#include "common/attributes.h"
#include "common/bind.h"
#include "common/context.h"
#include "common/device.h"
#include "devices.h"
#include "stable/create.h"
#include "stable/dtypes.h"
#include "stable/value.h"
#include "torch_cuda.h"

namespace opforge::torch_host {
namespace {

void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
  shims().check(shims().torch_parallel_for(0, chunks, 1, body, user), "parallel_for");
}

// Everything that a call holds: arguments first, so that they are freed whatever happens.
struct Call {
  const Plan& plan;
  std::vector<Tensor> tensors;  // inputs, then outputs, flat
  Small<int32_t, 16> counts;    // per parameter, inputs then outputs
  Attributes attributes;
  std::vector<String> strings;  // behind string attributes
  Small<opforge_tensor, 8> views;
  int32_t number = 0;  // PyTorch's number of the dtype that was read last
  opforge_device device{OPFORGE_DEVICE_CPU, 0};

  explicit Call(const Plan& operator_plan) : plan(operator_plan) {
    tensors.reserve(plan.signature.inputs.size() + plan.signature.outputs.size() + 4);
  }

  void take_inputs(const StableValue* stack) {
    for (size_t i = 0; i < plan.signature.inputs.size(); ++i) {
      const detail::Parameter& input = plan.signature.inputs[i];
      if (input.variadic) {
        List list(unpack<Handle>(stack[i]));
        const size_t size = list.size();
        for (size_t k = 0; k < size; ++k) tensors.emplace_back(unpack<Handle>(list[k]));
        counts.push_back(static_cast<int32_t>(size));
      } else if (input.optional) {
        StableValue value = 0;
        const bool present = take_optional(stack[i], &value);
        if (present) tensors.emplace_back(unpack<Handle>(value));
        counts.push_back(present ? 1 : 0);
      } else {
        tensors.emplace_back(unpack<Handle>(stack[i]));
        counts.push_back(1);
      }
    }
  }

  void take_attributes(const StableValue* stack) {
    const std::vector<detail::Attribute>& declared = plan.signature.attributes;
    strings.reserve(declared.size());
    // Own all boxes, lists and strings before any of them is read.
    std::vector<List> lists;
    lists.reserve(declared.size());
    Small<StableValue, 8> values;
    Small<bool, 8> present;
    for (size_t i = 0; i < declared.size(); ++i) {
      StableValue value = stack[i];
      present.push_back(!default_is_none(declared[i]) || take_optional(stack[i], &value));
      values.push_back(value);
      if (!present.back()) continue;
      if (declared[i].kind == OPFORGE_ATTRIBUTE_STRING) strings.emplace_back(unpack<Handle>(value));
      if (declared[i].kind >= OPFORGE_ATTRIBUTE_INTS) lists.emplace_back(unpack<Handle>(value));
    }
    size_t string = 0, list = 0;
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!present[i]) {
        attributes.add_default(declared[i].default_value);
        continue;
      }
      switch (declared[i].kind) {
        case OPFORGE_ATTRIBUTE_INT:
          attributes.add_int(unpack<int64_t>(values[i]));
          break;
        case OPFORGE_ATTRIBUTE_FLOAT:
          attributes.add_float(unpack<double>(values[i]));
          break;
        case OPFORGE_ATTRIBUTE_BOOL:
          attributes.add_bool(unpack<bool>(values[i]));
          break;
        case OPFORGE_ATTRIBUTE_STRING:
          attributes.add_string(strings[string++].view());
          break;
        default:
          take_list(declared[i].kind, lists[list++]);
      }
    }
  }

  void take_list(int32_t kind, const List& list) {
    const size_t size = list.size();
    if (kind == OPFORGE_ATTRIBUTE_FLOATS) {
      std::vector<double> values;
      for (size_t k = 0; k < size; ++k) values.push_back(unpack<double>(list[k]));
      attributes.add_floats(std::move(values));
    } else if (kind == OPFORGE_ATTRIBUTE_STRINGS) {
      const size_t first = strings.size();
      for (size_t k = 0; k < size; ++k) strings.emplace_back(unpack<Handle>(list[k]));
      std::vector<opforge_string> values;
      for (size_t k = 0; k < size; ++k) values.push_back(strings[first + k].view());
      attributes.add_strings(std::move(values));
    } else {
      const bool boolean = kind == OPFORGE_ATTRIBUTE_BOOLS;
      std::vector<int64_t> values;
      for (size_t k = 0; k < size; ++k) {
        values.push_back(boolean ? unpack<bool>(list[k]) : unpack<int64_t>(list[k]));
      }
      attributes.add_ints(std::move(values), kind);
    }
  }

  // Reads tensor `flat` into its view. Strides are kept: the kernel is chosen later.
  void read(size_t flat, const std::string& name) {
    const Shims& torch = shims();
    const Handle handle = tensors[flat].get();
    opforge_tensor& view = views[flat];
    int32_t place = 0, layout = 0;
    int64_t rank = 0;
    torch.check(torch.aoti_torch_get_layout(handle, &layout), "get_layout");
    torch.check(torch.aoti_torch_get_device_type(handle, &place), "get_device_type");
    torch.check(torch.aoti_torch_get_dtype(handle, &number), "get_dtype");
    if (layout != torch.strided) {
      throw failure(OPFORGE_STATUS_UNSUPPORTED, name, "not a strided tensor", "a dense or strided tensor",
                    "another layout", "call to_dense(), or pass a sparse tensor's parts one by one");
    }
    view.device = {OPFORGE_DEVICE_CPU, 0};
    if (place != torch.cpu) {
      if (place != torch.cuda) {
        throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, name, "inputs are on different devices",
                      "all on the CPU, or all on one CUDA device", "one on another device",
                      "move them to one device");
      }
      view.device.type = OPFORGE_DEVICE_CUDA;
      torch.check(torch.aoti_torch_get_device_index(handle, &view.device.id), "get_device_index");
      device = view.device;
    }
    view.dtype = dtypes().from_torch(number);
    torch.check(torch.aoti_torch_get_dim(handle, &rank), "get_dim");
    view.ndim = static_cast<int32_t>(rank);
    torch.check(torch.aoti_torch_get_sizes(handle, &view.shape), "get_sizes");
    torch.check(torch.aoti_torch_get_strides(handle, &view.strides), "get_strides");
    torch.check(torch.aoti_torch_get_data_ptr(handle, &view.data), "get_data_ptr");
  }

  // With a tensor on CUDA: all there, or an error.
  void settle_device() {
    device = call_device(plan, views.data(), counts.data(), [this](size_t flat, opforge_device to) {
      int32_t dtype = 0;
      shims().check(shims().aoti_torch_get_dtype(tensors[flat].get(), &dtype), "get_dtype");
      tensors[flat] = value_on(tensors[flat], dtype, to);
      read(flat, plan.where);
    });
  }

  // Makes tensor `flat` what the kernel takes; a dense one has NULL strides.
  void fit(size_t flat, const opforge_kernel* kernel) {
    const Shims& torch = shims();
    bool dense = false;
    torch.check(torch.aoti_torch_is_contiguous(tensors[flat].get(), &dense), "is_contiguous");
    const bool on_cpu = views[flat].device.type == OPFORGE_DEVICE_CPU;  // there run_in sees to addresses
    const bool lies = on_cpu || lies_at(views[flat], kernel->alignment);
    if (!dense && (kernel->flags & OPFORGE_KERNEL_STRIDED) != 0 && lies) return;
    if (!dense || !lies) {
      if (dense) {
        tensors[flat].move_to_new_memory();
      } else {
        tensors[flat].densify();
      }
      read(flat, plan.where);
    }
    views[flat].strides = nullptr;
  }
};

// The outputs of a call, for kernels that allocate one of them by themselves.
struct Outputs {
  Call& call;
  const Bound& bound;
  size_t first;  // index of the first output among the tensors

  void make(int32_t output, const int64_t* shape, int32_t rank) {
    const size_t flat = first + static_cast<size_t>(output);
    const int32_t dtype = dtypes().to_torch(bound.dtype(output), call.plan.where);
    call.tensors[flat] = new_tensor(shape, rank, dtype, call.device);
    call.read(flat, call.plan.where);
    call.views[flat].strides = nullptr;
  }
};

opforge_status allocate_output(CallContext* context, int32_t index, const int64_t* shape, int32_t rank) {
  auto& outputs = *static_cast<Outputs*>(context->call);
  if (index < 0 || index >= outputs.bound.outputs()) {
    return context->base.error(&context->base, OPFORGE_STATUS_INTERNAL,
                               "allocate_output: there is no such output");
  }
  try {
    outputs.make(index, shape, rank);
  } catch (const std::exception& error) {
    return context->base.error(&context->base, OPFORGE_STATUS_OUT_OF_MEMORY, error.what());
  }
  return OPFORGE_STATUS_OK;
}

// Lays the outputs onto the stack, one value per parameter.
void give_outputs(Call& call, const Bound& bound, size_t first, StableValue* stack) {
  const Shims& torch = shims();
  size_t flat = first;
  for (size_t o = 0; o < call.plan.signature.outputs.size(); ++o) {
    const detail::Parameter& output = call.plan.signature.outputs[o];
    const int32_t count = bound.counts[o];
    if (output.variadic) {
      Handle list = nullptr;
      torch.check(torch.torch_new_list_reserve_size(static_cast<size_t>(count), &list), "new_list");
      for (int32_t k = 0; k < count; ++k) {
        torch.check(torch.torch_list_push_back(list, pack(call.tensors[flat++].release())), "list_push_back");
      }
      stack[o] = pack(list);
    } else if (output.optional) {
      stack[o] = count == 0 ? 0 : make_optional(pack(call.tensors[flat++].release()));
    } else {
      stack[o] = pack(call.tensors[flat++].release());
    }
  }
}

}  // namespace

void call_kernel(const Plan& plan, StableValue* stack, uint64_t inputs, uint64_t outputs) {
  const detail::Signature& signature = plan.signature;
  Call call(plan);
  call.take_inputs(stack);
  call.take_attributes(stack + signature.inputs.size());
  if (inputs != signature.inputs.size() + signature.attributes.size() ||
      outputs != signature.outputs.size()) {
    throw failure(OPFORGE_STATUS_INTERNAL, plan.where, "the registered schema does not fit the operator");
  }
  const size_t n = call.tensors.size();
  call.views.resize(n);
  size_t flat = 0;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    for (int32_t k = 0; k < call.counts[i]; ++k, ++flat) {
      call.read(flat, argument(plan, i));
      if (!detail::is_known(call.views[flat].dtype)) {
        throw foreign_dtype(
            plan, i,
            "a dtype that the ABI does not have (PyTorch's number " + std::to_string(call.number) + ")");
      }
    }
  }
  const bool on_cpu = call.device.type == OPFORGE_DEVICE_CPU;
  if (!on_cpu) call.settle_device();
  Bound bound;
  bind(plan, call.views.data(), call.counts.data(), call.attributes, &bound);
  const opforge_kernel* kernel = device_kernel(plan, bound.types.data(), call.device.type);
  std::optional<CudaCall<DeviceBytes>> cuda;
  if (!on_cpu) cuda.emplace(call.device.id, plan.where);
  for (size_t t = 0; t < n; ++t) call.fit(t, kernel);

  const auto total = static_cast<size_t>(bound.outputs());
  call.tensors.resize(n + total);
  call.views.resize(n + total);
  Outputs made{call, bound, n};
  for (int32_t o = 0; o < bound.outputs(); ++o) {
    if (bound.known(o)) made.make(o, bound.sizes(o), bound.rank(o));
  }
  CallContext context(&parallel_chunks, kernel->data);
  context.call = &made;
  context.allocate = &allocate_output;
  if (cuda) cuda->prepare(&context.base);
  const opforge_arguments in{call.views.data(), call.counts.data(), static_cast<int32_t>(n),
                             static_cast<int32_t>(signature.inputs.size())};
  const opforge_arguments out{call.views.data() + n, bound.counts.data(), bound.outputs(),
                              static_cast<int32_t>(signature.outputs.size())};
  const opforge_status status = run_in(context, *kernel, in, out, call.attributes.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan, status, context.text);
  for (size_t t = n; t < call.tensors.size(); ++t) {
    if (call.tensors[t].get() == nullptr) {
      throw failure(OPFORGE_STATUS_INTERNAL, plan.where, "the kernel allocated no memory for an output");
    }
  }
  give_outputs(call, bound, n, stack);
}

}  // namespace opforge::torch_host
