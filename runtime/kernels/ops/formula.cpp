// formula.cpp: opforge::Formula: an elementwise program over tensors.
#include <initializer_list>

#include "kernels/epilogue.h"
#include "kernels/nhwc.h"

namespace opforge {
namespace {

using namespace kernels;

struct FormulaState {
  const bytecode::Program* program = nullptr;
  const void* blob = nullptr;
  int32_t inputs = 0, outputs = 0;
  uint32_t wanted = 0;
  bool summed = false, rows = false;
};

// The formula's T: the dtype with which all operands fit.
bool find_storage(const LoadContext& c, const void* blob, int32_t n_inputs, DType* storage) {
  for (const DType candidate : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    bool fits = true;
    for (int i = 0; i < n_inputs && fits; ++i)
      fits = c.inputs[i].dtype == bytecode::input_dtype(blob, i, candidate);
    if (fits) {
      *storage = candidate;
      return true;
    }
  }
  return false;
}

Status formula_load(LoadContext& c) {
  FormulaState* s = new_state<FormulaState>(c);
  if (s == nullptr) return no_memory(c);
  const BytecodeView blob = c.attributes->get_bytecode("bytecode");
  if (blob.data == nullptr) return c.fail(&c, OPFORGE_STATUS_CORRUPT, "Formula has no attribute bytecode");
  char reason[256];
  Status status = bytecode::verify(blob.data, blob.size, reason, sizeof(reason));
  if (status != OPFORGE_STATUS_OK) return c.fail(&c, status, "bytecode: %s", reason);
  const bytecode::Counts counts = bytecode::counts(blob.data);
  if (counts.attributes != 0 || counts.inputs != c.n_inputs || counts.outputs != c.n_outputs)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT,
                  "the bytecode has %d inputs, %d outputs, %d attributes; the node %d, %d, 0", counts.inputs,
                  counts.outputs, counts.attributes, c.n_inputs, c.n_outputs);
  DType storage;
  if (!find_storage(c, blob.data, counts.inputs, &storage))
    return c.fail(&c, OPFORGE_STATUS_TYPE, "the operands of Formula do not have the dtypes of its bytecode");
  s->blob = blob.data;
  s->inputs = counts.inputs, s->outputs = counts.outputs;
  s->wanted = (uint32_t{1} << counts.outputs) - 1;
  for (int i = 0; i < counts.outputs; ++i)
    s->summed = s->summed || bytecode::output_sum_to(blob.data, i) >= 0;
  const size_t bytes = bytecode::program_bytes(blob.data);
  void* memory = c.allocate(&c, bytes);
  if (memory == nullptr) return no_memory(c);
  status = bytecode::link(blob.data, storage, nullptr, s->wanted, memory, bytes, &s->program, reason,
                          sizeof(reason));
  if (status != OPFORGE_STATUS_OK) return c.fail(&c, status, "bytecode: %s", reason);
  s->rows = storage == DType::kF32 && bytecode::rows_ready(s->program);
  return OPFORGE_STATUS_OK;
}

opforge_tensor dlpack_of(const Tensor& t) {
  opforge_tensor r{};
  r.data = t.data;
  r.device.type = OPFORGE_DEVICE_CPU;
  r.ndim = t.shape.rank;
  r.shape = const_cast<int64_t*>(t.shape.dims);
  uint8_t code = OPFORGE_CODE_FLOAT, bits = 32;
  switch (t.dtype) {
    case DType::kF32:
      break;
    case DType::kF16:
      bits = 16;
      break;
    case DType::kBF16:
      code = OPFORGE_CODE_BFLOAT, bits = 16;
      break;
    case DType::kF64:
      bits = 64;
      break;
    case DType::kBool:
      code = OPFORGE_CODE_BOOL, bits = 8;
      break;
    case DType::kI32:
      code = OPFORGE_CODE_INT;
      break;
    case DType::kI64:
      code = OPFORGE_CODE_INT, bits = 64;
      break;
    case DType::kI8:
      code = OPFORGE_CODE_INT, bits = 8;
      break;
    case DType::kU8:
      code = OPFORGE_CODE_UINT, bits = 8;
      break;
    default:
      bits = 0;  // no dtype of formulas
      break;
  }
  r.dtype = {code, bits, 1};
  return r;
}

void tensors_of(const Tensor* inputs, int32_t n_inputs, const Tensor* outputs, int32_t n_outputs,
                opforge_tensor* in, opforge_tensor* out) {
  for (int i = 0; i < n_inputs; ++i) in[i] = dlpack_of(inputs[i]);
  for (int i = 0; i < n_outputs; ++i) {
    out[i] = dlpack_of(outputs[i]);
    if (!outputs[i].present()) out[i].data = nullptr, out[i].ndim = -1;
  }
}

// Beside values in nhwc: the dimensions of an operand in the order in which they lie, channels last. False
// where it does not lie so: what is plain must be a number or numbers per channel.
bool in_order(const Tensor& t, const Tensor& y, Tensor* to) {
  *to = t;
  Shape& s = to->shape;
  const bool vector = t.shape.rank >= 3 && t.shape.rank <= 4 && t.shape[-1] == 1 && t.shape[-2] == 1;
  if (is_nhwc(t)) {
    s.dims[1] = t.shape[2], s.dims[2] = t.shape[3], s.dims[3] = pixel_of(t);
    return t.layout.kind == y.layout.kind && t.shape[1] == y.shape[1];
  }
  if (!is_plain(t) || t.packing != Packing::kNone) return false;
  if (t.shape.rank <= 4 && t.shape.elements() == 1) {
    s = Shape();
    return true;
  }
  if (!vector || pixel_of(y) != y.shape[1]) return false;
  if (t.shape.rank == 4) s.dims[1] = s.dims[2] = 1, s.dims[3] = t.shape[1];
  if (t.shape.rank == 3) s.rank = 1;
  return true;
}

// The same for a whole node; false where a value does not fit.
bool nodes_in_order(const Tensor* inputs, int32_t n_inputs, const Tensor* outputs, int32_t n_outputs,
                    opforge_tensor* in, opforge_tensor* out, Tensor* held) {
  for (int i = 0; i < n_inputs; ++i) {
    if (!in_order(inputs[i], outputs[0], held + i)) return false;
    in[i] = dlpack_of(held[i]);
  }
  for (int i = 0; i < n_outputs; ++i) {
    Tensor* to = held + n_inputs + i;
    if (!outputs[i].present() || !is_nhwc(outputs[i]) || !in_order(outputs[i], outputs[0], to)) return false;
    out[i] = dlpack_of(*to);
  }
  return true;
}

Status formula_infer(InferContext& c) {
  const FormulaState& s = *static_cast<FormulaState*>(c.state);
  Shape joint;
  bool c16 = false;
  for (int i = 0; i < c.n_inputs; ++i) {
    const Shape& x = c.inputs[i].shape;
    c16 = c16 || is_c16(c.inputs[i]);
    Shape wider = x.rank > joint.rank ? x : joint;
    const Shape& other = x.rank > joint.rank ? joint : x;
    for (int k = 1; k <= other.rank; ++k) {
      const int64_t a = wider[-k], b = other[-k];
      if (a != b && a != 1 && b != 1)
        return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                      "the operands of Formula do not broadcast: %lld and %lld", static_cast<long long>(a),
                      static_cast<long long>(b));
      wider.dims[wider.rank - k] = a == 1 ? b : a;
    }
    joint = wider;
  }
  for (int i = 0; i < c.n_outputs; ++i) {
    if (!c.outputs[i].present()) continue;
    const int32_t to = bytecode::output_sum_to(s.blob, i);
    c.outputs[i].shape = to >= 0 ? c.inputs[to].shape : joint;
    c16 = c16 || is_c16(c.outputs[i]);
  }
  // In place: one output, and an input of the same bytes.
  if (c.n_outputs == 1 && !s.summed) {
    for (int i = 0; i < c.n_inputs; ++i) {
      const Tensor& x = c.inputs[i];
      if (x.dtype == c.outputs[0].dtype && same_shape(x.shape, joint) &&
          same_layout(x.layout, c.outputs[0].layout))
        c.inplace_input[0] = i;
    }
  }
  if (c16) {
    if (!s.rows || c.n_inputs > kMaxOperands || s.summed)
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "a formula on c16 values is f32 and sums nothing");
    if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
    for (int i = 0; i < c.n_outputs; ++i)
      if (!c.outputs[i].present() || !is_c16(c.outputs[i]) ||
          !same_layout(c.outputs[i].layout, c.outputs[0].layout))
        return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED,
                      "the outputs of a formula on c16 values have one c16 layout");
    return OPFORGE_STATUS_OK;
  }
  opforge_tensor in[bytecode::kMaxInputs], out[bytecode::kMaxOutputs];
  bool pixels = false;
  for (int i = 0; i < c.n_inputs; ++i) pixels = pixels || wants_nhwc(c.inputs[i]);
  for (int i = 0; i < c.n_outputs; ++i) pixels = pixels || wants_nhwc(c.outputs[i]);
  Tensor held[bytecode::kMaxInputs + bytecode::kMaxOutputs];
  if (!pixels)
    tensors_of(c.inputs, c.n_inputs, c.outputs, c.n_outputs, in, out);
  else if (s.summed || !nodes_in_order(c.inputs, c.n_inputs, c.outputs, c.n_outputs, in, out, held))
    return c.fail(
        &c, OPFORGE_STATUS_UNSUPPORTED,
        "a formula on nhwc values takes such values, numbers and numbers per channel, and sums nothing");
  c.scratch_bytes = bytecode::scratch_bytes(s.program, in, out);
  if (c.scratch_bytes < 0)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shapes do not fit the bytecode");
  return OPFORGE_STATUS_OK;
}

Status formula_run(RunContext& c) {
  const FormulaState& s = *static_cast<FormulaState*>(c.state);
  if (is_c16(c.outputs[0])) {
    const Tensor& y = c.outputs[0];
    if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
    EpilogueRun run;
    const Status status = run.prepare_formula(c, s.program);
    if (status != OPFORGE_STATUS_OK) return status;
    for_strips(
        c, y.shape[0], blocks16(y.shape[1]), y.shape[2], y.shape[2] * y.shape[3] / 1024,
        [&](int64_t image, int64_t block, int64_t y0, int64_t y1) { run.run_formula(image, block, y0, y1); });
    return OPFORGE_STATUS_OK;
  }
  opforge_tensor in[bytecode::kMaxInputs], out[bytecode::kMaxOutputs];
  Tensor held[bytecode::kMaxInputs + bytecode::kMaxOutputs];
  if (is_nhwc(c.outputs[0]))
    nodes_in_order(c.inputs, c.n_inputs, c.outputs, c.n_outputs, in, out, held);
  else
    tensors_of(c.inputs, c.n_inputs, c.outputs, c.n_outputs, in, out);
  bytecode::Workers workers;
  workers.host = &c;
  workers.parallel_for = [](void* host, int64_t n, int64_t grain, RangeBody body, void* user) {
    RunContext* context = static_cast<RunContext*>(host);
    context->parallel_for(context, n, grain, body, user);
  };
  char reason[256] = "";
  const Status status =
      bytecode::run_tensors(s.program, in, out, nullptr, workers, c.scratch, reason, sizeof(reason));
  return status == OPFORGE_STATUS_OK ? status : c.fail(&c, status, "formula: %s", reason);
}

const OpKernel kRows[] = {{"opforge", "Formula", 1, 1, formula_load, formula_infer, formula_run,
                           kAllInputs | kPerImage, 1, 0, kMany}};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(formula, opforge::kRows);
