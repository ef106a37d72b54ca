// context.h: what an adapter offers to a running kernel: scratch memory, error text, the host's
// threads.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "common/aligned.h"
#include "common/failure.h"
#include "common/float_mode.h"
#include "opforge/abi.h"

namespace opforge::adapter {

// Runs body(user, chunk_begin, chunk_end) over chunk numbers in the host's pool.
using ParallelChunks = void (*)(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user);

// The context of one call. The base comes first, so that a pointer to it is a pointer to the whole.
struct CallContext {
  opforge_context base;
  ParallelChunks chunks;
  opforge_status (*allocate)(CallContext*, int32_t index, const int64_t* shape, int32_t ndim);
  void* call;                  // the adapter's own state, for `allocate`
  Aligned* aligned = nullptr;  // while a kernel runs that asks more of addresses than its element does
  const opforge_arguments* outputs = nullptr;  // of that kernel
  std::vector<std::unique_ptr<void, decltype(&std::free)>> scratch;
  std::vector<std::unique_ptr<int64_t[]>> late_sizes;  // of outputs that the kernel allocates
  std::string text;

  CallContext(ParallelChunks parallel, const void* kernel_data);
};

// CallContext::allocate for an adapter whose `call` has outputs() and allocate(index, sizes, rank); the sizes
// that it gets live as long as the context.
template <class Call>
opforge_status allocate_late(CallContext* context, int32_t index, const int64_t* shape, int32_t rank) {
  Call& call = *static_cast<Call*>(context->call);
  if (index < 0 || index >= call.outputs()) {
    return context->base.error(&context->base, OPFORGE_STATUS_INTERNAL,
                               "the kernel allocates an output that is not there");
  }
  try {
    context->late_sizes.push_back(std::make_unique<int64_t[]>(static_cast<size_t>(rank) + 1));
    int64_t* sizes = context->late_sizes.back().get();
    for (int32_t d = 0; d < rank; ++d) sizes[d] = shape[d];
    call.allocate(index, sizes, rank);
    return OPFORGE_STATUS_OK;
  } catch (const Failure& problem) {
    return context->base.error(&context->base, problem.status, problem.what());
  } catch (const std::exception& error) {
    return context->base.error(&context->base, OPFORGE_STATUS_OUT_OF_MEMORY, error.what());
  }
}

namespace context_functions {

inline CallContext& whole(opforge_context* context) { return *reinterpret_cast<CallContext*>(context); }

// A nested call runs serially: one flag per thread.
inline bool& inside_parallel() {
  static thread_local bool inside = false;
  return inside;
}

struct Chunks {
  int64_t n, grain;
  opforge_range_fn body;
  void* user;
};

inline void run_chunks(int64_t begin, int64_t end, void* pointer) {
  const FloatMode mode;
  const Chunks& work = *static_cast<const Chunks*>(pointer);
  bool& inside = inside_parallel();
  const bool before = inside;
  inside = true;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t first = chunk * work.grain;
    const int64_t last = work.n - first < work.grain ? work.n : first + work.grain;
    work.body(work.user, first, last);
  }
  inside = before;
}

// The host's own parallel_for divides by the number of threads; dividing into chunks of `grain` first keeps
// the results of a kernel independent of it.
inline opforge_status parallel_for(opforge_context* context, int64_t n, int64_t grain, opforge_range_fn body,
                                   void* user) {
  if (n <= 0) return OPFORGE_STATUS_OK;
  if (grain < 1) grain = 1;
  if (n <= grain) {
    body(user, 0, n);
    return OPFORGE_STATUS_OK;
  }
  Chunks work{n, grain, body, user};
  const int64_t chunks = (n - 1) / grain + 1;
  if (inside_parallel()) {
    run_chunks(0, chunks, &work);
    return OPFORGE_STATUS_OK;
  }
  try {
    whole(context).chunks(chunks, &run_chunks, &work);
  } catch (const std::exception& error) {
    return context->error(context, OPFORGE_STATUS_INTERNAL, error.what());
  } catch (...) {
    return context->error(context, OPFORGE_STATUS_INTERNAL, "the host's parallel_for failed");
  }
  return OPFORGE_STATUS_OK;
}

inline void* scratch(opforge_context* context, size_t bytes, size_t alignment) {
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes) return nullptr;
  void* memory = std::aligned_alloc(alignment, rounded ? rounded : alignment);
  if (memory == nullptr) return nullptr;
  whole(context).scratch.emplace_back(memory, &std::free);
  return memory;
}

inline opforge_status allocate_output(opforge_context* context, int32_t index, const int64_t* shape,
                                      int32_t ndim) {
  CallContext& self = whole(context);
  if (self.allocate == nullptr) {
    return context->error(context, OPFORGE_STATUS_UNSUPPORTED, "this host allocates no outputs in a kernel");
  }
  const opforge_status status = self.allocate(&self, index, shape, ndim);
  if (status != OPFORGE_STATUS_OK || self.aligned == nullptr) return status;
  if (self.aligned->move_one(self.outputs->tensors[index], true)) return OPFORGE_STATUS_OK;
  return context->error(context, OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an aligned copy");
}

inline opforge_status error(opforge_context* context, opforge_status code, const char* text) {
  whole(context).text = text ? text : "";
  return code;
}

inline void log(opforge_context*, int32_t level, const char* text) {
  if (level >= OPFORGE_LOG_WARNING) std::fprintf(stderr, "opforge: %s\n", text);
}

}  // namespace context_functions

// Field by field: to zero the whole first is a loop in microcode, a tenth of what a small call takes.
inline CallContext::CallContext(ParallelChunks parallel, const void* kernel_data)
    : chunks(parallel), allocate(nullptr), call(nullptr) {
  base.size = sizeof(opforge_context);
  base.abi = OPFORGE_ABI;
  base.device = {OPFORGE_DEVICE_CPU, 0};
  base.stream = nullptr;
  base.host = nullptr;
  base.kernel_data = kernel_data;
  base.parallel_for = &context_functions::parallel_for;
  base.scratch = &context_functions::scratch;
  base.allocate_output = &context_functions::allocate_output;
  base.error = &context_functions::error;
  base.log = &context_functions::log;
  base.seed = 0;
  base.offset = 0;
  for (void*& entry : base.reserved) entry = nullptr;
}

// Runs a kernel in its context, on addresses as it asks for them.
inline opforge_status run_in(CallContext& context, const opforge_kernel& kernel,
                             const opforge_arguments& inputs, const opforge_arguments& outputs,
                             const opforge_attribute* attributes) {
  const FloatMode mode;
  if (kernel.alignment <= 1) return kernel.run(&context.base, &inputs, &outputs, attributes);
  Aligned aligned(&context.base, kernel.alignment);
  if (!aligned.move(inputs, false) || !aligned.move(outputs, true)) {
    return context.base.error(&context.base, OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an aligned copy");
  }
  context.aligned = &aligned;
  context.outputs = &outputs;
  const opforge_status status = kernel.run(&context.base, &inputs, &outputs, attributes);
  context.aligned = nullptr;
  if (status == OPFORGE_STATUS_OK) aligned.write_back();
  return status;
}

}  // namespace opforge::adapter
