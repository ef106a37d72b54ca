// integer.cpp: corrections, packing and distribution of products of bytes.
#include "kernels/integer.h"

namespace opforge::kernels {
namespace {

const Tensor* at(const Tensor* inputs, int32_t n, int k) {
  return k < n && inputs[k].present() ? inputs + k : nullptr;
}

template <class T>
T element(const Tensor& t, int64_t k) {
  return t.as<T>()[t.shape.elements() == 1 ? 0 : k];
}

}  // namespace

IntegerTerms terms_of(const Tensor* inputs, int32_t n, int first, const Attributes& attributes) {
  IntegerTerms t;
  t.a_zero = at(inputs, n, first);
  t.b_zero = at(inputs, n, first + 1);
  t.bias = at(inputs, n, first + 2);
  t.scale = at(inputs, n, first + 3);
  t.shift = at(inputs, n, first + 4);
  t.y_zero = at(inputs, n, first + 5);
  t.relu = attributes.get_int("relu", 0) != 0;
  return t;
}

QuantisedOperands operands_of(const Tensor* inputs, int32_t n, bool scaled) {
  const auto get = [&](int k) { return at(inputs, n, k); };
  QuantisedOperands o;
  o.a = inputs;
  if (scaled) {
    o.a_scale = get(1), o.a_zero = get(2), o.b = inputs + 3, o.b_scale = get(4), o.b_zero = get(5);
    o.y_scale = get(6), o.y_zero = get(7), o.bias = get(8);
  } else {
    o.b = inputs + 1, o.a_zero = get(2), o.b_zero = get(3);
  }
  return o;
}

Status check_terms(InferContext& c, int first, int64_t n) {
  const IntegerTerms t = terms_of(c.inputs, c.n_inputs, first, *c.attributes);
  const DType y = c.outputs[0].dtype;
  const auto fits = [&](const Tensor* v, DType dtype, int64_t most) {
    if (v == nullptr) return true;
    const int64_t count = v->shape.elements();
    return v->dtype == dtype && is_plain(*v) && v->packing == Packing::kNone && (count == 1 || count == most);
  };
  const bool scaled = t.scale != nullptr;
  const bool output = scaled ? y == DType::kF32 || is_byte(y) : y == DType::kI32 && t.shift == nullptr;
  if (fits(t.a_zero, c.inputs[0].dtype, 1) && fits(t.b_zero, DType::kI32, n) &&
      fits(t.bias, DType::kI32, n) && fits(t.scale, DType::kF32, n) && fits(t.shift, DType::kF32, n) &&
      fits(t.y_zero, y, 1) && output)
    return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "a zero point, bias, scale or the output of an integer product has the wrong dtype or size");
}

Status load_table(LoadContext& c, int input) {
  const Tensor* t = at(c.inputs, c.n_inputs, input);
  if (t == nullptr ||
      (t->data != nullptr && t->shape.elements() == 256 && is_byte(*t) && t->packing == Packing::kNone))
    return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_CORRUPT, "a table of codes is not a constant of 256 bytes");
}

Status check_table(InferContext& c, int input) {
  const Tensor* t = at(c.inputs, c.n_inputs, input);
  const DType y = c.outputs[0].dtype;
  if (t == nullptr ? is_byte(y) : t->dtype == y) return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "a table of codes has another dtype than the output");
}

bool needs_rows(const IntegerTerms& t, int64_t n) {
  for (int64_t k = 0; t.b_zero != nullptr && k < n; ++k)
    if (element<int32_t>(*t.b_zero, k) != 0) return true;
  return false;
}

void fill_terms(const IntegerTerms& t, DType a, DType y, int64_t n, int64_t k, const int32_t* sums,
                void* vectors, IntegerArgs* g) {
  const int64_t padded = padded16(n);
  auto* column = static_cast<int32_t*>(vectors);
  int32_t* factor = column + padded;
  auto* scale = reinterpret_cast<float*>(factor + padded);
  float* shift = scale + padded;
  std::memset(vectors, 0, static_cast<size_t>(4 * vector_words(n)));
  const auto za = static_cast<uint32_t>(byte_at(t.a_zero, 0) + (a == DType::kI8 ? 128 : 0));
  for (int64_t j = 0; j < n; ++j) {
    const auto zb = static_cast<uint32_t>(t.b_zero != nullptr ? element<int32_t>(*t.b_zero, j) : 0);
    uint32_t sum = static_cast<uint32_t>(k) * za * zb - za * static_cast<uint32_t>(sums[j]);
    if (t.bias != nullptr) sum += static_cast<uint32_t>(element<int32_t>(*t.bias, j));
    column[j] = static_cast<int32_t>(sum);
    factor[j] = static_cast<int32_t>(0u - zb);
    if (t.scale != nullptr) scale[j] = element<float>(*t.scale, j);
    if (t.shift != nullptr) shift[j] = element<float>(*t.shift, j);
  }
  g->column = column;
  g->row_factor = factor;
  g->scale = scale;
  g->shift = t.shift != nullptr ? shift : nullptr;
  g->n = n;
  g->output = y == DType::kI32   ? IntegerOutput::kI32
              : y == DType::kF32 ? IntegerOutput::kF32
              : y == DType::kU8  ? IntegerOutput::kU8
                                 : IntegerOutput::kI8;
  g->zero = byte_at(t.y_zero, 0);
  g->least = (y == DType::kI8 ? -128 : 0) - g->zero;
  g->most = (y == DType::kI8 ? 127 : 255) - g->zero;
  if (t.relu) g->least = greater(g->least, 0.0);
}

void pack_integers(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, uint8_t flip,
                   int8_t* to, int32_t* sums) {
  const int64_t groups = (k + 3) / 4;
  std::memset(to, 0, static_cast<size_t>(packed_integers(k, n)));
  for (int64_t j = 0; j < n; ++j) {
    int8_t* at = to + j / 16 * groups * 64 + j % 16 * 4;
    uint32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const auto value = static_cast<int8_t>(b[i * row + j * column] ^ flip);
      at[i / 4 * 64 + i % 4] = value;
      sum += static_cast<uint32_t>(static_cast<int32_t>(value));
    }
    sums[j] = static_cast<int32_t>(sum);
  }
}

void run_integer_product(RunContext& c, IntegerProduct p, void* scratch) {
  if (p.m == 0 || p.n == 0) return;
  const IsaTable& isa = isa_table();
  const int64_t groups = (p.k + 3) / 4, row = groups * 4;
  auto* copied = static_cast<uint8_t*>(scratch);
  auto* sums = reinterpret_cast<int32_t*>(copied + (p.m * row + 127) / 64 * 64);
  const uint8_t flip = p.a_dtype == DType::kI8 ? kTopBit : 0;
  const bool copies = flip != 0 || p.k % 4 != 0;
  if (copies || p.rows)
    c.parallel(p.m, greater<int64_t>(1, 65536 / greater<int64_t>(1, p.k)), [&](int64_t begin, int64_t end) {
      const uint8_t* from = p.a + begin * p.k;
      uint8_t* to = copies ? copied + begin * row : const_cast<uint8_t*>(from);
      isa.integer_rows(from, p.k, flip, end - begin, p.k, to, row, p.rows ? sums + begin : nullptr);
    });
  const int64_t start = 0;
  IntegerArgs& g = p.args;
  g.a = copies ? copied : p.a;
  g.a_row = row;
  g.segments = &start;
  g.n_segments = 1;
  g.groups = groups;
  g.row = p.rows ? sums : nullptr;
  // Units: about 128 KB of A, at least 64 K weights in whole groups of four blocks.
  const int64_t blocks = padded16(p.n) / 16;
  const int64_t row_units = ceil_div(p.m, greater<int64_t>(48, 131072 / greater<int64_t>(1, row)));
  const int64_t wide = greater<int64_t>(4, ceil_div(65536, greater<int64_t>(1, 64 * row)) * 4);
  const int64_t column_units = ceil_div(blocks, wide);
  for_units(c, row_units * column_units, [&](int64_t, int64_t unit) {
    const int64_t r = unit % row_units, first = unit / row_units * wide;
    isa.integer_product(g, cut(p.m, row_units, r), cut(p.m, row_units, r + 1), first,
                        lesser(blocks, first + wide));
  });
}

}  // namespace opforge::kernels
