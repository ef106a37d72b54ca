// conv16.cpp: opforge::Conv: convolutions on c16 values with packed weights.
#include "kernels/conv16.h"

namespace opforge {
namespace {

using namespace kernels;

Status conv_load(LoadContext& c) {
  ConvState* s = new_state<ConvState>(c);
  if (s == nullptr) return no_memory(c);
  const Status status = load_conv(c, s, 4);
  if (status != OPFORGE_STATUS_OK) return status;
  if (const Status wrong = load_part(c, s->channels_out, 3, &s->part)) return wrong;
  if (s->part.any() && (s->epilogue.program != nullptr || c.n_inputs > 4))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "a part of the channels has no epilogue");
  if (!s->part.any() && c.n_inputs > 3 && c.inputs[3].present()) s->residual = 3;
  const StringView name = c.attributes->get_string("algorithm", "direct");
  const StringView order = c.attributes->get_string("input_layout", "");
  s->nhwc = equals(order, "nhwc");
  if ((!s->nhwc && !equals(order, "")) || (s->nhwc && !equals(name, "first")))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "input_layout is not nhwc of the algorithm first");
  s->tile_blocks = c.attributes->get_int("tile_blocks", 0);
  s->strip_kb = c.attributes->get_int("strip_kb", 0);
  s->winograd_tiles = c.attributes->get_int("winograd_tiles", 0);
  if (s->tile_blocks < 0 || s->tile_blocks > 4 || s->strip_kb < 0 || s->strip_kb > 1 << 16 ||
      s->winograd_tiles < 0 || s->winograd_tiles > 256)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "tile_blocks, strip_kb or winograd_tiles out of range");
  s->groups = c.attributes->get_int("group", 1);
  if (s->groups < 1 || s->groups > 1 << 20 ||
      (s->groups > 1 && (s->channels_in % (16 * s->groups) != 0 || s->channels_out % (16 * s->groups) != 0)))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "a group does not have whole blocks of 16 channels");
  const Tensor& w = c.inputs[1];
  if (!weight_kind(w, &s->weights)) return bad_weights(c, "the algorithm reads");
  const int64_t out = s->channels_out, in = s->channels_in, kh = s->kernel[0], kw = s->kernel[1];
  if (equals(name, "direct")) {
    s->algorithm = Algorithm::kDirect;
    if (!weights_are(w, Packing::kConv16, out, in / s->groups, kh, kw)) return bad_weights(c, "conv16");
  } else if (equals(name, "first")) {
    s->algorithm = Algorithm::kFirst;
    if (in > 4 || in * kh > 1024 || !weights_are(w, Packing::kFirst16, out, in, kh, kw))
      return bad_weights(c, "first16");
  } else if (equals(name, "depthwise")) {
    s->algorithm = Algorithm::kDepthwise;
    if (in != out || !weights_are(w, Packing::kDepthwise16, out, 1, kh, kw))
      return bad_weights(c, "depthwise16");
  } else if (equals(name, "winograd")) {
    s->algorithm = Algorithm::kWinograd;
    if (!is_f32(w) || !weights_are(w, Packing::kWinograd16, out, in, 3, 3))
      return bad_weights(c, "winograd16");
    if (kh != 3 || kw != 3 || s->strides[0] != 1 || s->strides[1] != 1 || s->dilations[0] != 1 ||
        s->dilations[1] != 1)
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "winograd serves 3x3 kernels of stride and dilation 1");
  } else {
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "unknown algorithm");
  }
  if (s->groups > 1 && s->algorithm != Algorithm::kDirect)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "only the algorithm direct has groups");
  return OPFORGE_STATUS_OK;
}

constexpr int64_t kMuchWeight = 1 << 18;  // bytes: from here on it counts how often weights are read

// How the work of one shape is cut. Each output element is computed alone, so cuts change no bit.
struct Cuts {
  int64_t strips = 1;       // of the image's rows
  int64_t images = 1;       // direct: images that share a pass over the weights
  int64_t tile_blocks = 0;  // see ConvArgs
  bool fetch_ahead = false;
  int64_t batch = 0;    // winograd: tiles of a batch
  bool shared = false;  // winograd: all threads work on one batch
};

int64_t tile_count(const ConvArgs& a) {
  return a.y.images * ceil_div(a.y.height, 4) * ceil_div(a.y.width, 4);
}

Cuts cuts_of(const ConvState& s, const ConvArgs& a, int32_t threads) {
  Cuts cuts;
  const int64_t height = a.y.height, width = a.y.width, images = a.y.images;
  const int64_t taps = s.algorithm == Algorithm::kWinograd ? 36 : int64_t{s.kernel[0]} * s.kernel[1];
  const int64_t terms = s.channels_in / s.groups * taps;
  const int64_t weights = 4 * terms * padded8(s.channels_out / s.groups);
  cuts.fetch_ahead = weights > kMuchWeight;
  switch (s.algorithm) {
    case Algorithm::kDirect: {
      // A strip's input stays in cache while all output blocks pass over it; where the weights are many,
      // larger strips, or several images, read them less often.
      const double bytes = 4.0 * static_cast<double>(padded8(a.x.channels)) *
                           static_cast<double>(width * height) * a.stride_h *
                           a.stride_w;  // strides of files may be as large as 2^20 each
      const int64_t input = static_cast<int64_t>(lesser(bytes, 0x1p60));
      const int64_t fit = s.strip_kb > 0 ? s.strip_kb * 1024 : weights <= kMuchWeight ? 131072 : 393216;
      cuts.strips = lesser(height, ceil_div(input, fit));
      if (cuts.strips == 1) cuts.images = lesser(images, greater<int64_t>(1, fit / input));
      // Of a wide group of output blocks, weights that exceed the second cache are read anew for every tile.
      if (256 * terms > 400000 && (width >= 14 || width == 7)) cuts.tile_blocks = 2;
      break;
    }
    case Algorithm::kFirst:
      cuts.strips = greater<int64_t>(1, height / 16);
      break;
    case Algorithm::kDepthwise:
      cuts.strips = greater<int64_t>(1, height * width / 8192);
      break;
    case Algorithm::kWinograd: {
      // Transformed input and output of a batch stay in the second cache, unless the weights are larger
      // still.
      const int64_t tiles = tile_count(a);
      const int64_t fit = greater<int64_t>(400 * 1024, weights / 4) /
                          (144 * (padded8(s.channels_in) + padded8(s.channels_out)));
      const int64_t most =
          s.winograd_tiles > 0 ? s.winograd_tiles : lesser<int64_t>(84, greater<int64_t>(14, fit));
      cuts.shared = weights > 1 << 20;
      int64_t batches = ceil_div(tiles, most);
      if (!cuts.shared && threads > 1) batches = lesser(tiles, ceil_div(batches, threads) * threads);
      cuts.batch = ceil_div(tiles, batches);
      break;
    }
  }
  if (s.tile_blocks > 0) cuts.tile_blocks = s.tile_blocks;
  return cuts;
}

// Half weights are widened for so many output blocks at a time.
constexpr int64_t kWidened = 4;
int64_t widened_blocks(int64_t tile_blocks) { return tile_blocks > 0 ? tile_blocks : kWidened; }
int64_t terms_of(const ConvState& s) {
  const int64_t taps = int64_t{s.kernel[0]} * s.kernel[1];
  return s.algorithm == Algorithm::kDepthwise ? taps : s.channels_in / s.groups * taps;
}
int64_t widened_floats(const ConvState& s, const ConvArgs& a, const Cuts& cuts) {
  if (s.weights == WeightKind::kF32) return 0;
  if (s.algorithm != Algorithm::kDirect) return scratch_floats(terms_of(s) * padded8(a.y.channels));
  return scratch_floats(terms_of(s) * 16 * widened_blocks(cuts.tile_blocks));
}

int64_t scratch_per_slot(const ConvState& s, const ConvArgs& a, const Cuts& cuts) {
  if (s.algorithm == Algorithm::kFirst) return scratch_floats(isa_table().conv_first_scratch(a));
  if (s.algorithm == Algorithm::kWinograd)
    return scratch_floats(
        36 * (winograd_tap(cuts.batch, s.channels_in) + winograd_tap(cuts.batch, s.channels_out)));
  return 0;
}

// Whether the frame of x holds every pixel that the loops read.
bool halo_reaches(const ConvState& s, const ConvArgs& a) {
  if (s.algorithm == Algorithm::kFirst) return true;  // padding is written out line by line
  const bool winograd = s.algorithm == Algorithm::kWinograd;
  const auto reach = [&](int axis, int64_t out) {
    return winograd ? ceil_div(out, 4) * 4 + 2
                    : (out - 1) * s.strides[axis] + (s.kernel[axis] - 1) * int64_t(s.dilations[axis]) + 1;
  };
  const bool columns = a.x.left >= a.pad_left && reach(1, a.y.width) - a.pad_left <= a.x.width + a.x.right;
  if (s.algorithm == Algorithm::kDirect) return columns;  // rows that are padding are skipped
  return columns && a.x.top >= a.pad_top && reach(0, a.y.height) - a.pad_top <= a.x.height + a.x.bottom;
}

Status conv_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const ConvState& s = *static_cast<ConvState*>(c.state);
  const Tensor x = in_order(s, c.inputs[0]);
  Tensor& y = c.outputs[0];
  const bool first = s.algorithm == Algorithm::kFirst;
  constexpr int64_t kMost = int64_t{1} << 29;  // loops over images count in 32 bits
  if (!is_f32(x) || x.shape.rank != 4 || x.shape[1] != s.channels_in || (first ? !is_plain(x) : !is_c16(x)) ||
      !is_c16(y) || x.shape[2] > kMost || x.shape[3] > kMost)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X is not f32 [N, %lld, H, W] in the layout of the algorithm",
                  static_cast<long long>(s.channels_in));
  y.shape.rank = 4;
  y.shape.dims[0] = x.shape[0];
  y.shape.dims[1] = s.part.total(s.channels_out);
  for (int i = 0; i < 2; ++i) {
    const int64_t span = (s.kernel[i] - 1) * int64_t(s.dilations[i]) + 1;
    const int64_t room = x.shape[2 + i] + s.pads[i] + s.pads[2 + i] - span;
    y.shape.dims[2 + i] = room < 0 ? 0 : room / s.strides[i] + 1;
  }
  if (const Status wrong = infer_part(c, s.part)) return wrong;
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;  // an empty X may still give rows of padding
  const ConvArgs a = conv_args(s, x, y);
  if (!halo_reaches(s, a))
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the halo of X is smaller than what the convolution reads");
  const Cuts cuts = cuts_of(s, a, 1);  // the largest batches
  c.scratch_bytes =
      4 * (scratch_per_slot(s, a, cuts) + widened_floats(s, a, cuts)) * (cuts.shared ? 1 : c.max_threads);
  return OPFORGE_STATUS_OK;
}

void run_winograd(RunContext& c, const ConvState& s, const ConvArgs& a, const Cuts& cuts) {
  const IsaTable& isa = isa_table();
  const int64_t tiles = tile_count(a), batches = ceil_div(tiles, cuts.batch),
                per_slot = scratch_per_slot(s, a, cuts);
  const int64_t in = blocks16(s.channels_in), out = blocks16(s.channels_out);
  float* scratch = static_cast<float*>(c.scratch);
  const int64_t to_m = 36 * winograd_tap(cuts.batch, s.channels_in);
  if (!cuts.shared) {
    for_units(c, batches, [&](int64_t slot, int64_t unit) {
      float *v = scratch + slot * per_slot, *m = v + to_m;
      const int64_t t0 = unit * cuts.batch, t1 = lesser(tiles, t0 + cuts.batch);
      isa.winograd_input(a, v, cuts.batch, t0, t1, 0, in);
      isa.winograd_product(a, v, m, cuts.batch, t1 - t0, 0, 36);
      isa.winograd_output(a, m, cuts.batch, t0, t1, 0, out);
    });
    return;
  }
  // All threads in one batch, each with weights of its own: they are read once, not once a thread.
  for (int64_t t0 = 0; t0 < tiles; t0 += cuts.batch) {
    float *v = scratch, *m = v + to_m;
    const int64_t t1 = lesser(tiles, t0 + cuts.batch);
    for_units(c, in, [&](int64_t, int64_t b) { isa.winograd_input(a, v, cuts.batch, t0, t1, b, b + 1); });
    for_units(c, 36, [&](int64_t, int64_t tap) {
      isa.winograd_product(a, v, m, cuts.batch, t1 - t0, tap, tap + 1);
    });
    for_units(c, out, [&](int64_t, int64_t b) { isa.winograd_output(a, m, cuts.batch, t0, t1, b, b + 1); });
  }
}

// f(args, b0, b1) for output blocks [block0, block1), a few at a time where their weights are to be widened.
// `first` is the output block that a.weights begins with.
template <class F>
void with_weights(const ConvState& s, const ConvArgs& a, int64_t first, int64_t block0, int64_t block1,
                  float* widened, F&& f) {
  if (s.weights == WeightKind::kF32) return f(a, block0, block1);
  const int64_t step = widened_blocks(a.tile_blocks), terms = terms_of(s);
  ConvArgs g = a;
  g.weights = widened, g.fetch_ahead = 0;
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(a.weights);
  for (int64_t b = block0; b < block1; b += step) {
    const int64_t end = lesser(block1, b + step);
    isa_table().widen(s.weights, halves + (first + b) * 16 * terms, widened,
                      (lesser(padded8(a.y.channels), end * 16) - b * 16) * terms);
    g.weights_block = static_cast<int32_t>(b);
    g.fetch = a.fetch_ahead != 0 && end < block1 ? halves + (first + end) * 16 * terms : nullptr;
    f(g, b, end);
  }
}

// Each group is a convolution of whole blocks; the epilogue counts channels through all of them.
void run_groups(RunContext& c, const ConvState& s, const ConvArgs& a, const Cuts& cuts) {
  const int64_t in = s.channels_in / s.groups, out = s.channels_out / s.groups, strips = cuts.strips;
  const int64_t per_slot = widened_floats(s, a, cuts);
  for_units(c, a.y.images * s.groups * strips, [&](int64_t slot, int64_t unit) {
    const int64_t strip = unit % strips, group = unit / strips % s.groups, image = unit / strips / s.groups;
    const int64_t y0 = cut(a.y.height, strips, strip), y1 = cut(a.y.height, strips, strip + 1);
    ConvArgs g = a;
    g.x.data += group * in * a.x.plane, g.x.channels = static_cast<int32_t>(in);
    g.y.data += group * out * a.y.plane, g.y.channels = static_cast<int32_t>(out);
    if (a.residual != nullptr) g.residual += group * out * a.y.plane;
    if (s.weights == WeightKind::kF32) g.weights += group * out * terms_of(s);
    g.bias += group * out;
    g.epilogue = nullptr;
    with_weights(s, g, group * out / 16, 0, out / 16, static_cast<float*>(c.scratch) + slot * per_slot,
                 [&](const ConvArgs& part, int64_t b0, int64_t b1) {
                   isa_table().conv_direct(part, image, image + 1, y0, y1, b0, b1);
                 });
    isa_table().epilogue(a, image, y0, y1, group * out / 16, (group + 1) * out / 16);
  });
}

void run_direct(RunContext& c, const ConvState& s, const ConvArgs& a, const Cuts& cuts) {
  const int64_t blocks = blocks16(a.y.channels), height = a.y.height,
                groups = ceil_div(a.y.images, cuts.images), per_slot = widened_floats(s, a, cuts);
  // Too few strips for the threads: more of them where weights are few, so that threads find the rows that
  // they wrote; else the output blocks are cut too, in whole register tiles.
  int64_t strips = cuts.strips;
  if (!cuts.fetch_ahead && strips * groups < 2 * c.threads) strips = strips_for(c.threads, height, strips);
  const int64_t units = strips * groups;
  const int64_t pieces = c.threads == 1 || units >= 2 * c.threads ? 1 : ceil_div(blocks, 4);
  for_units(c, units * pieces, [&](int64_t slot, int64_t unit) {
    const int64_t piece = unit % pieces, strip = unit / pieces % strips, group = unit / pieces / strips;
    with_weights(s, a, 0, piece * 4, pieces == 1 ? blocks : lesser(blocks, piece * 4 + 4),
                 static_cast<float*>(c.scratch) + slot * per_slot,
                 [&](const ConvArgs& part, int64_t b0, int64_t b1) {
                   isa_table().conv_direct(
                       part, group * cuts.images, lesser<int64_t>(a.y.images, (group + 1) * cuts.images),
                       cut(height, strips, strip), cut(height, strips, strip + 1), b0, b1);
                 });
  });
}

void run_units(RunContext& c, const ConvState& s, ConvArgs a) {
  const IsaTable& isa = isa_table();
  const int64_t images = a.y.images, blocks = blocks16(a.y.channels), height = a.y.height;
  const Cuts cuts = cuts_of(s, a, c.threads);
  const int64_t per_slot = scratch_per_slot(s, a, cuts), strips = cuts.strips;
  float* scratch = static_cast<float*>(c.scratch);
  a.tile_blocks = static_cast<int32_t>(cuts.tile_blocks);
  a.fetch_ahead = cuts.fetch_ahead;
  if (s.weights != WeightKind::kF32 &&
      s.algorithm != Algorithm::kDirect) {  // few, and every thread needs all
    float* wide = scratch + c.threads * per_slot;
    isa.widen(s.weights, a.weights, wide, terms_of(s) * padded8(a.y.channels));
    a.weights = wide;
  }
  switch (s.algorithm) {
    case Algorithm::kDirect:
      if (s.groups > 1)
        run_groups(c, s, a, cuts);
      else
        run_direct(c, s, a, cuts);
      break;
    case Algorithm::kFirst:
      for_units(c, images * strips, [&](int64_t slot, int64_t unit) {
        const int64_t strip = unit % strips;
        isa.conv_first(a, scratch + slot * per_slot, unit / strips, cut(height, strips, strip),
                       cut(height, strips, strip + 1));
      });
      break;
    case Algorithm::kDepthwise:
      for_strips(c, images, blocks, height, strips,
                 [&](int64_t image, int64_t block, int64_t y0, int64_t y1) {
                   isa.conv_depthwise(a, image, block, y0, y1);
                 });
      break;
    case Algorithm::kWinograd:
      run_winograd(c, s, a, cuts);
      if (a.epilogue == nullptr) break;
      for_units(c, images * blocks, [&](int64_t, int64_t unit) {
        isa.epilogue(a, unit / blocks, 0, height, unit % blocks, unit % blocks + 1);
      });
      break;
  }
}

Status conv_run(RunContext& c) {
  const ConvState& s = *static_cast<ConvState*>(c.state);
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  keep_others(c, s.part);
  ConvArgs a = conv_args(s, c.inputs[0], c.outputs[0]);
  EpilogueRun epilogue;
  const Status status = prepare_conv(c, s, &a, &epilogue);
  if (status == OPFORGE_STATUS_OK) run_units(c, s, a);
  return status;
}

const OpKernel kRows[] = {
    {"opforge", "Conv", 1, 1, conv_load, conv_infer, conv_run, kPerImage, 2, kMany},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(conv16, opforge::kRows);
