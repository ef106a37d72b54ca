// plugin_run.cpp: calls a library's kernel through the ABI, with the session's threads.
#include <cstdlib>

#include "session/faults.h"
#include "session/plan.h"
#include "session/plugin.h"
#include "session/plugin_kernel.h"
#include "threads/pool.h"

namespace opforge::session {
namespace {

constexpr int kInline = 32;  // tensors without heap

struct Call {
  opforge_context context = {};
  Error* error = nullptr;
  int32_t threads = 1;
  KernelCall told;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> scratch;
  opforge_tensor* outputs = nullptr;
  // Only where the kernel decides shapes:
  Tensor* results = nullptr;
  std::shared_ptr<void>* memory = nullptr;
  int32_t n_outputs = 0, n_tensors = 0;
};

Call* call_of(opforge_context* context) { return static_cast<Call*>(context->host); }

// Threads that help a call are in it too.
struct Shared {
  opforge_range_fn body;
  void* user;
  KernelCall* told;
};
void share(void* user, int64_t begin, int64_t end) {
  const Shared& shared = *static_cast<const Shared*>(user);
  const InKernel here(shared.told);
  shared.body(shared.user, begin, end);
}

opforge_status context_parallel(opforge_context* context, int64_t n, int64_t grain, opforge_range_fn body,
                                void* user) {
  Call* call = call_of(context);
  if (call->told.names == nullptr) {
    parallel_for(n, grain, body, user, call->threads);
    return OPFORGE_STATUS_OK;
  }
  Shared shared = {body, user, &call->told};
  parallel_for(n, grain, share, &shared, call->threads, reinterpret_cast<uint64_t>(body));
  return OPFORGE_STATUS_OK;
}

void* context_scratch(opforge_context* context, size_t bytes, size_t alignment) {
  void* data = nullptr;
  const size_t align = alignment < 64 ? 64 : alignment;
  if (bytes > format::kMaxBytes || ::posix_memalign(&data, align, bytes == 0 ? 1 : bytes) != 0)
    return nullptr;
  call_of(context)->scratch.emplace_back(data, &std::free);
  return data;
}

opforge_status context_error(opforge_context* context, opforge_status code, const char* text) {
  return call_of(context)->error->fail(code, "%s", text);
}

void context_log(opforge_context*, int32_t level, const char* text) {
  if (level >= OPFORGE_LOG_WARNING) std::fprintf(stderr, "opforge: %s\n", text);
}

// Memory for result `index` of the node.
Status allocate_result(Call* call, int32_t index, const int64_t* shape, int32_t ndim) {
  Tensor& result = call->results[index];
  result.shape.rank = ndim;
  for (int32_t k = 0; k < ndim; ++k) result.shape.dims[k] = shape[k];
  void* data = nullptr;
  if (!good_shape(result.dtype, result.shape, Layout()) ||
      ::posix_memalign(&data, 64,
                       static_cast<size_t>(storage_bytes(result.dtype, result.shape, Layout())) + 64) != 0) {
    return call->error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for output %d", index);
  }
  call->memory[index] = std::shared_ptr<void>(data, std::free);
  result.data = data;
  return OPFORGE_STATUS_OK;
}

// index counts the tensors that the kernel sees: outputs that nobody reads are not among them.
opforge_status context_allocate(opforge_context* context, int32_t index, const int64_t* shape, int32_t ndim) {
  Call* call = call_of(context);
  int32_t result = -1;
  for (int32_t seen = -1; call->results != nullptr && result + 1 < call->n_outputs && seen < index;) {
    seen += call->results[++result].present();
  }
  if (call->results == nullptr || index < 0 || index >= call->n_tensors || ndim < 0 || ndim > kMaxRank) {
    return call->error->fail(OPFORGE_STATUS_INTERNAL, "allocate_output is not possible for output %d", index);
  }
  if (Status status = allocate_result(call, result, shape, ndim)) return status;
  opforge_tensor& tensor = call->outputs[index];
  tensor.data = call->results[result].data;
  tensor.ndim = ndim;
  tensor.shape = call->results[result].shape.dims;
  return OPFORGE_STATUS_OK;
}

opforge_tensor as_dltensor(const Tensor& tensor) {
  opforge_tensor result = {};
  result.data = tensor.data;
  result.device = {OPFORGE_DEVICE_CPU, 0};
  result.ndim = tensor.shape.rank;
  result.dtype = to_dlpack(tensor.dtype);
  result.shape = const_cast<int64_t*>(tensor.shape.dims);
  return result;
}

// Flat tensors and a count per parameter, without heap for the usual sizes.
class Arguments {
 public:
  Arguments(const Tensor* tensors, int32_t n, const std::vector<detail::Parameter>& parameters) {
    const size_t p = parameters.size();
    if (n > kInline || p > kInline) {
      many_.resize(static_cast<size_t>(n));
      many_counts_.resize(p);
    }
    opforge_tensor* to = n > kInline || p > kInline ? many_.data() : few_;
    int32_t* counts = n > kInline || p > kInline ? many_counts_.data() : few_counts_;
    int32_t used = 0;
    for (size_t k = 0; k < p; ++k) {
      counts[k] = 0;
      const int32_t last = parameters[k].variadic ? n : static_cast<int32_t>(k) + 1;
      for (int32_t t = static_cast<int32_t>(k); t < last && t < n; ++t) {
        if (!tensors[t].present()) continue;
        to[used++] = as_dltensor(tensors[t]);
        ++counts[k];
      }
    }
    arguments_ = {to, counts, used, static_cast<int32_t>(p)};
  }
  const opforge_arguments* get() const { return &arguments_; }

 private:
  opforge_tensor few_[kInline];
  int32_t few_counts_[kInline];
  std::vector<opforge_tensor> many_;
  std::vector<int32_t> many_counts_;
  opforge_arguments arguments_;
};

bool bind(const PluginKernel& kernel, const Tensor* inputs, int32_t n, detail::Binding<int64_t>* binding,
          Error* error) {
  std::vector<detail::ShapeView<int64_t>> shapes(static_cast<size_t>(n));
  std::vector<opforge_dtype> dtypes(static_cast<size_t>(n));
  for (int32_t k = 0; k < n; ++k) {
    if (!inputs[k].present()) continue;
    shapes[static_cast<size_t>(k)] = {inputs[k].shape.dims, inputs[k].shape.rank};
    dtypes[static_cast<size_t>(k)] = to_dlpack(inputs[k].dtype);
  }
  detail::Problem problem;
  if (detail::bind<int64_t>(kernel.signature, kernel.name, shapes, dtypes, kernel.integers.data(), binding,
                            &problem))
    return true;
  error->fail(problem.status(), "%s", problem.what.c_str())
      .at("%s", problem.where.c_str())
      .wanted("%s", problem.expected.c_str())
      .found("%s", problem.got.c_str());
  return false;
}

Status invoke(const PluginKernel& kernel, const Tensor* inputs, int32_t n_inputs, Tensor* outputs,
              int32_t n_outputs, Call* call) {
  Arguments in(inputs, n_inputs, kernel.signature.inputs);
  Arguments out(outputs, n_outputs, kernel.signature.outputs);
  const uint32_t alignment = kernel.kernel->alignment;
  for (int32_t k = 0; alignment > 1 && k < in.get()->n_tensors; ++k) {
    if (reinterpret_cast<uintptr_t>(in.get()->tensors[k].data) % alignment != 0) {
      return call->error
          ->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "input %d is not aligned as the kernel needs it", k)
          .wanted("a multiple of %u bytes", alignment);
    }
  }
  opforge_context& context = call->context;
  context.size = sizeof context;
  context.abi = OPFORGE_ABI;
  context.device = {OPFORGE_DEVICE_CPU, 0};
  context.host = call;
  context.kernel_data = kernel.kernel->data;
  context.parallel_for = context_parallel;
  context.scratch = context_scratch;
  context.allocate_output = context_allocate;
  context.error = context_error;
  context.log = context_log;
  call->outputs = out.get()->tensors;
  call->n_tensors = out.get()->n_tensors;
  call->error->status = OPFORGE_STATUS_OK;
  call->told = {kernel.names, in.get(), out.get()};
  const InKernel here(&call->told);
  const Status status = kernel.kernel->run(&context, in.get(), out.get(), kernel.attributes->data());
  if (status != OPFORGE_STATUS_OK && call->error->status != status) {
    call->error->fail(status, "the kernel of %s failed", kernel.name.c_str());
  }
  return status;
}

}  // namespace

bool plugin_decides_shapes(const PluginKernel& kernel) { return kernel.decides_shapes; }

Status plugin_infer(const PluginKernel& kernel, const Attributes&, InferContext* context, Error* error) {
  detail::Binding<int64_t> binding;
  if (!bind(kernel, context->inputs, context->n_inputs, &binding, error)) return error->status;
  for (int32_t k = 0; k < context->n_outputs; ++k) {
    Tensor& output = context->outputs[k];
    if (!output.present()) continue;
    const int32_t flat = kernel.bound_output(binding, static_cast<uint32_t>(k));
    if (flat < 0)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "output %d has no input that gives it", k);
    const detail::OutputShape<int64_t>& shape = binding.shapes[static_cast<size_t>(flat)];
    if (!shape.ranked || shape.dims.size() > static_cast<size_t>(kMaxRank)) {
      return error->fail(OPFORGE_STATUS_UNSUPPORTED, "output %d has more than %d dimensions", k, kMaxRank);
    }
    output.shape.rank = static_cast<int32_t>(shape.dims.size());
    std::copy(shape.dims.begin(), shape.dims.end(), output.shape.dims);
  }
  return OPFORGE_STATUS_OK;
}

Status plugin_run(const PluginKernel& kernel, const Attributes&, RunContext* context, Error* error) {
  Call call;
  call.error = error;
  call.threads = context->threads;
  return invoke(kernel, context->inputs, context->n_inputs, context->outputs, context->n_outputs, &call);
}

Status plugin_run_dynamic(const PluginKernel& kernel, const Model& model, uint32_t node, const Tensor* inputs,
                          Tensor* outputs, std::shared_ptr<void>* memory, Error* error) {
  const NodeInfo& info = model.node(node);
  const auto n_inputs = static_cast<int32_t>(info.record->inputs),
             n_outputs = static_cast<int32_t>(info.record->outputs);
  detail::Binding<int64_t> binding;
  Status status = bind(kernel, inputs, n_inputs, &binding, error) ? OPFORGE_STATUS_OK : error->status;
  Call call;
  call.error = error;
  call.threads = model.threads();
  call.results = outputs;
  call.memory = memory;
  call.n_outputs = n_outputs;
  for (int32_t k = 0; status == OPFORGE_STATUS_OK && k < n_outputs; ++k) {
    Tensor& output = outputs[k];
    const int32_t flat = kernel.bound_output(binding, static_cast<uint32_t>(k));
    output.shape.rank = 0;
    if (!output.present() || flat < 0) continue;
    const detail::OutputShape<int64_t>& shape = binding.shapes[static_cast<size_t>(flat)];
    bool known = shape.ranked && shape.dims.size() <= static_cast<size_t>(kMaxRank);
    for (int64_t dim : shape.dims) known = known && dim >= 0;
    if (!known) continue;  // the kernel calls allocate_output
    status = allocate_result(&call, k, shape.dims.data(), static_cast<int32_t>(shape.dims.size()));
  }
  if (status == OPFORGE_STATUS_OK) status = invoke(kernel, inputs, n_inputs, outputs, n_outputs, &call);
  for (int32_t k = 0; status == OPFORGE_STATUS_OK && k < n_outputs; ++k) {
    if (!outputs[k].present() || memory[k] != nullptr) continue;
    status = error->fail(OPFORGE_STATUS_INTERNAL, "the kernel did not allocate output %d", k);
  }
  if (status == OPFORGE_STATUS_OK) return status;
  char where[Error::kText];
  model.describe(node, where, sizeof where);
  return error->at("%s", where);
}

}  // namespace opforge::session
