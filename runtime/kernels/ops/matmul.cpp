// matmul.cpp: products with packed weights (opforge::MatMul, DequantizeMatMul) and of two activations
// (opforge::BatchMatMul, ONNX MatMul and Gemm).
#include "kernels/epilogue.h"
#include "kernels/move.h"
#include "kernels/product.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- opforge::MatMul
// ----------------------------------------------------------------------------------------
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

// ---- products of two activations
// ----------------------------------------------------------------------------
struct BatchState {
  bool transpose_b = false;
};

Status batch_load(LoadContext& c) {
  BatchState* s = new_state<BatchState>(c);
  if (s == nullptr) return no_memory(c);
  s->transpose_b = c.attributes->get_int("transB", 0) != 0;
  return OPFORGE_STATUS_OK;
}

struct BatchShape {
  int64_t m = 1, n = 1, k = 1, batches = 1, b_batches = 1;
  int rank = 0;                                                                     // of the batch dimensions
  int64_t dims[kMaxRank] = {}, a_strides[kMaxRank] = {}, b_strides[kMaxRank] = {};  // strides in matrices
  Shape out;
};

// False when the shapes do not fit.
bool batch_shape(const Shape& a, const Shape& b, bool transpose_b, BatchShape* s) {
  if (a.rank < 1 || b.rank < 1 || (transpose_b && b.rank < 2)) return false;
  s->m = a.rank > 1 ? a[-2] : 1;
  s->k = a[-1];
  const int64_t b_rows = b.rank > 1 ? b[-2] : b[-1], b_columns = b.rank > 1 ? b[-1] : 1;
  s->n = transpose_b ? b_rows : b_columns;
  if ((transpose_b ? b_columns : b_rows) != s->k) return false;
  const int a_batch = greater(0, a.rank - 2), b_batch = greater(0, b.rank - 2);
  s->rank = greater(a_batch, b_batch);
  int64_t a_stride = 1, b_stride = 1;
  for (int i = s->rank - 1; i >= 0; --i) {
    const int ai = i - (s->rank - a_batch), bi = i - (s->rank - b_batch);
    const int64_t ad = ai >= 0 ? a.dims[ai] : 1, bd = bi >= 0 ? b.dims[bi] : 1;
    if (ad != bd && ad != 1 && bd != 1) return false;
    s->dims[i] = ad == 1 ? bd : ad;
    s->a_strides[i] = ad == 1 ? 0 : a_stride;
    s->b_strides[i] = bd == 1 ? 0 : b_stride;
    a_stride *= ad, b_stride *= bd;
    s->batches *= s->dims[i];
  }
  s->b_batches = b_stride;
  s->out.rank = 0;
  for (int i = 0; i < s->rank; ++i) s->out.dims[s->out.rank++] = s->dims[i];
  if (a.rank > 1) s->out.dims[s->out.rank++] = s->m;
  if (b.rank > 1) s->out.dims[s->out.rank++] = s->n;
  return true;
}

void matrices_of(const BatchShape& s, int64_t batch, int64_t* a, int64_t* b) {
  *a = *b = 0;
  for (int i = s.rank - 1; i >= 0; --i) {
    *a += batch % s.dims[i] * s.a_strides[i];
    *b += batch % s.dims[i] * s.b_strides[i];
    batch /= s.dims[i];
  }
}

int64_t packed_floats(const BatchShape& s) { return scratch_floats(s.k * padded8(s.n)); }
// Rows of a unit where there are many products: about 192 KB of A.
int64_t batch_rows(const BatchShape& s) {
  return lesser<int64_t>(512, greater<int64_t>(56, 49152 / greater<int64_t>(s.k, 1)));
}

Status batch_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const BatchState& s = *static_cast<BatchState*>(c.state);
  const Tensor &a = c.inputs[0], &b = c.inputs[1];
  BatchShape shape;
  if (!is_plain(a) || !is_plain(b) || a.dtype != b.dtype ||
      !batch_shape(a.shape, b.shape, s.transpose_b, &shape))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shapes of the two operands of MatMul do not fit");
  c.outputs[0].shape = shape.out;
  if (a.dtype == DType::kF64) {
    c.scratch_bytes = double_scratch(shape.k, c.max_threads);
    return OPFORGE_STATUS_OK;
  }
  const int64_t panel =
      scratch_floats(isa_table().matmul_panel_floats(lesser(shape.m, batch_rows(shape)), shape.k));
  c.scratch_bytes =
      4 * (shape.b_batches * packed_floats(shape) +
           greater(ProductPlan(shape.m, shape.n, shape.k).scratch(c.max_threads), c.max_threads * panel));
  return OPFORGE_STATUS_OK;
}

// Any numeric type, element by element; sums in the type itself (f16 and bf16 do not come here).
template <class T>
void plain_product(RunContext& c, const BatchShape& s, bool transpose_b) {
  const T *a = c.inputs[0].as<T>(), *b = c.inputs[1].as<T>();
  T* out = c.outputs[0].as<T>();
  c.parallel(s.batches * s.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t am, bm;
      matrices_of(s, i / s.m, &am, &bm);
      const T* x = a + (am * s.m + i % s.m) * s.k;
      const T* y = b + bm * s.k * s.n;
      T* row = out + i * s.n;
      for (int64_t n = 0; n < s.n; ++n) row[n] = 0;
      if (transpose_b) {
        for (int64_t n = 0; n < s.n; ++n)
          for (int64_t k = 0; k < s.k; ++k) row[n] += x[k] * y[n * s.k + k];
        continue;
      }
      for (int64_t k = 0; k < s.k; ++k)
        for (int64_t n = 0; n < s.n; ++n) row[n] += x[k] * y[k * s.n + n];
    }
  });
}

Status batch_run(RunContext& c) {
  const bool transpose_b = static_cast<BatchState*>(c.state)->transpose_b;
  BatchShape s;
  batch_shape(c.inputs[0].shape, c.inputs[1].shape, transpose_b, &s);
  switch (c.inputs[0].dtype) {
    case DType::kF32:
      break;
    case DType::kF64: {
      const DoubleProducts g{c.inputs[0].as<double>(),
                             c.inputs[1].as<double>(),
                             c.outputs[0].as<double>(),
                             s.batches,
                             s.m,
                             s.n,
                             s.k,
                             s.k,
                             1,
                             transpose_b ? 1 : s.n,
                             transpose_b ? s.k : 1};
      const auto matrices = [](const void* user, int64_t batch, int64_t* am, int64_t* bm) {
        matrices_of(*static_cast<const BatchShape*>(user), batch, am, bm);
      };
      run_doubles(c, g, c.scratch, matrices, &s);
      return OPFORGE_STATUS_OK;
    }
    case DType::kI32:
      plain_product<uint32_t>(c, s, transpose_b);
      return OPFORGE_STATUS_OK;
    case DType::kU32:
      plain_product<uint32_t>(c, s, transpose_b);
      return OPFORGE_STATUS_OK;
    case DType::kI64:
      plain_product<uint64_t>(c, s, transpose_b);
      return OPFORGE_STATUS_OK;
    case DType::kU64:
      plain_product<uint64_t>(c, s, transpose_b);
      return OPFORGE_STATUS_OK;
    default:
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "MatMul has no kernel for this dtype");
  }
  if (s.batches == 0 || s.m == 0 || s.n == 0) return OPFORGE_STATUS_OK;
  const Unpacked thin{
      c.inputs[0].as<float>(), c.inputs[1].as<float>(), c.outputs[0].as<float>(), s.m, s.n, s.k, s.k, 1,
      transpose_b ? 1 : s.n,   transpose_b ? s.k : 1};
  if (s.batches == 1 && thin.fits()) {
    run_unpacked(c, thin);
    return OPFORGE_STATUS_OK;
  }
  const IsaTable& isa = isa_table();
  float* packed = static_cast<float*>(c.scratch);
  float* panels = packed + s.b_batches * packed_floats(s);
  const float* b = c.inputs[1].as<float>();
  const int64_t row = transpose_b ? 1 : s.n, column = transpose_b ? s.k : 1;
  const int64_t blocks = blocks16(s.n),
                parts = lesser<int64_t>(blocks, greater<int64_t>(1, s.k * s.n / 65536));
  for_units(c, s.b_batches * parts, [&](int64_t, int64_t unit) {
    const int64_t i = unit / parts, p = unit % parts;
    isa.pack_b(b + i * s.k * s.n, row, column, s.k, s.n, packed + i * packed_floats(s), cut(blocks, parts, p),
               cut(blocks, parts, p + 1));
  });
  MatmulArgs g{};
  g.a_row = s.k, g.a_column = 1;
  g.c_row = s.n;
  g.m = s.m, g.n = s.n, g.k = s.k;
  const float* a = c.inputs[0].as<float>();
  float* out = c.outputs[0].as<float>();
  if (s.batches == 1) {
    g.a = a, g.b = packed, g.c = out;
    run_product(c, g, ProductPlan(s.m, s.n, s.k), panels);
    return OPFORGE_STATUS_OK;
  }
  const int64_t units = ceil_div(s.m, batch_rows(s));
  const int64_t panel = scratch_floats(isa.matmul_panel_floats(lesser(s.m, batch_rows(s)), s.k));
  for_units(c, s.batches * units, [&](int64_t slot, int64_t unit) {
    int64_t am, bm;
    matrices_of(s, unit / units, &am, &bm);
    MatmulArgs h = g;
    h.a = a + am * s.m * s.k;
    h.b = packed + bm * packed_floats(s);
    h.c = out + unit / units * s.m * s.n;
    const int64_t m0 = cut(s.m, units, unit % units), m1 = cut(s.m, units, unit % units + 1);
    isa.pack_a(h, panels + slot * panel, m0, m1);
    isa.matmul(h, panels + slot * panel, m0, m1, 0, s.n);
  });
  return OPFORGE_STATUS_OK;
}

// ---- Gemm
// ---------------------------------------------------------------------------------------------------
struct GemmState {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 1;
};

Status gemm_load(LoadContext& c) {
  GemmState* s = new_state<GemmState>(c);
  if (s == nullptr) return no_memory(c);
  s->transpose_a = c.attributes->get_int("transA", 0) != 0;
  s->transpose_b = c.attributes->get_int("transB", 0) != 0;
  s->alpha = static_cast<float>(c.attributes->get_float("alpha", 1));
  s->beta = static_cast<float>(c.attributes->get_float("beta", 1));
  return OPFORGE_STATUS_OK;
}

bool gemm_shape(const GemmState& s, const Tensor* inputs, int64_t* m, int64_t* n, int64_t* k) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.rank != 2 || b.rank != 2 || inputs[0].dtype != inputs[1].dtype) return false;
  *m = a[s.transpose_a ? 1 : 0], *k = a[s.transpose_a ? 0 : 1];
  *n = b[s.transpose_b ? 0 : 1];
  return b[s.transpose_b ? 1 : 0] == *k;
}

// C broadcast to [m, n]: strides, or false.
bool gemm_c(const Shape& c, int64_t m, int64_t n, int64_t* row, int64_t* column) {
  if (c.rank > 2) return false;
  const int64_t cn = c.rank > 0 ? c[-1] : 1, cm = c.rank > 1 ? c[-2] : 1;
  *row = cm == 1 ? 0 : cn;
  *column = cn == 1 ? 0 : 1;
  return (cm == 1 || cm == m) && (cn == 1 || cn == n);
}

Status gemm_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const GemmState& s = *static_cast<GemmState*>(c.state);
  int64_t m, n, k, row, column;
  const bool has_c = c.n_inputs > 2 && c.inputs[2].present();
  if (!gemm_shape(s, c.inputs, &m, &n, &k) || (has_c && !gemm_c(c.inputs[2].shape, m, n, &row, &column)) ||
      (has_c && c.inputs[2].dtype != c.inputs[0].dtype))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shapes or dtypes of Gemm's operands do not fit");
  c.outputs[0].shape.rank = 2;
  c.outputs[0].shape.dims[0] = m;
  c.outputs[0].shape.dims[1] = n;
  c.scratch_bytes = c.inputs[0].dtype == DType::kF64
                        ? double_scratch(k, c.max_threads)
                        : 4 * (scratch_floats(k * padded8(n)) + ProductPlan(m, n, k).scratch(c.max_threads));
  return OPFORGE_STATUS_OK;
}

// Integers are unsigned here, since they wrap; a factor of theirs may be negative.
template <class T>
T factor_of(float x) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
  if (!(x == x)) return 0;
  return static_cast<T>(static_cast<int64_t>(greater(-1e15f, lesser(1e15f, x))));
}

template <class T>
void plain_gemm(RunContext& c, const GemmState& s, int64_t m, int64_t n, int64_t k, const T* bias,
                int64_t bias_row, int64_t bias_column) {
  const T *a = c.inputs[0].as<T>(), *b = c.inputs[1].as<T>();
  T* out = c.outputs[0].as<T>();
  c.parallel(m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = out + i * n;
      for (int64_t j = 0; j < n; ++j) row[j] = 0;
      const auto left = [&](int64_t p) { return s.transpose_a ? a[p * m + i] : a[i * k + p]; };
      if (s.transpose_b) {
        for (int64_t j = 0; j < n; ++j)
          for (int64_t p = 0; p < k; ++p) row[j] += left(p) * b[j * k + p];
      } else {
        for (int64_t p = 0; p < k; ++p) {
          const T factor = left(p);
          for (int64_t j = 0; j < n; ++j) row[j] += factor * b[p * n + j];
        }
      }
      for (int64_t j = 0; j < n; ++j) {
        row[j] = factor_of<T>(s.alpha) * row[j];
        if (bias != nullptr) row[j] += factor_of<T>(s.beta) * bias[i * bias_row + j * bias_column];
      }
    }
  });
}

// The product becomes alpha * product + beta * C.
template <class T>
void finish_gemm(RunContext& c, const GemmState& s, int64_t m, int64_t n, const T* bias, int64_t bias_row,
                 int64_t bias_column) {
  if (s.alpha == 1 && bias == nullptr) return;
  T* product = c.outputs[0].as<T>();
  c.parallel(m, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* out = product + i * n;
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<T>(s.alpha) * out[j] +
                 (bias != nullptr ? static_cast<T>(s.beta) * bias[i * bias_row + j * bias_column] : T(0));
    }
  });
}

Status gemm_run(RunContext& c) {
  const GemmState& s = *static_cast<GemmState*>(c.state);
  int64_t m = 0, n = 0, k = 0, row = 0, column = 0;
  gemm_shape(s, c.inputs, &m, &n, &k);
  const bool has_c = c.n_inputs > 2 && c.inputs[2].present();
  if (has_c) gemm_c(c.inputs[2].shape, m, n, &row, &column);
  const DType dtype = c.inputs[0].dtype;
  if (dtype == DType::kF64) {
    const DoubleProducts g{c.inputs[0].as<double>(),
                           c.inputs[1].as<double>(),
                           c.outputs[0].as<double>(),
                           1,
                           m,
                           n,
                           k,
                           s.transpose_a ? 1 : k,
                           s.transpose_a ? m : 1,
                           s.transpose_b ? 1 : n,
                           s.transpose_b ? k : 1};
    run_doubles(c, g, c.scratch, [](const void*, int64_t, int64_t*, int64_t*) {}, nullptr);
    finish_gemm<double>(c, s, m, n, has_c ? c.inputs[2].as<double>() : nullptr, row, column);
    return OPFORGE_STATUS_OK;
  }
  if (dtype == DType::kI32 || dtype == DType::kU32) {
    plain_gemm<uint32_t>(c, s, m, n, k, has_c ? c.inputs[2].as<uint32_t>() : nullptr, row, column);
    return OPFORGE_STATUS_OK;
  }
  if (dtype == DType::kI64 || dtype == DType::kU64) {
    plain_gemm<uint64_t>(c, s, m, n, k, has_c ? c.inputs[2].as<uint64_t>() : nullptr, row, column);
    return OPFORGE_STATUS_OK;
  }
  if (dtype != DType::kF32)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "Gemm has no kernel for this dtype");
  float* packed = static_cast<float*>(c.scratch);
  MatmulArgs g{};
  g.a = c.inputs[0].as<float>();
  g.a_row = s.transpose_a ? 1 : k, g.a_column = s.transpose_a ? m : 1;
  g.b = packed;
  g.c = c.outputs[0].as<float>(), g.c_row = n;
  g.m = m, g.n = n, g.k = k;
  isa_table().pack_b(c.inputs[1].as<float>(), s.transpose_b ? 1 : n, s.transpose_b ? k : 1, k, n, packed, 0,
                     blocks16(n));
  run_product(c, g, ProductPlan(m, n, k), packed + scratch_floats(k * padded8(n)));
  finish_gemm<float>(c, s, m, n, has_c ? c.inputs[2].as<float>() : nullptr, row, column);
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "MatMul", 1, 1, matmul_load, matmul_infer, matmul_run, 0, 2, kMany},
    {"opforge", "DequantizeMatMul", 1, 1, coded_load, matmul_infer, matmul_run, 0, 2, kMany},
    {"opforge", "BatchMatMul", 1, 1, batch_load, batch_infer, batch_run, 0, 2, kMany},
    {"", "MatMul", 1, kNewest, batch_load, batch_infer, batch_run, 0, 2},
    {"", "Gemm", 7, kNewest, gemm_load, gemm_infer, gemm_run, 0, 2, 3},
};

}  // namespace

}  // namespace opforge

OPFORGE_KERNELS(matmul, opforge::kRows);
