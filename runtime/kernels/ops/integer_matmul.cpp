// integer_matmul.cpp: products of quantised matrices: opforge::IntegerMatMul with packed weights, and ONNX's
// MatMulInteger and QLinearMatMul.
#include "kernels/integer.h"
#include "opforge/half.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- opforge::IntegerMatMul: A, B (integer16), sums of B's columns, then the terms
// ----------------------------------------------------------------------------------
struct PackedState {
  int64_t k = 0, n = 0;
};

Status packed_load(LoadContext& c) {
  PackedState* s = new_state<PackedState>(c);
  if (s == nullptr) return no_memory(c);
  const Tensor &b = c.inputs[1], &sums = c.inputs[2];
  if (b.data == nullptr || b.dtype != DType::kI8 || b.packing != Packing::kInteger16 || b.shape.rank != 2)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "B is not a constant i8 [K, N] packed as integer16");
  s->k = b.shape[0], s->n = b.shape[1];
  if (sums.data == nullptr || sums.dtype != DType::kI32 || sums.shape.elements() != s->n || !is_plain(sums))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the sums of B's columns are not a constant i32 [N=%lld]",
                  static_cast<long long>(s->n));
  return OPFORGE_STATUS_OK;
}

Status packed_infer(InferContext& c) {
  const PackedState& s = *static_cast<PackedState*>(c.state);
  const Tensor& a = c.inputs[0];
  if (!is_byte(a) || a.packing != Packing::kNone || a.shape.rank < 1 || a.shape[-1] != s.k)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "A is not u8 or i8 [..., %lld]",
                  static_cast<long long>(s.k));
  if (Status wrong = check_terms(c, 3, s.n)) return wrong;
  if (!is_plain(c.outputs[0]))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the output of a quantised product is not plain");
  Shape& out = c.outputs[0].shape;
  out = a.shape;
  out.dims[out.rank - 1] = s.n;
  int64_t m = 1;
  for (int i = 0; i + 1 < out.rank; ++i) m *= out.dims[i];
  c.scratch_bytes = 4 * vector_words(s.n) + IntegerProduct::scratch(m, s.k);
  return OPFORGE_STATUS_OK;
}

Status packed_run(RunContext& c) {
  const PackedState& s = *static_cast<PackedState*>(c.state);
  const Tensor &a = c.inputs[0], &y = c.outputs[0];
  const IntegerTerms terms = terms_of(c.inputs, c.n_inputs, 3, *c.attributes);
  IntegerProduct p{};
  p.m = 1, p.n = s.n, p.k = s.k;
  for (int i = 0; i + 1 < a.shape.rank; ++i) p.m *= a.shape[i];
  fill_terms(terms, a.dtype, y.dtype, s.n, s.k, c.inputs[2].as<int32_t>(), c.scratch, &p.args);
  p.args.b = c.inputs[1].as<int8_t>();
  p.args.c = y.data;
  p.args.c_row = s.n;
  p.a = a.as<uint8_t>(), p.a_dtype = a.dtype;
  p.rows = needs_rows(terms, s.n);
  run_integer_product(c, p, static_cast<uint8_t*>(c.scratch) + 4 * vector_words(s.n));
  return OPFORGE_STATUS_OK;
}

// ---- ONNX: any operand, zero points and scales per tensor, row or column
// ----------------------------------------------------------------------------------------
struct Shapes {
  Shape out, a, b;  // with batch dimensions broadcast strides below
  int64_t m = 1, n = 1, k = 1, batches = 1;
  int rank = 0;
  int64_t dims[kMaxRank] = {}, a_strides[kMaxRank] = {}, b_strides[kMaxRank] = {};  // in matrices
};

bool shapes_of(const Shape& a, const Shape& b, Shapes* s) {
  if (a.rank < 1 || b.rank < 1) return false;
  s->m = a.rank > 1 ? a[-2] : 1, s->k = a[-1], s->n = b.rank > 1 ? b[-1] : 1;
  if ((b.rank > 1 ? b[-2] : b[-1]) != s->k) return false;
  Shape x = a, y = b;
  x.rank = greater(0, a.rank - 2), y.rank = greater(0, b.rank - 2);
  if (!broadcast(x, y, &s->out)) return false;
  s->rank = s->out.rank;
  broadcast_strides(x, s->out, s->a_strides);
  broadcast_strides(y, s->out, s->b_strides);
  for (int i = 0; i < s->rank; ++i)
    if (__builtin_mul_overflow(s->batches, s->dims[i] = s->out.dims[i], &s->batches)) return false;
  if (s->rank + 2 > kMaxRank) return false;
  if (a.rank > 1) s->out.dims[s->out.rank++] = s->m;
  if (b.rank > 1) s->out.dims[s->out.rank++] = s->n;
  return true;
}

int64_t matrix_of(const Shapes& s, const int64_t* strides, int64_t batch) {
  int64_t matrix = 0;
  for (int i = s.rank - 1; i >= 0; --i) {
    matrix += batch % s.dims[i] * strides[i];
    batch /= s.dims[i];
  }
  return matrix;
}

// A number, one per row or column of the matrix (1-D), or the shape of the operand with its inner axis 1.
enum class Spread { kOne, kVector, kMatrices, kWrong };
Spread spread_of(const Tensor* t, const Shape& operand, bool rows) {
  if (t == nullptr || t->shape.elements() == 1) return Spread::kOne;
  if (operand.rank < 2) return Spread::kWrong;
  const int64_t count = rows ? operand[-2] : operand[-1];
  if (t->shape.rank == 1) return t->shape[0] == count ? Spread::kVector : Spread::kWrong;
  Shape wanted = operand;
  wanted.dims[operand.rank - (rows ? 1 : 2)] = 1;
  return same_shape(wanted, t->shape) ? Spread::kMatrices : Spread::kWrong;
}

// The same for the rows of the result, which are those of its shape where both operands are matrices.
Spread spread_of_result(const Tensor* t, const QuantisedOperands& o, const Shape& out) {
  if (t == nullptr || t->shape.elements() == 1) return Spread::kOne;
  return o.a->shape.rank < 2 || o.b->shape.rank < 2 ? Spread::kWrong : spread_of(t, out, true);
}

// Where the value for row or column i of matrix `matrix` lies.
int64_t place(Spread spread, int64_t matrix, int64_t count, int64_t i) {
  return spread == Spread::kOne ? 0 : spread == Spread::kVector ? i : matrix * count + i;
}

float scale_at(const Tensor* t, int64_t k) {
  if (t->dtype == DType::kF16) return t->as<f16>()[k];
  if (t->dtype == DType::kBF16) return t->as<bf16>()[k];
  return t->as<float>()[k];
}

Status refused(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the operands, scales or zero points of a quantised MatMul do not fit");
}

Status general_infer(InferContext& c, bool scaled) {
  if (scaled && c.n_inputs < 8) return refused(c);
  const QuantisedOperands o = operands_of(c.inputs, c.n_inputs, scaled);
  Shapes s;
  if (!is_byte(*o.a) || !is_byte(*o.b) || o.a->packing != Packing::kNone || o.b->packing != Packing::kNone ||
      !shapes_of(o.a->shape, o.b->shape, &s))
    return refused(c);
  const auto zero = [](const Tensor* t, DType dtype) {
    return t == nullptr || (t->dtype == dtype && is_byte(*t));
  };
  const auto scale = [](const Tensor* t) {
    return t != nullptr && is_plain(*t) &&
           (t->dtype == DType::kF32 || t->dtype == DType::kF16 || t->dtype == DType::kBF16);
  };
  const Tensor& y = c.outputs[0];
  if (!zero(o.a_zero, o.a->dtype) || !zero(o.b_zero, o.b->dtype) || !is_plain(y) ||
      spread_of(o.a_zero, o.a->shape, true) == Spread::kWrong ||
      spread_of(o.b_zero, o.b->shape, false) == Spread::kWrong)
    return refused(c);
  if (scaled ? !is_byte(y.dtype) || !scale(o.a_scale) || !scale(o.b_scale) || !scale(o.y_scale) ||
                   !zero(o.y_zero, y.dtype) || spread_of(o.a_scale, o.a->shape, true) == Spread::kWrong ||
                   spread_of(o.b_scale, o.b->shape, false) == Spread::kWrong ||
                   spread_of_result(o.y_scale, o, s.out) == Spread::kWrong ||
                   spread_of_result(o.y_zero, o, s.out) == Spread::kWrong
             : y.dtype != DType::kI32)
    return refused(c);
  c.outputs[0].shape = s.out;
  // Packed B, its sums, the moved zero points and scales of its columns, the vectors, A.
  c.scratch_bytes = packed_integers(s.k, s.n) + 3 * 4 * padded16(s.n) + 4 * vector_words(s.n) +
                    IntegerProduct::scratch(s.m, s.k);
  return OPFORGE_STATUS_OK;
}

// One product by the fast loops: the same zero point and scale for all rows.
void fast_product(RunContext& c, const QuantisedOperands& o, const Shapes& s, int64_t batch, int64_t am,
                  int64_t bm) {
  auto* packed = static_cast<int8_t*>(c.scratch);
  auto* sums = reinterpret_cast<int32_t*>(packed + packed_integers(s.k, s.n));
  int32_t* zeros = sums + padded16(s.n);
  auto* scales = reinterpret_cast<float*>(zeros + padded16(s.n));
  void* vectors = scales + padded16(s.n);
  const uint8_t flip = o.b->dtype == DType::kU8 ? kTopBit : 0;
  pack_integers(o.b->as<uint8_t>() + bm * s.k * s.n, s.n, 1, s.k, s.n, flip, packed, sums);
  const Spread zero = spread_of(o.b_zero, o.b->shape, false), scale = spread_of(o.b_scale, o.b->shape, false);
  for (int64_t j = 0; j < s.n; ++j) {
    zeros[j] = byte_at(o.b_zero, place(zero, bm, s.n, j)) - (flip != 0 ? 128 : 0);
    if (o.b_scale != nullptr)
      scales[j] =
          scale_at(o.a_scale, 0) * scale_at(o.b_scale, place(scale, bm, s.n, j)) / scale_at(o.y_scale, 0);
  }
  Tensor zero_tensor, scale_tensor;
  zero_tensor.data = zeros, zero_tensor.dtype = DType::kI32;
  scale_tensor.data = scales, scale_tensor.dtype = DType::kF32;
  zero_tensor.shape.rank = scale_tensor.shape.rank = 1;
  zero_tensor.shape.dims[0] = scale_tensor.shape.dims[0] = s.n;
  IntegerTerms terms;
  terms.a_zero = o.a_zero;
  terms.b_zero = &zero_tensor;
  terms.scale = o.b_scale != nullptr ? &scale_tensor : nullptr;
  terms.y_zero = o.y_zero;
  const Tensor& y = c.outputs[0];
  IntegerProduct p{};
  p.m = s.m, p.n = s.n, p.k = s.k;
  fill_terms(terms, o.a->dtype, y.dtype, s.n, s.k, sums, vectors, &p.args);
  p.args.b = packed;
  p.args.c = y.as<uint8_t>() + batch * s.m * s.n * (dtype_bits(y.dtype) / 8);
  p.args.c_row = s.n;
  p.a = o.a->as<uint8_t>() + am * s.m * s.k, p.a_dtype = o.a->dtype;
  p.rows = needs_rows(terms, s.n);
  run_integer_product(c, p, static_cast<uint8_t*>(vectors) + 4 * vector_words(s.n));
}

// Zero points or scales per row: term by term.
void plain_product(RunContext& c, const QuantisedOperands& o, const Shapes& s, int64_t batch, int64_t am,
                   int64_t bm) {
  const Spread az = spread_of(o.a_zero, o.a->shape, true), bz = spread_of(o.b_zero, o.b->shape, false);
  const Spread as = spread_of(o.a_scale, o.a->shape, true), bs = spread_of(o.b_scale, o.b->shape, false);
  const Spread ys = spread_of_result(o.y_scale, o, s.out), yz = spread_of_result(o.y_zero, o, s.out);
  const Tensor& y = c.outputs[0];
  const Tensor a = *o.a, b = *o.b;
  c.parallel(s.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t za = byte_at(o.a_zero, place(az, am, s.m, i));
      for (int64_t j = 0; j < s.n; ++j) {
        const int32_t zb = byte_at(o.b_zero, place(bz, bm, s.n, j));
        uint32_t sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += static_cast<uint32_t>((byte_at(&a, (am * s.m + i) * s.k + k) - za) *
                                       (byte_at(&b, (bm * s.k + k) * s.n + j) - zb));
        const int64_t at = (batch * s.m + i) * s.n + j;
        if (o.y_scale == nullptr) {
          y.as<int32_t>()[at] = static_cast<int32_t>(sum);
          continue;
        }
        const float scale = scale_at(o.a_scale, place(as, am, s.m, i)) *
                            scale_at(o.b_scale, place(bs, bm, s.n, j)) /
                            scale_at(o.y_scale, place(ys, batch, s.m, i));
        y.as<uint8_t>()[at] =
            quantised(static_cast<int32_t>(sum), scale, byte_at(o.y_zero, place(yz, batch, s.m, i)), y.dtype);
      }
    }
  });
}

Status general_run(RunContext& c, bool scaled) {
  const QuantisedOperands o = operands_of(c.inputs, c.n_inputs, scaled);
  Shapes s;
  shapes_of(o.a->shape, o.b->shape, &s);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  bool by_row = false;
  const Tensor* of_rows[] = {o.a_zero, o.a_scale, o.y_scale, o.y_zero};
  for (const Tensor* t : of_rows) by_row = by_row || (t != nullptr && t->shape.elements() != 1);
  for (int64_t batch = 0; batch < s.batches; ++batch) {
    const int64_t am = matrix_of(s, s.a_strides, batch), bm = matrix_of(s, s.b_strides, batch);
    (by_row ? plain_product : fast_product)(c, o, s, batch, am, bm);
  }
  return OPFORGE_STATUS_OK;
}

Status integer_infer(InferContext& c) { return general_infer(c, false); }
Status integer_run(RunContext& c) { return general_run(c, false); }
Status linear_infer(InferContext& c) { return general_infer(c, true); }
Status linear_run(RunContext& c) { return general_run(c, true); }

constexpr OpKernel kRows[] = {
    {"opforge", "IntegerMatMul", 1, 1, packed_load, packed_infer, packed_run, 0, 3, kMany},
    {"", "MatMulInteger", 10, kNewest, nullptr, integer_infer, integer_run, 0, 2, 4},
    {"", "QLinearMatMul", 10, kNewest, nullptr, linear_infer, linear_run, 0, 8},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(integer_matmul, opforge::kRows);
