// matmul.cpp: products with packed weights (opforge::MatMul, DequantizeMatMul).
#include "kernels/epilogue.h"
#include "kernels/move.h"
#include "kernels/product.h"

namespace opforge {
namespace {

using namespace kernels;

struct MatMulState {
  int64_t k = 0, n = 0;
  WeightKind weights = WeightKind::kF32;
  OperandKind operands = OperandKind::kAsTheyAre;
  Codes codes{};
  Activation activation;
  const float* bias = nullptr;
  Epilogue epilogue;
};

// Bias, activation and epilogue, whose operands begin at input `operands`.
Status load_rest(LoadContext& c, MatMulState* s, int32_t operands) {
  const Tensor* bias = c.n_inputs > 2 && c.inputs[2].present() ? &c.inputs[2] : nullptr;
  if (bias != nullptr) {
    if (bias->data == nullptr || !is_f32(*bias) || bias->shape.elements() != s->n)
      return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the bias is not a constant f32 [N=%lld]",
                    static_cast<long long>(s->n));
    s->bias = padded_bias(c, bias, s->n);
    if (s->bias == nullptr) return no_memory(c);
  }
  if (!read_activation(*c.attributes, &s->activation))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "unknown activation");
  return load_epilogue(c, operands, &s->epilogue);
}

Status matmul_load(LoadContext& c) {
  MatMulState* s = new_state<MatMulState>(c);
  if (s == nullptr) return no_memory(c);
  const Tensor& b = c.inputs[1];
  s->k = c.attributes->get_int("K", 0);
  s->n = c.attributes->get_int("N", 0);
  if (c.n_inputs < 2 || b.data == nullptr || !weight_kind(b, &s->weights) || b.shape.rank != 2 ||
      b.packing != Packing::kMatmul16 || b.shape[0] != s->k || b.shape[1] != s->n)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT,
                  "B is not a constant f32, f16 or bf16 [K=%lld, N=%lld] packed as matmul16",
                  static_cast<long long>(s->k), static_cast<long long>(s->n));
  const int64_t rounded = c.attributes->get_int("bf16_operands", 0);
  if (rounded != 0 && (rounded != 1 || s->weights != WeightKind::kBF16))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "bf16_operands is not 0, or 1 with weights of bf16");
  if (rounded != 0) s->operands = isa_bf16_pairs() ? OperandKind::kPairs : OperandKind::kRounded;
  return load_rest(c, s, 3);
}

// B as codes: see Codes in isa/table.h.
Status coded_load(LoadContext& c) {
  MatMulState* s = new_state<MatMulState>(c);
  if (s == nullptr) return no_memory(c);
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto attribute = [&](const char* name) { return c.attributes->get_int(name, 0); };
  s->k = attribute("K"), s->n = attribute("N"), s->codes.rows = attribute("group");
  const int64_t bits = attribute("bits"), zero = attribute("zero");
  s->weights = bits == 4 ? WeightKind::kU4 : WeightKind::kU8;
  s->codes.zero = static_cast<float>(zero);
  if ((bits != 4 && bits != 8) || s->k < 1 || s->k > kMost || s->n < 1 || s->n > kMost || s->codes.rows < 1 ||
      (s->codes.rows < s->k && s->codes.rows % 8 != 0) || zero < 0 || zero >> bits != 0)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "K, N, bits, group or zero out of range");
  s->codes.rows = lesser(s->codes.rows, s->k);
  const auto is = [&](int32_t input, DType dtype, int64_t rows, int64_t columns) {
    const Tensor& t = c.inputs[input];
    return input < c.n_inputs && t.data != nullptr && t.dtype == dtype && t.packing == Packing::kNone &&
           is_plain(t) && t.shape.rank == 3 && t.shape[0] == blocks16(s->n) && t.shape[1] == rows &&
           t.shape[2] == columns;
  };
  const int64_t groups = ceil_div(s->k, s->codes.rows);
  const bool zeros = c.n_inputs > 4 && c.inputs[4].present();
  if (!is(1, DType::kU8, ceil_div(s->k, 32 / bits), 64) || !is(3, DType::kF32, groups, 16) ||
      (zeros && !is(4, DType::kU8, groups, 16)))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "codes, scales or zeros are not constants of the node's sizes");
  return load_rest(c, s, 5);
}

Status matmul_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const MatMulState& s = *static_cast<MatMulState*>(c.state);
  const Tensor& a = c.inputs[0];
  if (!is_f32(a) || !is_plain(a) || a.shape.rank < 1 || a.shape[-1] != s.k)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "A is not f32 [..., %lld]",
                  static_cast<long long>(s.k));
  Shape& out = c.outputs[0].shape;
  out = a.shape;
  out.dims[out.rank - 1] = s.n;
  int64_t m = 1;
  for (int i = 0; i + 1 < out.rank; ++i) m *= out.dims[i];
  c.scratch_bytes = ProductPlan(m, s.n, s.k, s.weights).scratch(c.max_threads) * 4;
  return OPFORGE_STATUS_OK;
}

Status matmul_run(RunContext& c) {
  const MatMulState& s = *static_cast<MatMulState*>(c.state);
  const Tensor& a = c.inputs[0];
  EpilogueRun epilogue;
  const Status status = epilogue.prepare(c, s.epilogue, c.outputs[0]);
  if (status != OPFORGE_STATUS_OK) return status;
  MatmulArgs g{};
  g.a = a.as<float>(), g.a_row = s.k, g.a_column = 1;
  g.b = c.inputs[1].data, g.b_kind = s.weights, g.operands = s.operands;
  if (g.b_kind == WeightKind::kU4 || g.b_kind == WeightKind::kU8) {
    const Tensor* zeros = optional_input(c.inputs, c.n_inputs, 4);
    g.codes = s.codes;
    g.codes.scales = c.inputs[3].as<float>();
    g.codes.zeros = zeros != nullptr ? zeros->as<uint8_t>() : nullptr;
  }
  g.bias = s.bias;
  g.c = c.outputs[0].as<float>(), g.c_row = s.n;
  g.m = 1;
  for (int i = 0; i + 1 < a.shape.rank; ++i) g.m *= a.shape[i];
  g.n = s.n, g.k = s.k;
  g.activation = s.activation;
  g.epilogue = epilogue.function(), g.user = epilogue.user();
  run_product(c, g, ProductPlan(g.m, g.n, g.k, s.weights), static_cast<float*>(c.scratch));
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "MatMul", 1, 1, matmul_load, matmul_infer, matmul_run, 0, 2, kMany},
    {"opforge", "DequantizeMatMul", 1, 1, coded_load, matmul_infer, matmul_run, 0, 2, kMany},
};

}  // namespace

}  // namespace opforge

OPFORGE_KERNELS(matmul, opforge::kRows);
