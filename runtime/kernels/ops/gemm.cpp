// gemm.cpp: ONNX's Gemm: alpha times a product of two activations, plus beta times C.
#include "kernels/move.h"
#include "kernels/product.h"

namespace opforge {
namespace {

using namespace kernels;

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
    {"", "Gemm", 7, kNewest, gemm_load, gemm_infer, gemm_run, 0, 2, 3},
};

}  // namespace

}  // namespace opforge

OPFORGE_KERNELS(gemm, opforge::kRows);
