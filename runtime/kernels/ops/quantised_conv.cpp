// quantised_conv.cpp: ONNX's ConvInteger and QLinearConv: any group, dilation, number of dimensions and zero
// point of the weights.
#include "kernels/integer.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

Status general_infer(InferContext& c, bool scaled) {
  const Status bad = OPFORGE_STATUS_INVALID_ARGUMENT;
  const QuantisedOperands o = operands_of(c.inputs, c.n_inputs, scaled);
  const Shape &x = o.a->shape, &w = o.b->shape;
  const int64_t groups = c.attributes->get_int("group", 1);
  Window window;
  if (!is_byte(*o.a) || !is_byte(*o.b) || o.a->packing != Packing::kNone || o.b->packing != Packing::kNone ||
      x.rank < 3 || w.rank != x.rank || groups < 1 || x[1] % groups != 0 || w[0] % groups != 0 ||
      w[1] != x[1] / groups || !read_window(*c.attributes, x, w.dims + 2, &window))
    return c.fail(&c, bad, "a quantised convolution takes u8 or i8 X [N, C, ...] and W [M, C/group, ...]");
  for (int i = 0; i < window.rank; ++i)
    if (window.kernel[3 - window.rank + i] != w[2 + i])
      return c.fail(&c, bad, "kernel_shape is not that of the weights");
  const auto fits = [&](const Tensor* t, DType dtype, int64_t most) {
    return t == nullptr || (t->dtype == dtype && is_plain(*t) && t->packing == Packing::kNone &&
                            (t->shape.elements() == 1 || t->shape.elements() == most));
  };
  const Tensor& y = c.outputs[0];
  const bool scales = !scaled || (o.a_scale != nullptr && o.b_scale != nullptr && o.y_scale != nullptr &&
                                  fits(o.a_scale, DType::kF32, 1) && fits(o.b_scale, DType::kF32, w[0]) &&
                                  fits(o.y_scale, DType::kF32, 1));
  if (!scales || !fits(o.a_zero, o.a->dtype, 1) || !fits(o.b_zero, o.b->dtype, w[0]) ||
      !fits(o.y_zero, y.dtype, 1) || !fits(o.bias, DType::kI32, w[0]) || !is_plain(y) ||
      !(scaled ? is_byte(y.dtype) : y.dtype == DType::kI32))
    return c.fail(&c, bad, "a zero point, scale, bias or the output of a quantised convolution does not fit");
  Shape& out = c.outputs[0].shape;
  out = x;
  out.dims[1] = w[0];
  for (int i = 0; i < window.rank; ++i) out.dims[2 + i] = window.out[3 - window.rank + i];
  return OPFORGE_STATUS_OK;
}

// The sum of one output's products.
uint32_t window_sum(const QuantisedOperands& o, const Window& w, const uint8_t* x, const uint8_t* weights,
                    int64_t channels, int64_t at, int32_t x_zero, int32_t w_zero) {
  int64_t start[3];
  for (int d = 2; d >= 0; --d) {
    start[d] = at % w.out[d] * w.stride[d] - w.before[d];
    at /= w.out[d];
  }
  const bool x_signed = o.a->dtype == DType::kI8, w_signed = o.b->dtype == DType::kI8;
  const auto value = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int32_t>(static_cast<int8_t>(byte)) : static_cast<int32_t>(byte);
  };
  uint32_t sum = 0;
  for (int64_t c = 0; c < channels; ++c, x += w.in_size())
    for (int64_t kz = 0; kz < w.kernel[0]; ++kz)
      for (int64_t ky = 0; ky < w.kernel[1]; ++ky)
        for (int64_t kx = 0; kx < w.kernel[2]; ++kx, ++weights) {
          const int64_t z = start[0] + kz * w.dilation[0], y = start[1] + ky * w.dilation[1];
          const int64_t i = start[2] + kx * w.dilation[2];
          if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1] || i < 0 || i >= w.in[2]) continue;
          sum += static_cast<uint32_t>((value(x[(z * w.in[1] + y) * w.in[2] + i], x_signed) - x_zero) *
                                       (value(*weights, w_signed) - w_zero));
        }
  return sum;
}

Status general_run(RunContext& c, bool scaled) {
  const QuantisedOperands o = operands_of(c.inputs, c.n_inputs, scaled);
  const Tensor& y = c.outputs[0];
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  Window w;
  read_window(*c.attributes, o.a->shape, o.b->shape.dims + 2, &w);
  const int64_t groups = c.attributes->get_int("group", 1), channels = o.a->shape[1], outputs = o.b->shape[0];
  const int64_t inner = channels / groups, size = w.in_size(), plane = w.out_size();
  const int32_t x_zero = byte_at(o.a_zero, 0), y_zero = byte_at(o.y_zero, 0);
  for_units(c, o.a->shape[0] * outputs, [&](int64_t, int64_t unit) {
    const int64_t image = unit / outputs, m = unit % outputs, group = m / (outputs / groups);
    const uint8_t* x = o.a->as<uint8_t>() + (image * channels + group * inner) * size;
    const uint8_t* weights = o.b->as<uint8_t>() + m * inner * w.taps();
    const auto own = [m](const Tensor* t) { return t == nullptr || t->shape.elements() == 1 ? 0 : m; };
    const int32_t w_zero = byte_at(o.b_zero, own(o.b_zero));
    float scale = 0;
    if (scaled)
      scale = *o.a_scale->as<float>() * o.b_scale->as<float>()[own(o.b_scale)] / *o.y_scale->as<float>();
    const int64_t bias = o.bias == nullptr ? 0 : o.bias->as<int32_t>()[own(o.bias)];
    for (int64_t at = 0; at < plane; ++at) {
      const auto sum = static_cast<int32_t>(window_sum(o, w, x, weights, inner, at, x_zero, w_zero) +
                                            static_cast<uint32_t>(bias));
      if (!scaled) {
        y.as<int32_t>()[unit * plane + at] = sum;
        continue;
      }
      y.as<uint8_t>()[unit * plane + at] = quantised(sum, scale, y_zero, y.dtype);
    }
  });
  return OPFORGE_STATUS_OK;
}

Status integer_infer(InferContext& c) { return general_infer(c, false); }
Status integer_run(RunContext& c) { return general_run(c, false); }
Status linear_infer(InferContext& c) { return general_infer(c, true); }
Status linear_run(RunContext& c) { return general_run(c, true); }

constexpr OpKernel kRows[] = {
    {"", "ConvInteger", 10, kNewest, nullptr, integer_infer, integer_run, 0, 2, 4},
    {"", "QLinearConv", 10, kNewest, nullptr, linear_infer, linear_run, 0, 8, 9},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(quantised_conv, opforge::kRows);
