// conv16.h: what opforge::Conv and opforge::ConvTranspose have in common: convolutions on c16 values with
// packed weights.
#pragma once

#include "kernels/epilogue.h"
#include "kernels/part.h"

namespace opforge::kernels {

enum class Algorithm : int32_t { kDirect, kFirst, kDepthwise, kWinograd };

struct ConvState {
  Algorithm algorithm = Algorithm::kDirect;
  int64_t channels_in = 0, channels_out = 0;
  int32_t kernel[2], strides[2], dilations[2], pads[4];
  Activation activation;
  WeightKind weights = WeightKind::kF32;
  const float* bias = nullptr;
  Epilogue epilogue;
  int32_t residual = -1;  // input index
  Part part;
  bool nhwc = false;                                          // first: X is [N, H, W, C]
  int64_t tile_blocks = 0, strip_kb = 0, winograd_tiles = 0;  // what tuning chose, 0 = by the shapes
  int64_t groups = 1;                                         // direct
  const float *merged = nullptr, *merged_bias = nullptr;      // ConvTranspose into a plain output
};

// Reads channels, activation, bias and epilogue.
Status load_conv(LoadContext& c, ConvState* s, int32_t first_operand);

bool weights_are(const Tensor& w, Packing packing, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
Status bad_weights(LoadContext& c, const char* packing);

// X with its dimensions in the order N, C, H, W.
Tensor in_order(const ConvState& s, Tensor x);
ConvArgs conv_args(const ConvState& s, const Tensor& x, const Tensor& y);

// The pointers of a run: weights, residual and epilogue.
Status prepare_conv(RunContext& c, const ConvState& s, ConvArgs* a, EpilogueRun* epilogue);

}  // namespace opforge::kernels
