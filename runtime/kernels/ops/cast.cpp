// cast.cpp: Cast, CastLike and BitCast between all numeric dtypes.
#include "kernels/convert.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

struct CastState {
  Narrowing narrowing;
};

Status cast_load(LoadContext& c) {
  CastState* s = new_state<CastState>(c);
  if (s == nullptr) return no_memory(c);
  s->narrowing.saturate = c.attributes->get_int("saturate", 1) != 0;
  const StringView mode = c.attributes->get_string("round_mode", "up");
  if (equals(mode, "down"))
    s->narrowing.rounding = PowerRounding::kDown;
  else if (equals(mode, "nearest"))
    s->narrowing.rounding = PowerRounding::kNearest;
  else if (!equals(mode, "up"))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "round_mode is none of up, down and nearest");
  return OPFORGE_STATUS_OK;
}

Status cast_infer(InferContext& c) {
  if (through(c.inputs[0].dtype) == Through::kNone || through(c.outputs[0].dtype) == Through::kNone) {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "no conversion between these dtypes");
  }
  if (c.inputs[0].layout.kind != LayoutKind::kPlain || c.outputs[0].layout.kind != LayoutKind::kPlain) {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "not in plain layout");
  }
  c.outputs[0].shape = c.inputs[0].shape;
  if (c.inputs[0].dtype == c.outputs[0].dtype) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

bool halves_and_floats(DType half, DType other) {
  return (half == DType::kF16 || half == DType::kBF16) && other == DType::kF32;
}

template <class From, class To>
void between(RunContext& c) {
  const From* x = c.inputs[0].as<From>();
  To* y = c.outputs[0].as<To>();
  c.parallel(c.outputs[0].shape.elements(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) y[k] = static_cast<To>(x[k]);
  });
}

Status cast_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const Through way = through(x.dtype);
  const Narrowing& narrowing = static_cast<CastState*>(c.state)->narrowing;
  if (is_real(x.dtype) && is_real(y.dtype)) {
    x.dtype == DType::kF64 ? between<double, float>(c) : between<float, double>(c);
    return OPFORGE_STATUS_OK;
  }
  if (halves_and_floats(x.dtype, y.dtype) || halves_and_floats(y.dtype, x.dtype)) {
    c.parallel(y.shape.elements(), 64 * kConvertBlock, [&](int64_t begin, int64_t end) {
      if (is_f32(x))
        isa_table().narrow_halves(y.dtype == DType::kBF16, x.as<float>() + begin, y.as<uint16_t>() + begin,
                                  end - begin);
      else
        isa_table().widen_halves(x.dtype == DType::kBF16, x.as<uint16_t>() + begin, y.as<float>() + begin,
                                 end - begin);
    });
    return OPFORGE_STATUS_OK;
  }
  c.parallel(y.shape.elements(), 64 * kConvertBlock, [&](int64_t begin, int64_t end) {
    ConvertBlock block;
    for (int64_t at = begin; at < end; at += kConvertBlock) {
      const int64_t n = lesser(kConvertBlock, end - at);
      load_block(x.dtype, x.data, at, &block, n);
      store_block(y.dtype, block, way, y.data, at, n, narrowing);
    }
  });
  return OPFORGE_STATUS_OK;
}

// The same bits under another dtype of as many.
Status bit_cast_infer(InferContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  if (!is_plain(x) || !is_plain(y) || x.packing != Packing::kNone || dtype_bits(x.dtype) == 0 ||
      dtype_bits(x.dtype) != dtype_bits(y.dtype))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "BitCast wants two plain tensors with elements of the same number of bits");
  c.outputs[0].shape = x.shape;
  c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status bit_cast_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const int64_t bytes = storage_bytes(x.dtype, x.shape, x.layout);
  if (y.data != x.data && bytes > 0) std::memcpy(y.data, x.data, static_cast<size_t>(bytes));
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Cast", 6, kNewest, cast_load, cast_infer, cast_run},
    {"", "CastLike", 15, kNewest, cast_load, cast_infer, cast_run, 0, 2},
    {"", "BitCast", 26, kNewest, nullptr, bit_cast_infer, bit_cast_run},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(cast, opforge::kRows);
