// kernel.h: what TensorFlow makes of a node: its attributes read once, and the call of our kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/bind.h"
#include "common/context.h"
#include "common/pool.h"
#include "tensorflow/api.h"
#include "tensorflow/definition.h"
#include "tensorflow/device.h"

namespace opforge::tensorflow_host {

// A node of a graph. Several threads may run it at one time, so it is read only.
struct Node {
  const Definition* definition = nullptr;
  int32_t device_type = OPFORGE_DEVICE_CPU;
  Attributes attributes;
  std::vector<std::unique_ptr<char[]>> texts;
  Small<int32_t, 8> counts;         // tensors per input parameter
  Small<int32_t, 8> output_counts;  // tensors per output parameter
};

class Reader {
 public:
  Reader(Construction* construction, const Definition& definition)
      : construction_(construction), definition_(definition) {}

  int64_t integer(const std::string& name) {
    int64_t value = 0;
    api().TF_OpKernelConstruction_GetAttrInt64(construction_, name.c_str(), &value, status_.get());
    status_.check(definition_.where);
    return value;
  }
  void attribute(const detail::Attribute& declared, const std::string& name, Node* node);

 private:
  int32_t size(const char* name, int32_t* total) {
    int32_t items = 0;
    api().TF_OpKernelConstruction_GetAttrSize(construction_, name, &items, total, status_.get());
    status_.check(definition_.where);
    return items;
  }

  Construction* construction_;
  const Definition& definition_;
  OwnStatus status_;
};

inline void Reader::attribute(const detail::Attribute& declared, const std::string& text, Node* node) {
  const char* name = text.c_str();
  Status* status = status_.get();
  int32_t total = 0;
  switch (declared.kind) {
    case OPFORGE_ATTRIBUTE_INT:
      node->attributes.add_int(integer(text));
      break;
    case OPFORGE_ATTRIBUTE_FLOAT: {
      float value = 0;
      api().TF_OpKernelConstruction_GetAttrFloat(construction_, name, &value, status);
      node->attributes.add_float(value);
      break;
    }
    case OPFORGE_ATTRIBUTE_BOOL: {
      unsigned char value = 0;
      api().TF_OpKernelConstruction_GetAttrBool(construction_, name, &value, status);
      node->attributes.add_bool(value != 0);
      break;
    }
    case OPFORGE_ATTRIBUTE_STRING: {
      size(name, &total);
      node->texts.push_back(std::make_unique<char[]>(static_cast<size_t>(total) + 1));
      char* memory = node->texts.back().get();
      api().TF_OpKernelConstruction_GetAttrString(construction_, name, memory, static_cast<size_t>(total),
                                                  status);
      node->attributes.add_string({memory, total});
      break;
    }
    case OPFORGE_ATTRIBUTE_INTS:
    case OPFORGE_ATTRIBUTE_BOOLS: {
      std::vector<int64_t> values(static_cast<size_t>(size(name, &total)));
      api().TF_OpKernelConstruction_GetAttrInt64List(construction_, name, values.data(),
                                                     static_cast<int>(values.size()), status);
      node->attributes.add_ints(std::move(values), declared.kind);
      break;
    }
    case OPFORGE_ATTRIBUTE_FLOATS: {
      std::vector<float> values(static_cast<size_t>(size(name, &total)));
      api().TF_OpKernelConstruction_GetAttrFloatList(construction_, name, values.data(),
                                                     static_cast<int>(values.size()), status);
      node->attributes.add_floats(std::vector<double>(values.begin(), values.end()));
      break;
    }
    default: {
      const auto items = static_cast<size_t>(size(name, &total));
      node->texts.push_back(std::make_unique<char[]>(static_cast<size_t>(total) + 1));
      std::vector<char*> starts(items);
      std::vector<size_t> lengths(items);
      api().TF_OpKernelConstruction_GetAttrStringList(construction_, name, starts.data(), lengths.data(),
                                                      static_cast<int>(items), node->texts.back().get(),
                                                      static_cast<size_t>(total), status);
      std::vector<opforge_string> values;
      for (size_t k = 0; k < items; ++k) values.push_back({starts[k], static_cast<int64_t>(lengths[k])});
      node->attributes.add_strings(std::move(values));
    }
  }
  status_.check(definition_.where);
}

inline void* create_node(const Definition& definition, int32_t device_type, Construction* construction) {
  try {
    auto node = std::make_unique<Node>();
    node->definition = &definition;
    node->device_type = device_type;
    if (device_type != OPFORGE_DEVICE_CPU) prepare_device(definition, device_type);
    Reader reader(construction, definition);
    for (const std::string& count : definition.input_counts)
      node->counts.push_back(count.empty() ? 1 : static_cast<int32_t>(reader.integer(count)));
    for (const std::string& count : definition.output_counts)
      node->output_counts.push_back(count.empty() ? 1 : static_cast<int32_t>(reader.integer(count)));
    for (size_t k = 0; k < definition.attributes.size(); ++k)
      reader.attribute(definition.signature.attributes[k], definition.attributes[k], node.get());
    return node.release();
  } catch (const std::exception& error) {
    const OwnStatus status;
    api().TF_SetStatus(status.get(), kInternal, error.what());
    api().TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
}

inline void delete_node(void* node) { delete static_cast<Node*>(node); }

// The tensors of one call, freed at its end.
class Call {
 public:
  explicit Call(KernelContext* context) : context_(context) {}
  ~Call() {
    for (Tensor* tensor : owned_) api().TF_DeleteTensor(tensor);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run(const Node& node);

  // For allocate_late.
  int32_t outputs() const { return bound_.outputs(); }
  void allocate(int32_t index, const int64_t* shape, int32_t rank);

 private:
  void read_inputs(const Node& node);
  static void* scratch(opforge_context* context, size_t bytes, size_t alignment);

  static Status* status() {
    static thread_local const OwnStatus own;  // TensorFlow's functions set it anew
    return own.get();
  }
  static void check(const std::string& where, int32_t output = -1) {
    if (api().TF_GetCode(status()) == kOk) return;
    const std::string what = output < 0 ? where : where + ", output " + std::to_string(output);
    throw failure(OPFORGE_STATUS_INTERNAL, what, api().TF_Message(status()));
  }

  KernelContext* context_;
  const Node* node_ = nullptr;
  opforge_device device_{OPFORGE_DEVICE_CPU, 0};
  Small<Tensor*, 8> owned_;
  Small<opforge_tensor, 8> inputs_, outputs_;
  Small<int64_t, 24> dims_;  // of inputs
  Bound bound_;
};

inline void Call::read_inputs(const Node& node) {
  const int count = api().TF_NumInputs(context_);
  int64_t wanted = 0;
  for (const int32_t one : node.counts) wanted += one;
  if (wanted != count) {
    throw failure(OPFORGE_STATUS_INTERNAL, node.definition->where, "the node's counts do not fit its inputs");
  }
  for (int k = 0; k < count; ++k) {
    Tensor* tensor = nullptr;
    api().TF_GetInput(context_, k, &tensor, status());
    check(node.definition->where);
    owned_.push_back(tensor);
    opforge_tensor view{};
    view.data = api().TF_TensorData(tensor);
    view.device = device_;
    view.ndim = api().TF_NumDims(tensor);
    view.dtype = dtype_of(api().TF_TensorType(tensor));
    for (int32_t d = 0; d < view.ndim; ++d) dims_.push_back(api().TF_Dim(tensor, d));
    inputs_.push_back(view);
  }
  int64_t* dims = dims_.data();  // they move while they grow
  for (opforge_tensor& view : inputs_) {
    view.shape = dims;
    dims += view.ndim;
  }
}

// `shape` must live as long as the call.
inline void Call::allocate(int32_t index, const int64_t* shape, int32_t rank) {
  const opforge_dtype dtype = bound_.dtype(index);
  size_t bytes = dtype.bits / 8u;
  for (int32_t d = 0; d < rank; ++d) bytes *= static_cast<size_t>(shape[d]);
  Tensor* tensor =
      api().TF_AllocateOutput(context_, index, row_of(dtype)->theirs, shape, rank, bytes, status());
  check(node_->definition->where, index);
  owned_.push_back(tensor);
  opforge_tensor& view = outputs_[static_cast<size_t>(index)];
  view = {};
  view.data = api().TF_TensorData(tensor);
  view.device = device_;
  view.ndim = rank;
  view.dtype = dtype;
  view.shape = const_cast<int64_t*>(shape);  // the ABI's tensors are DLPack's; kernels only read it
}

// opforge_context::scratch of nodes on a GPU.
inline void* Call::scratch(opforge_context* context, size_t bytes, size_t alignment) {
  constexpr size_t kAligned = 64;  // what TensorFlow's allocators give at least
  constexpr int32_t kBytes = 4;    // TF_UINT8
  const AllocatorAttributes attributes{sizeof(AllocatorAttributes), 0};
  const size_t more = alignment > kAligned ? alignment : 0;
  const auto size = static_cast<int64_t>(bytes == 0 ? 1 : bytes + more);
  if (size < 0 || static_cast<size_t>(size) < bytes) return nullptr;
  Call& self = *static_cast<Call*>(context_functions::whole(context).call);
  Tensor* const tensor = api().TF_AllocateTemp(self.context_, kBytes, &size, 1, &attributes, status());
  if (api().TF_GetCode(status()) != kOk || tensor == nullptr) return nullptr;
  self.owned_.push_back(tensor);
  const auto address = reinterpret_cast<uintptr_t>(api().TF_TensorData(tensor));
  return reinterpret_cast<void*>(more == 0 ? address : (address + more - 1) / more * more);
}

inline void Call::run(const Node& node) {
  const Definition& definition = *node.definition;
  node_ = &node;
  const bool on_cpu = node.device_type == OPFORGE_DEVICE_CPU;
  if (!on_cpu) device_ = {node.device_type, api().TF_GetDeviceId(context_)};
  read_inputs(node);
  bind(definition, inputs_.data(), node.counts.data(), node.attributes, &bound_);
  for (size_t k = 0; k < bound_.counts.size(); ++k) {
    if (bound_.counts[k] != node.output_counts[k])
      throw failure(OPFORGE_STATUS_INTERNAL, definition.where, "the node's counts do not fit its outputs");
  }
  outputs_.resize(static_cast<size_t>(bound_.outputs()));
  for (int32_t k = 0; k < bound_.outputs(); ++k) {
    if (bound_.known(k)) allocate(k, bound_.sizes(k), bound_.rank(k));
  }
  const opforge_kernel* kernel = device_kernel(definition, bound_.types.data(), node.device_type);
  // TensorFlow's C API offers kernels no thread pool.
  CallContext context(&pool_chunks, kernel->data);
  context.allocate = &allocate_late<Call>;
  context.call = this;
  if (!on_cpu) {
    context.base.device = device_;
    context.base.stream = stream_of(context_, definition.where);
    context.base.scratch = &scratch;
  }
  const opforge_arguments in{inputs_.data(), node.counts.data(), static_cast<int32_t>(inputs_.size()),
                             static_cast<int32_t>(node.counts.size())};
  const opforge_arguments out{outputs_.data(), bound_.counts.data(), static_cast<int32_t>(outputs_.size()),
                              static_cast<int32_t>(bound_.counts.size())};
  const opforge_status status = run_in(context, *kernel, in, out, node.attributes.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(definition, status, context.text);
}

inline void compute(void* kernel, KernelContext* context) {
  opforge_status code = OPFORGE_STATUS_OK;
  std::string text;
  try {
    Call call(context);
    call.run(*static_cast<const Node*>(kernel));
    return;
  } catch (const Failure& error) {
    code = error.status;
    text = error.text;
  } catch (const std::exception& error) {
    code = OPFORGE_STATUS_INTERNAL;
    text = error.what();
  }
  const OwnStatus status;
  api().TF_SetStatus(status.get(), code_of(code), text.c_str());
  api().TF_OpKernelContext_Failure(context, status.get());
}

}  // namespace opforge::tensorflow_host
