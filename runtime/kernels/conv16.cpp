// conv16.cpp: what opforge::Conv and opforge::ConvTranspose have in common.
#include "kernels/conv16.h"

namespace opforge::kernels {

Status bad_weights(LoadContext& c, const char* packing) {
  return c.fail(&c, OPFORGE_STATUS_CORRUPT,
                "W is not a constant tensor of the node's shape, of a dtype that it takes, packed as %s",
                packing);
}

Status load_conv(LoadContext& c, ConvState* s, int32_t first_operand) {
  const Attributes& a = *c.attributes;
  s->channels_in = a.get_int("channels_in", 0);
  s->channels_out = a.get_int("channels_out", 0);
  read_ints(a, "kernel_shape", 2, 1, s->kernel);
  read_ints(a, "strides", 2, 1, s->strides);
  read_ints(a, "dilations", 2, 1, s->dilations);
  read_ints(a, "pads", 4, 0, s->pads);
  const auto in_range = [](int32_t v, int32_t lo) { return v >= lo && v <= 1 << 20; };
  bool good = s->channels_in >= 1 && s->channels_out >= 1;
  for (int i = 0; i < 2; ++i)
    good = good && in_range(s->kernel[i], 1) && in_range(s->strides[i], 1) && in_range(s->dilations[i], 1);
  for (int i = 0; i < 4; ++i) good = good && in_range(s->pads[i], 0);
  if (!good || c.n_inputs < 2)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT,
                  "channels, kernel_shape, strides, dilations or pads out of range");
  // Before anything as large as an attribute says is made: there are weights for each channel.
  const Tensor& weights = c.inputs[1];
  if (weights.data == nullptr || s->channels_out > weights.shape.elements())
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "channels_out=%lld is not that of constant weights",
                  static_cast<long long>(s->channels_out));
  if (!read_activation(a, &s->activation))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "unknown activation");
  s->activation.on_sum = a.get_int("activation_on_sum", 0) != 0;
  const Tensor* bias = c.n_inputs > 2 && c.inputs[2].present() ? &c.inputs[2] : nullptr;
  if (bias != nullptr &&
      (bias->data == nullptr || !is_f32(*bias) || bias->shape.elements() != s->channels_out))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the bias is not a constant f32 vector of channels_out values");
  s->bias = padded_bias(c, bias, s->channels_out);
  if (s->bias == nullptr) return no_memory(c);
  return load_epilogue(c, first_operand, &s->epilogue);
}

bool weights_are(const Tensor& w, Packing packing, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  return w.data != nullptr && w.packing == packing && w.shape.rank == 4 && w.shape[0] == d0 &&
         w.shape[1] == d1 && w.shape[2] == d2 && w.shape[3] == d3;
}

Tensor in_order(const ConvState& s, Tensor x) {
  const Shape given = x.shape;
  if (s.nhwc && given.rank == 4)
    x.shape.dims[1] = given[3], x.shape.dims[2] = given[1], x.shape.dims[3] = given[2];
  return x;
}

ConvArgs conv_args(const ConvState& s, const Tensor& x, const Tensor& y) {
  ConvArgs a{};
  a.x_step = s.nhwc ? static_cast<int32_t>(s.channels_in) : 1;
  a.x = image_of(in_order(s, x)), a.y = s.part.of(image_of(y), s.channels_out);
  a.bias = s.bias;
  a.kernel_h = s.kernel[0], a.kernel_w = s.kernel[1];
  a.stride_h = s.strides[0], a.stride_w = s.strides[1];
  a.dilation_h = s.dilations[0], a.dilation_w = s.dilations[1];
  a.pad_top = s.pads[0], a.pad_left = s.pads[1];
  a.activation = s.activation;
  return a;
}

Status prepare_conv(RunContext& c, const ConvState& s, ConvArgs* a, EpilogueRun* epilogue) {
  const Tensor& y = c.outputs[0];
  const Status status = epilogue->prepare(c, s.epilogue, y);
  if (status != OPFORGE_STATUS_OK) return status;
  if (s.residual >= 0) {
    const Tensor& r = c.inputs[s.residual];
    if (!same_shape(r.shape, y.shape)) return sizes_differ(c, s.residual, r, y);
    if (!is_f32(r) || !same_layout(r.layout, y.layout))
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the residual is not laid out as the output");
    a->residual = r.as<float>();
  }
  a->weights = c.inputs[1].as<float>();
  a->epilogue = epilogue->function(), a->user = epilogue->user();
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::kernels
