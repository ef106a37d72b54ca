// batch_matmul.cpp: products of two activations, one by one or in batches (opforge::BatchMatMul, ONNX
// MatMul).
#include "kernels/move.h"
#include "kernels/product.h"

namespace opforge {
namespace {

using namespace kernels;

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
  const auto matrices = [](const void* user, int64_t batch, int64_t* am, int64_t* bm) {
    matrices_of(*static_cast<const BatchShape*>(user), batch, am, bm);
  };
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
  const Unpacked thin{c.inputs[0].as<float>(),
                      c.inputs[1].as<float>(),
                      c.outputs[0].as<float>(),
                      s.m,
                      s.n,
                      s.k,
                      s.k,
                      1,
                      transpose_b ? 1 : s.n,
                      transpose_b ? s.k : 1,
                      s.batches};
  // Packing writes B once more than it is read for a row or two. Where many products take one B, that pays.
  if (thin.fits() && s.batches <= 2 * s.b_batches) {
    run_unpacked(c, thin, matrices, &s);
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

const OpKernel kRows[] = {
    {"opforge", "BatchMatMul", 1, 1, batch_load, batch_infer, batch_run, 0, 2, kMany},
    {"", "MatMul", 1, kNewest, batch_load, batch_infer, batch_run, 0, 2},
};

}  // namespace

}  // namespace opforge

OPFORGE_KERNELS(batch_matmul, opforge::kRows);
