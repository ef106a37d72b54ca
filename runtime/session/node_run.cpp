// node_run.cpp: one node's infer and run with the contexts that kernels see.
#include "session/plan.h"
#include "session/plugin.h"
#include "threads/pool.h"

namespace opforge::session {
namespace {

Status infer_fail(InferContext* context, Status code, const char* format, ...) {
  va_list list;
  va_start(list, format);
  char text[Error::kText];
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return static_cast<Error*>(context->host)->fail(code, "%s", text);
}

Status run_fail(RunContext* context, Status code, const char* format, ...) {
  va_list list;
  va_start(list, format);
  char text[Error::kText];
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return static_cast<Error*>(context->host)->fail(code, "%s", text);
}

void run_parallel(RunContext* context, int64_t n, int64_t grain, RangeBody body, void* user) {
  // A context belongs to a node for one set of shapes, except in dynamic runs, where it tells nothing.
  const auto site = reinterpret_cast<uint64_t>(context->attributes) * 3 ^ reinterpret_cast<uint64_t>(context);
  parallel_for(n, grain, body, user, context->threads, site);
}

Status at_node(const Model& model, uint32_t node, Status status, Error* error) {
  if (error->status != status) error->fail(status, "the kernel failed");
  char where[Error::kText];
  model.describe(node, where, sizeof where);
  return error->at("%s", where);
}

}  // namespace

void serve(RunContext* context) {
  context->parallel_for = run_parallel;
  context->fail = run_fail;
}

Tensor declared(const Model& model, int32_t value) {
  Tensor tensor;
  if (value < 0) return tensor;
  const format::Value& v = model.program().values[value];
  tensor.dtype = static_cast<DType>(v.dtype);
  tensor.layout = {static_cast<LayoutKind>(v.layout), v.halo[0], v.halo[1], v.halo[2], v.halo[3]};
  tensor.shape.rank = -1;
  return tensor;
}

Status infer_node(const Model& model, uint32_t node, const Tensor* inputs, Tensor* outputs, int32_t threads,
                  Inferred* result, Error* error, const Texts* texts) {
  const NodeInfo& info = model.node(node);
  InferContext& context = result->context;
  context = InferContext();
  context.attributes = &info.attributes;
  context.state = info.state;
  context.inputs = inputs;
  context.outputs = outputs;
  context.n_inputs = static_cast<int32_t>(info.record->inputs);
  context.n_outputs = static_cast<int32_t>(info.record->outputs);
  context.max_threads = threads;
  context.texts = texts;
  context.fail = infer_fail;
  context.host = error;
  result->needs_data = false;
  error->status = OPFORGE_STATUS_OK;
  const Status status = info.plugin != nullptr ? plugin_infer(*info.plugin, info.attributes, &context, error)
                                               : info.kernel->infer(context);
  if (status == OPFORGE_STATUS_UNSUPPORTED && context.missing_input >= 0 &&
      error->status == OPFORGE_STATUS_OK) {
    result->needs_data = true;
    return OPFORGE_STATUS_OK;
  }
  if (status != OPFORGE_STATUS_OK) return at_node(model, node, status, error);
  for (int32_t k = 0; k < context.n_outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    const Tensor& output = outputs[k];
    const auto wanted = static_cast<DType>(model.program().values[info.outputs[k]].dtype);
    if (output.dtype != wanted) {
      error->fail(OPFORGE_STATUS_INTERNAL, "output %d has another dtype than the file says", k)
          .wanted("%s", dtype_name(wanted))
          .found("%s", dtype_name(output.dtype));
      return at_node(model, node, error->status, error);
    }
    if (!good_shape(output.dtype, output.shape, output.layout)) {
      error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "output %d has an impossible size", k)
          .wanted("a tensor of at most %llu bytes", static_cast<unsigned long long>(format::kMaxBytes));
      return at_node(model, node, error->status, error);
    }
    const int64_t bytes = storage_bytes(output.dtype, output.shape, output.layout);
    if (!model.affordable(bytes)) {
      model.too_dear(bytes, error);
      return at_node(model, node, error->status, error);
    }
  }
  if (context.scratch_bytes < 0 || context.scratch_bytes > static_cast<int64_t>(format::kMaxBytes)) {
    error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "the scratch memory has an impossible size");
    return at_node(model, node, error->status, error);
  }
  if (!model.affordable(context.scratch_bytes)) {
    model.too_dear(context.scratch_bytes, error);
    return at_node(model, node, error->status, error);
  }
  return OPFORGE_STATUS_OK;
}

Status run_node(const Model& model, uint32_t node, const Tensor* inputs, Tensor* outputs, void* scratch,
                int32_t threads, Error* error, Texts* texts) {
  const NodeInfo& info = model.node(node);
  RunContext context{};
  context.state = info.state;
  context.attributes = &info.attributes;
  context.inputs = inputs;
  context.outputs = outputs;
  context.n_inputs = static_cast<int32_t>(info.record->inputs);
  context.n_outputs = static_cast<int32_t>(info.record->outputs);
  context.scratch = scratch;
  context.threads = threads;
  context.texts = texts;
  serve(&context);
  context.host = error;
  error->status = OPFORGE_STATUS_OK;
  const Status status = info.plugin != nullptr ? plugin_run(*info.plugin, info.attributes, &context, error)
                                               : info.kernel->run(context);
  return status == OPFORGE_STATUS_OK ? status : at_node(model, node, status, error);
}

void clear_halo(const Tensor& tensor) {
  const Layout& layout = tensor.layout;
  if ((layout.top | layout.left | layout.bottom | layout.right) == 0 || tensor.data == nullptr) return;
  const int64_t element = dtype_bits(tensor.dtype) / 8;
  const int64_t channels = tensor.shape[1], h = tensor.shape[2], w = tensor.shape[3];
  const int64_t row = w + layout.left + layout.right, rows = h + layout.top + layout.bottom;
  const bool blocked = layout.kind == LayoutKind::kC16;
  const int64_t blocks = blocked ? (channels + 15) / 16 : 1;
  auto* plane = tensor.as<uint8_t>();
  for (int64_t n = 0; n < tensor.shape[0]; ++n) {
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t lanes = layout.kind == LayoutKind::kNHWC16 ? (channels + 15) / 16 * 16 : channels;
      if (blocked) lanes = channels - b * 16 <= 8 ? 8 : 16;
      const auto pixel = static_cast<size_t>(lanes * element);
      // Right edge of a row and left edge of the next lie side by side.
      const size_t head = (static_cast<size_t>(layout.top * row) + layout.left) * pixel;
      const size_t between = static_cast<size_t>(layout.left + layout.right) * pixel;
      uint8_t* end = plane + static_cast<size_t>(rows * row) * pixel;
      uint8_t* at = h > 0 ? plane + head + static_cast<size_t>(w) * pixel : plane;  // no rows: all is halo
      if (h > 0) std::memset(plane, 0, head);
      for (int64_t y = 0; y + 1 < h; ++y, at += static_cast<size_t>(row) * pixel) std::memset(at, 0, between);
      std::memset(at, 0, static_cast<size_t>(end - at));
      plane = end;
    }
  }
}

}  // namespace opforge::session
