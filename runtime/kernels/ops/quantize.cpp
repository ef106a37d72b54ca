// quantize.cpp: QuantizeLinear, DequantizeLinear (per tensor, per axis, in blocks) and DynamicQuantizeLinear.
#include <cmath>
#include <limits>

#include "kernels/convert.h"
#include "opforge/half.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- scales that lie beside a tensor
// ----------------------------------------------------------------------
enum class Granularity { kTensor, kAxis, kBlocks };

struct Grid {
  Granularity kind = Granularity::kTensor;
  int64_t size = 1, inner = 1;    // of the axis, after it
  int64_t blocks = 1, block = 1;  // of the scale's axis, elements per block
};

// False when the scale's shape fits no granularity.
bool grid_of(const Attributes& attributes, const Shape& x, const Shape& scale, Grid* grid) {
  *grid = Grid();
  if (scale.rank == 0 || (scale.rank == 1 && scale.dims[0] == 1 && x.rank != scale.rank)) return true;
  const int axis = axis_of(attributes.get_int("axis", 1), greater(x.rank, 1));
  const int64_t block = attributes.get_int("block_size", 0);
  if (x.rank == 1 && scale.rank == 1 && block == 0) {
    grid->kind = Granularity::kAxis;
    grid->size = x.dims[0];
    if (scale.dims[0] == 1) grid->kind = Granularity::kTensor;
    return scale.dims[0] == 1 || scale.dims[0] == x.dims[0];
  }
  if (axis < 0 || axis >= x.rank || block < 0) return false;
  const AxisSplit split(x, axis);
  grid->size = split.size;
  grid->inner = split.inner;
  if (block == 0) {
    grid->kind = Granularity::kAxis;
    return scale.rank == 1 && scale.dims[0] == split.size;
  }
  grid->kind = Granularity::kBlocks;
  grid->block = block;
  grid->blocks = split.size == 0 ? 0 : (split.size - 1) / block + 1;
  if (scale.rank != x.rank) return false;
  for (int k = 0; k < x.rank; ++k)
    if (scale.dims[k] != (k == axis ? grid->blocks : x.dims[k])) return false;
  return true;
}

// One zero point may stand beside many scales.
Grid of(const Grid& grid, const Tensor& zero) { return zero.shape.elements() == 1 ? Grid() : grid; }

// Values of a scale or zero point for n elements from flat index `first` on.
void spread(const Grid& grid, const Tensor& t, int64_t first, int64_t n, float* to) {
  for (int64_t k = 0; k < n;) {
    const int64_t flat = first + k, in = flat % grid.inner, row = flat / grid.inner;
    const int64_t i = row % grid.size, outer = row / grid.size;
    int64_t run = n - k, at = 0;
    bool one = true;
    if (grid.kind == Granularity::kAxis) {
      one = grid.inner > 1;
      at = i;
      run = lesser(run, one ? grid.inner - in : grid.size - i);
    } else if (grid.kind == Granularity::kBlocks) {
      one = grid.inner == 1;
      at = (outer * grid.blocks + i / grid.block) * grid.inner + in;
      run = lesser(run, one ? lesser(grid.block - i % grid.block, grid.size - i) : grid.inner - in);
    }
    if (one) {
      load_floats(t.dtype, t.data, at, to + k, 1);
      for (int64_t j = 1; j < run; ++j) to[k + j] = to[k];
    } else {
      load_floats(t.dtype, t.data, at, to + k, run);
    }
    k += run;
  }
}

bool is_plain_dense(const Tensor& t) { return is_plain(t) && t.packing == Packing::kNone; }

Status check(InferContext& c, bool quantized_output) {
  const Tensor &x = c.inputs[0], &scale = c.inputs[1];
  const Tensor* zero = c.n_inputs > 2 && c.inputs[2].present() ? &c.inputs[2] : nullptr;
  const Tensor& y = c.outputs[0];
  const Tensor& narrow = quantized_output ? y : x;
  Grid grid;
  if (!is_plain_dense(x) || !is_plain_dense(scale) || !is_plain(y) || through(x.dtype) == Through::kNone ||
      through(y.dtype) == Through::kNone || through(scale.dtype) == Through::kNone)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "no kernel for these dtypes or layouts");
  if (!grid_of(*c.attributes, x.shape, scale.shape, &grid))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the scale is neither a number nor one per index of the axis nor one per block");
  if (zero != nullptr && ((!same_shape(zero->shape, scale.shape) && zero->shape.elements() != 1) ||
                          zero->dtype != narrow.dtype || !is_plain_dense(*zero)))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the zero point has not the shape of the scale and the dtype of the quantised tensor");
  c.outputs[0].shape = x.shape;
  return OPFORGE_STATUS_OK;
}

// ---- QuantizeLinear
// ---------------------------------------------------------------------------------------
struct Range {
  DType dtype;
  float least, most;
};
constexpr Range kRanges[] = {{DType::kU8, 0, 255},         {DType::kI8, -128, 127}, {DType::kU16, 0, 65535},
                             {DType::kI16, -32768, 32767}, {DType::kU4, 0, 15},     {DType::kI4, -8, 7},
                             {DType::kU2, 0, 3},           {DType::kI2, -2, 1}};

const Range* range_of(DType dtype) {
  for (const Range& range : kRanges)
    if (range.dtype == dtype) return &range;
  return nullptr;
}

// The dtype in which a quotient is formed: that of the scale, unless the attribute says otherwise.
DType precision_of(const Attributes& attributes, DType scale) {
  const auto given = static_cast<DType>(attributes.get_int("precision", 0));
  return given != DType::kUndefined ? given : scale;
}

Status quantize_infer(InferContext& c) {
  if (Status wrong = check(c, true)) return wrong;
  if (range_of(c.outputs[0].dtype) == nullptr && small_float(c.outputs[0].dtype) == nullptr)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "QuantizeLinear has no kernel for the dtype of its output");
  return OPFORGE_STATUS_OK;
}

void rounded_to(DType dtype, float* x, int64_t n) {
  if (dtype == DType::kF16)
    for (int64_t k = 0; k < n; ++k) x[k] = f16(x[k]);
  if (dtype == DType::kBF16)
    for (int64_t k = 0; k < n; ++k) x[k] = bf16(x[k]);
}

bool quick(const Tensor& x, const Tensor& scale, const Tensor& y, const Grid& grid) {
  return grid.kind == Granularity::kTensor && is_f32(x) && is_f32(scale) &&
         (y.dtype == DType::kU8 || y.dtype == DType::kI8);
}

Status quantize_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &scale = c.inputs[1], &y = c.outputs[0];
  const Tensor* zero = c.n_inputs > 2 && c.inputs[2].present() ? &c.inputs[2] : nullptr;
  const DType precision = precision_of(*c.attributes, scale.dtype);
  const Range* range = range_of(y.dtype);
  Narrowing narrowing;
  narrowing.saturate = c.attributes->get_int("saturate", 1) != 0;
  Grid grid;
  grid_of(*c.attributes, x.shape, scale.shape, &grid);
  const bool as_bytes = quick(x, scale, y, grid) && (precision == DType::kF32);
  float shift = 0;
  if (as_bytes && zero != nullptr) load_floats(zero->dtype, zero->data, 0, &shift, 1);
  c.parallel(x.shape.elements(), 64 * kConvertBlock, [&](int64_t begin, int64_t end) {
    if (as_bytes) {
      isa_table().quantize_bytes(x.as<float>() + begin, y.as<uint8_t>() + begin, end - begin,
                                 *scale.as<float>(), static_cast<int32_t>(shift), y.dtype == DType::kI8);
      return;
    }
    ConvertBlock block;
    float scales[kConvertBlock], zeros[kConvertBlock];
    for (int64_t at = begin; at < end; at += kConvertBlock) {
      const int64_t n = lesser(kConvertBlock, end - at);
      load_floats(x.dtype, x.data, at, block.f, n);
      spread(grid, scale, at, n, scales);
      rounded_to(precision, block.f, n);
      rounded_to(precision, scales, n);
      for (int64_t k = 0; k < n; ++k) block.f[k] /= scales[k];
      rounded_to(precision, block.f, n);
      if (zero != nullptr) spread(of(grid, *zero), *zero, at, n, zeros);
      if (range == nullptr) {
        if (zero != nullptr && y.dtype == DType::kF4E2M1)
          for (int64_t k = 0; k < n; ++k) block.f[k] += zeros[k];
      } else {
        for (int64_t k = 0; k < n; ++k) {
          const float r = std::nearbyint(block.f[k]) + (zero != nullptr ? zeros[k] : 0.0f);
          block.f[k] = r < range->least ? range->least : r > range->most ? range->most : r;
        }
      }
      store_block(y.dtype, block, Through::kFloat, y.data, at, n, narrowing);
    }
  });
  return OPFORGE_STATUS_OK;
}

// ---- DequantizeLinear
// -------------------------------------------------------------------------------------
Status dequantize_infer(InferContext& c) {
  if (Status wrong = check(c, false)) return wrong;
  const DType out = c.outputs[0].dtype;
  if (out != DType::kF32 && out != DType::kF16 && out != DType::kBF16)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "DequantizeLinear gives f32, f16 or bf16");
  return OPFORGE_STATUS_OK;
}

Status dequantize_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &scale = c.inputs[1], &y = c.outputs[0];
  // A zero point of a floating type is 0.
  const bool whole = through(x.dtype) != Through::kFloat;
  const Tensor* zero = whole && c.n_inputs > 2 && c.inputs[2].present() ? &c.inputs[2] : nullptr;
  Grid grid;
  grid_of(*c.attributes, x.shape, scale.shape, &grid);
  c.parallel(x.shape.elements(), 64 * kConvertBlock, [&](int64_t begin, int64_t end) {
    ConvertBlock block;
    float scales[kConvertBlock], zeros[kConvertBlock];
    for (int64_t at = begin; at < end; at += kConvertBlock) {
      const int64_t n = lesser(kConvertBlock, end - at);
      load_floats(x.dtype, x.data, at, block.f, n);
      spread(grid, scale, at, n, scales);
      if (zero != nullptr) {
        spread(of(grid, *zero), *zero, at, n, zeros);
        for (int64_t k = 0; k < n; ++k) block.f[k] -= zeros[k];
      }
      for (int64_t k = 0; k < n; ++k) block.f[k] *= scales[k];
      store_block(y.dtype, block, Through::kFloat, y.data, at, n);
    }
  });
  return OPFORGE_STATUS_OK;
}

// ---- DynamicQuantizeLinear
// --------------------------------------------------------------------------------
constexpr int64_t kStretch = 65536;  // floats of one partial minimum and maximum

Status dynamic_infer(InferContext& c) {
  const Tensor& x = c.inputs[0];
  if (!is_f32(x) || !is_plain_dense(x) || c.n_outputs != 3)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "DynamicQuantizeLinear takes f32 and has three outputs");
  const DType wanted[] = {DType::kU8, DType::kF32, DType::kU8};
  for (int k = 0; k < 3; ++k) {
    if (!c.outputs[k].present()) continue;
    if (c.outputs[k].dtype != wanted[k] || !is_plain(c.outputs[k]))
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "output %d does not have the dtype that the kernel gives", k);
    c.outputs[k].shape = k == 0 ? x.shape : Shape();
  }
  c.scratch_bytes = ceil_div(x.shape.elements(), kStretch) * 2 * static_cast<int64_t>(sizeof(float));
  return OPFORGE_STATUS_OK;
}

Status dynamic_run(RunContext& c) {
  const Tensor& x = c.inputs[0];
  const int64_t n = x.shape.elements(), parts = ceil_div(n, kStretch);
  auto* ends = static_cast<float*>(c.scratch);
  const IsaTable& isa = isa_table();
  for_units(c, parts, [&](int64_t, int64_t part) {
    const int64_t at = part * kStretch, length = lesser(kStretch, n - at);
    isa.reduce_rows(Reduction::kMin, x.as<float>() + at, ends + 2 * part, 1, length);
    isa.reduce_rows(Reduction::kMax, x.as<float>() + at, ends + 2 * part + 1, 1, length);
  });
  float least = 0, most = 0;  // zero is always in the range
  for (int64_t part = 0; part < parts; ++part) {
    least = lesser(least, ends[2 * part]);
    most = greater(most, ends[2 * part + 1]);
  }
  const float scale = (most == least ? 1.0f : most - least) / 255.0f;
  const float start = 0.0f - least / scale;
  const float zero = start > 0 ? std::nearbyint(lesser(start, 255.0f)) : 0.0f;  // 0 for NaN too
  if (c.outputs[1].present()) *c.outputs[1].as<float>() = scale;
  if (c.outputs[2].present()) *c.outputs[2].as<uint8_t>() = static_cast<uint8_t>(zero);
  if (!c.outputs[0].present()) return OPFORGE_STATUS_OK;
  auto* y = c.outputs[0].as<uint8_t>();
  c.parallel(n, kStretch, [&](int64_t begin, int64_t end) {
    isa.quantize_bytes(x.as<float>() + begin, y + begin, end - begin, scale, static_cast<int32_t>(zero),
                       false);
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "QuantizeLinear", 10, kNewest, nullptr, quantize_infer, quantize_run, 0, 2, 3},
    {"", "DequantizeLinear", 10, kNewest, nullptr, dequantize_infer, dequantize_run, 0, 2, 3},
    {"", "DynamicQuantizeLinear", 11, kNewest, nullptr, dynamic_infer, dynamic_run, kAnyOutput, 1, 0, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(quantize, opforge::kRows);
