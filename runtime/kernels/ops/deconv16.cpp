// deconv16.cpp: opforge::ConvTranspose: 2x2 kernels of stride 2 on c16 values.
#include "kernels/conv16.h"

namespace opforge {
namespace {

using namespace kernels;

Status deconv_load(LoadContext& c) {
  ConvState* s = new_state<ConvState>(c);
  if (s == nullptr) return no_memory(c);
  const Status status = load_conv(c, s, 3);
  if (status != OPFORGE_STATUS_OK) return status;
  if (s->kernel[0] != 2 || s->kernel[1] != 2 || s->strides[0] != 2 || s->strides[1] != 2)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "opforge::ConvTranspose serves 2x2 kernels of stride 2");
  if (!is_f32(c.inputs[1]) ||
      !weights_are(c.inputs[1], Packing::kDeconv16, s->channels_in, s->channels_out, 2, 2))
    return bad_weights(c, "deconv16");
  if (s->channels_out > 4) return OPFORGE_STATUS_OK;
  // For plain outputs: the taps become channels of one 1x1 convolution.
  const int64_t out = s->channels_out, lanes = out * 4 <= 8 ? 8 : 16;
  float* weights = static_cast<float*>(c.allocate(&c, sizeof(float) * (s->channels_in + 1) * lanes));
  if (weights == nullptr) return no_memory(c);
  std::memset(weights, 0, sizeof(float) * (s->channels_in + 1) * lanes);
  float* bias = weights + s->channels_in * lanes;
  const float* packed = c.inputs[1].as<float>();
  for (int64_t tap = 0; tap < 4; ++tap)
    for (int64_t o = 0; o < out; ++o) {
      bias[tap * out + o] = s->bias[o];
      for (int64_t i = 0; i < s->channels_in; ++i)
        weights[i * lanes + tap * out + o] = packed[(tap * s->channels_in + i) * 8 + o];
    }
  s->merged = weights, s->merged_bias = bias;
  return OPFORGE_STATUS_OK;
}

Status deconv_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const ConvState& s = *static_cast<ConvState*>(c.state);
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  const bool plain = is_plain(y) && s.merged != nullptr;
  if (!is_f32(x) || !is_c16(x) || (!is_c16(y) && !plain) || x.shape.rank != 4 || x.shape[1] != s.channels_in)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "X is not f32 [N, %lld, H, W] in c16",
                  static_cast<long long>(s.channels_in));
  y.shape = x.shape;
  y.shape.dims[1] = s.channels_out;
  y.shape.dims[2] *= 2;
  y.shape.dims[3] *= 2;
  if (plain) c.scratch_bytes = 4 * scratch_floats(x.shape[3] * 16) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

Status deconv_run(RunContext& c) {
  const ConvState& s = *static_cast<ConvState*>(c.state);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  ConvArgs a = conv_args(s, c.inputs[0], c.outputs[0]);
  EpilogueRun epilogue;
  const Status status = prepare_conv(c, s, &a, &epilogue);
  if (status != OPFORGE_STATUS_OK) return status;
  const int64_t height = a.x.height;
  const int64_t strips = greater<int64_t>(1, lesser(height, height * a.x.width / 1024));
  const bool plain = is_plain(c.outputs[0]);
  const int64_t per_slot = scratch_floats(a.x.width * int64_t{16});
  if (plain) a.weights = s.merged, a.bias = s.merged_bias;
  for_units(c, a.x.images * strips, [&](int64_t slot, int64_t unit) {
    const int64_t strip = unit % strips;
    if (plain) {
      isa_table().deconv2_plain(a, static_cast<float*>(c.scratch) + slot * per_slot, unit / strips,
                                cut(height, strips, strip), cut(height, strips, strip + 1));
      return;
    }
    isa_table().deconv2(a, unit / strips, cut(height, strips, strip), cut(height, strips, strip + 1));
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"opforge", "ConvTranspose", 1, 1, deconv_load, deconv_infer, deconv_run, kPerImage, 2, kMany},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(deconv16, opforge::kRows);
