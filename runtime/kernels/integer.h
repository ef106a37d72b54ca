// integer.h: products of quantised tensors: how bytes of any sign and zero point become those of the loops in
// isa/integer.cpp, and what follows the sums.
//
// The loops multiply unsigned by signed bytes. A signed byte of A is read as itself + 128 (its top bit
// turned), an unsigned one of B as itself - 128; zero points move along. With stored bytes a, b and moved
// zero points za, zb the sum over K terms of (a - za)(b - zb) is
//   sum(a b) - za * sum(b) - zb * sum(a) + K * za * zb.
#pragma once

#include <cmath>

#include "kernels/move.h"

namespace opforge::kernels {

inline bool is_byte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }
inline bool is_byte(const Tensor& t) { return is_byte(t.dtype) && is_plain(t); }
constexpr uint8_t kTopBit = 0x80;

// What surrounds a product, as the tensors of a node; null = absent. Vectors have one element or n.
struct IntegerTerms {
  const Tensor* a_zero = nullptr;  // one element of A's dtype
  const Tensor* b_zero = nullptr;  // i32, of the stored bytes
  const Tensor* bias = nullptr;    // i32 [n]
  const Tensor* scale = nullptr;   // f32
  const Tensor* shift = nullptr;   // f32 [n]
  const Tensor* y_zero = nullptr;  // one element of the output's dtype
  bool relu = false;
};

// Refuses terms of other dtypes or sizes than the columns n take; `first` is the index of a_zero among the
// inputs, the others follow.
Status check_terms(InferContext& context, int first, int64_t n);
// The inputs from `first` on.
IntegerTerms terms_of(const Tensor* inputs, int32_t n_inputs, int first, const Attributes& attributes);

// The inputs of ONNX's MatMulInteger and ConvInteger or, scaled, of QLinearMatMul and QLinearConv; null =
// absent.
struct QuantisedOperands {
  const Tensor *a = nullptr, *b = nullptr, *a_zero = nullptr, *b_zero = nullptr;
  const Tensor *a_scale = nullptr, *b_scale = nullptr, *y_scale = nullptr, *y_zero = nullptr;
  const Tensor* bias = nullptr;  // of QLinearConv
};
QuantisedOperands operands_of(const Tensor* inputs, int32_t n_inputs, bool scaled);
// Element k of a tensor of bytes, 0 where it is absent.
inline int32_t byte_at(const Tensor* t, int64_t k) {
  if (t == nullptr) return 0;
  return t->dtype == DType::kI8 ? t->as<int8_t>()[k] : t->as<uint8_t>()[k];
}

// The vectors of the loops over n columns (padded to blocks of 16), in 4-byte units.
inline int64_t padded16(int64_t n) { return (n + 15) / 16 * 16; }
inline int64_t vector_words(int64_t n) { return 4 * padded16(n); }
// Fills them and the output's part of `args`; terms is the number of products in a sum, sums those of B.
void fill_terms(const IntegerTerms& terms, DType a, DType y, int64_t n, int64_t k, const int32_t* sums,
                void* vectors, IntegerArgs* args);
// True when sums of rows of A are needed.
bool needs_rows(const IntegerTerms& terms, int64_t n);

// A sum as a byte of the output: half to even, clipped; NaN gives the least.
inline uint8_t quantised(int32_t sum, float scale, int32_t zero, DType y) {
  const double least = y == DType::kI8 ? -128 : 0, most = y == DType::kI8 ? 127 : 255;
  const double real = std::nearbyint(sum * static_cast<double>(scale)) + zero;
  return static_cast<uint8_t>(static_cast<int32_t>(!(real > least) ? least : real > most ? most : real));
}

// A table of all 256 codes, an input of the node that may be absent: a constant of the output's dtype.
Status load_table(LoadContext& context, int input);
Status check_table(InferContext& context, int input);
inline const uint8_t* table_of(const RunContext& context, int input) {
  return input < context.n_inputs ? context.inputs[input].as<uint8_t>() : nullptr;
}

// Bytes of n columns by k rows packed as integer16, and the packing: b[k][n] at row, column strides, each
// byte turned by `flip`; sums are those of the turned bytes.
inline int64_t packed_integers(int64_t k, int64_t n) { return padded16(n) * ((k + 3) / 4 * 4); }
void pack_integers(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, uint8_t flip,
                   int8_t* to, int32_t* sums);

// One product C[m, n] of A (rows of k bytes, dense) and packed B.
struct IntegerProduct {
  int64_t m, n, k;
  IntegerArgs args;  // b, the vectors and the output are filled
  const uint8_t* a;
  DType a_dtype;
  bool rows;  // sums of rows are needed
  // Scratch for A and its sums.
  static int64_t scratch(int64_t m, int64_t k) { return m * ((k + 3) / 4 * 4) + 64 + 4 * m + 64; }
};
void run_integer_product(RunContext& context, IntegerProduct product, void* scratch);

}  // namespace opforge::kernels
