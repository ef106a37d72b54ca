// integer_conv.cpp: opforge::IntegerConv, convolutions of quantised images with packed weights.
//
// It works on rows of pixels whose channels lie side by side (NHWC), padded with the zero
// point: a window is then a few runs of bytes, which the product reads where they lie. X and Y may be plain
// too, and are then turned on the way.
#include "kernels/integer.h"
#include "kernels/nhwc.h"
#include "kernels/part.h"

namespace opforge {
namespace {

using namespace kernels;

// Inputs: X, W (packed), sums of W per output channel, the terms, table, kept.
struct ConvState {
  int32_t kernel[2], stride[2], dilation[2], pads[4];
  int64_t channels_in = 0, channels_out = 0;
  int64_t parts = 1;  // of depthwise weights beyond i8, one below the other: each meets the same pixels
  bool depthwise = false, taps = false;
  Part part;
};
constexpr int kTable = 9, kKept = 10;

Status packed_load(LoadContext& c) {
  ConvState* s = new_state<ConvState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  read_ints(a, "kernel_shape", 2, 1, s->kernel);
  read_ints(a, "strides", 2, 1, s->stride);
  read_ints(a, "dilations", 2, 1, s->dilation);
  read_ints(a, "pads", 4, 0, s->pads);
  const auto within = [](const int32_t* v, int n, int least) {
    bool good = true;
    for (int i = 0; i < n; ++i) good = good && v[i] >= least && v[i] <= 65535;
    return good;
  };
  const Tensor &w = c.inputs[1], &sums = c.inputs[2];
  const bool packed = w.packing == Packing::kInteger16 || w.packing == Packing::kIntegerTaps16 ||
                      w.packing == Packing::kIntegerDepthwise16;
  if (w.data == nullptr || w.dtype != DType::kI8 || w.shape.rank != 4 || !packed ||
      !within(s->kernel, 2, 1) || !within(s->stride, 2, 1) || !within(s->dilation, 2, 1) ||
      !within(s->pads, 4, 0) || w.shape[3] != s->kernel[1])
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "W is not a constant i8 [O, I, %d, %d] packed for integers",
                  static_cast<int>(s->kernel[0]), static_cast<int>(s->kernel[1]));
  s->depthwise = w.packing == Packing::kIntegerDepthwise16;
  if (s->depthwise) s->parts = w.shape[2] / s->kernel[0];
  if (s->parts < 1 || w.shape[2] != s->parts * s->kernel[0])
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "W is not a constant i8 [O, I, %d, %d] packed for integers",
                  static_cast<int>(s->kernel[0]), static_cast<int>(s->kernel[1]));
  s->taps = w.packing == Packing::kIntegerTaps16;
  if (w.packing == Packing::kInteger16 && s->dilation[1] != 1)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "weights packed by rows have no dilation along them");
  s->channels_out = w.shape[0];
  s->channels_in = s->depthwise ? w.shape[0] : w.shape[1];
  if (sums.data == nullptr || sums.dtype != DType::kI32 || !is_plain(sums) ||
      sums.shape.elements() != s->channels_out)
    return c.fail(&c, OPFORGE_STATUS_CORRUPT, "the sums of W are not a constant i32 per output channel");
  if (Status wrong = load_table(c, kTable)) return wrong;
  return load_part(c, s->channels_out, kKept, &s->part, 1);
}

struct Frame {
  int64_t images, h, w, oh, ow;
  int64_t hp, wp;            // of the padded image
  int64_t pixel;             // bytes from pixel to pixel of the frame
  int64_t segments, length;  // runs of bytes of a window, bytes of each
  bool direct;               // X is read where it lies
  int64_t padded_bytes() const { return direct ? 0 : hp * wp; }
};

bool frame_of(const ConvState& s, const Tensor& x, Frame* f) {
  if (x.shape.rank != 4 || x.shape[1] != s.channels_in) return false;
  f->images = x.shape[0];
  f->h = x.shape[2], f->w = x.shape[3];
  f->hp = f->h + s.pads[0] + s.pads[2], f->wp = f->w + s.pads[1] + s.pads[3];
  const int64_t room_h = f->hp - (int64_t{s.kernel[0]} - 1) * s.dilation[0] - 1;
  const int64_t room_w = f->wp - (int64_t{s.kernel[1]} - 1) * s.dilation[1] - 1;
  f->oh = room_h < 0 ? 0 : room_h / s.stride[0] + 1;
  f->ow = room_w < 0 ? 0 : room_w / s.stride[1] + 1;
  const bool taps = s.taps || s.depthwise, given = is_nhwc(x);
  f->segments = taps ? s.parts * s.kernel[0] * s.kernel[1] : s.kernel[0];
  f->length = s.depthwise ? 1 : s.taps ? s.channels_in : s.channels_in * s.kernel[1];
  // Runs over several pixels have no gaps; depthwise loops read 16 channels at once.
  const bool dense = !taps && s.kernel[1] > 1;
  f->pixel = dense         ? s.channels_in
             : given       ? pixel_of(x)
             : s.depthwise ? padded16(s.channels_in)
                           : s.channels_in;
  const bool padded = (s.pads[0] | s.pads[1] | s.pads[2] | s.pads[3]) != 0;
  const bool whole = s.depthwise ? f->pixel % 16 == 0 : f->length % 4 == 0 || (!dense && f->pixel % 16 == 0);
  f->direct = given && f->pixel == pixel_of(x) && !padded && x.dtype == DType::kU8 && whole;
  int64_t pixels;
  return !__builtin_mul_overflow(f->hp, f->wp, &pixels) &&
         pixels <= (int64_t{1} << 46) / greater<int64_t>(1, padded16(greater(s.channels_in, s.channels_out)));
}

int64_t align64(int64_t n) { return (n + 63) / 64 * 64; }
int64_t frame_bytes(const Frame& f) { return align64(f.padded_bytes() * f.pixel + 16); }
int64_t result_bytes(const ConvState& s, const Frame& f, const Tensor& y) {
  return is_plain(y) ? align64(f.oh * f.ow * s.channels_out * (dtype_bits(y.dtype) / 8)) : 0;
}

Status packed_infer(InferContext& c) {
  const ConvState& s = *static_cast<ConvState*>(c.state);
  const Tensor& x = c.inputs[0];
  Frame f;
  if (!is_byte(x.dtype) || !(is_plain(x) || is_nhwc(x)) || x.packing != Packing::kNone || !frame_of(s, x, &f))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "X is not a u8 or i8 image of %lld channels",
                  static_cast<long long>(s.channels_in));
  if (Status wrong = check_terms(c, 3, s.channels_out)) return wrong;
  const bool zeros = c.n_inputs > 4 && c.inputs[4].present();
  if (zeros && s.depthwise)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "packed weights of a depthwise convolution have no zero point");
  if (c.n_inputs > kTable && c.inputs[kTable].present())
    if (Status wrong = check_table(c, kTable)) return wrong;
  Tensor& y = c.outputs[0];
  y.shape.rank = 4;
  y.shape.dims[0] = f.images, y.shape.dims[1] = s.part.total(s.channels_out);
  y.shape.dims[2] = f.oh, y.shape.dims[3] = f.ow;
  if (!is_nhwc(y) && (s.part.any() || !is_plain(y)))
    return c.fail(
        &c, OPFORGE_STATUS_INVALID_ARGUMENT,
        "the output of a quantised convolution is neither plain nor nhwc, or a part of a plain one");
  c.scratch_bytes = 4 * vector_words(s.channels_out) + align64(8 * f.segments) + frame_bytes(f) +
                    result_bytes(s, f, y) + (zeros ? 4 * (f.hp * f.wp + f.oh * f.ow) : 0);
  return infer_part(c, s.part, y.dtype);
}

// The image in NHWC with its padding, all bytes unsigned.
void pad_image(RunContext& c, const ConvState& s, const Frame& f, const Tensor& tensor, const uint8_t* x,
               uint8_t flip, uint8_t zero, uint8_t* to) {
  const IsaTable& isa = isa_table();
  const bool given = is_nhwc(tensor);
  const int64_t pixel = f.pixel, row = f.wp * pixel, from_pixel = given ? pixel_of(tensor) : 0;
  c.parallel(f.hp, greater<int64_t>(1, 32768 / greater<int64_t>(1, row)), [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      uint8_t* at = to + y * row;
      const int64_t from = y - s.pads[0];
      if (from < 0 || from >= f.h) {
        std::memset(at, zero, static_cast<size_t>(row));
        continue;
      }
      std::memset(at, zero, static_cast<size_t>(s.pads[1] * pixel));
      std::memset(at + (s.pads[1] + f.w) * pixel, zero, static_cast<size_t>(s.pads[3] * pixel));
      at += s.pads[1] * pixel;
      if (!given)
        isa.transpose_bytes(x + from * f.w, f.h * f.w, s.channels_in, f.w, at, pixel, flip);
      else if (from_pixel == pixel)
        isa.integer_rows(x + from * f.w * pixel, 0, flip, 1, f.w * pixel, at, f.w * pixel, nullptr);
      else
        isa.integer_rows(x + from * f.w * from_pixel, from_pixel, flip, f.w, s.channels_in, at, pixel,
                         nullptr);
    }
  });
}

// Sums of the bytes of each window, which weights with a zero point need: those of each pixel, added up.
void sum_windows(RunContext& c, const ConvState& s, const Frame& f, const uint8_t* from, uint32_t* pixels,
                 uint32_t* to) {
  const auto rows = [](int64_t cost) { return greater<int64_t>(1, 65536 / greater<int64_t>(1, cost)); };
  c.parallel(f.hp, rows(f.wp * f.pixel), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin * f.wp; p < end * f.wp; ++p) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < s.channels_in; ++k) sum += from[p * f.pixel + k];
      pixels[p] = sum;
    }
  });
  c.parallel(f.oh, rows(f.ow * s.kernel[0] * s.kernel[1]), [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      uint32_t* row = to + y * f.ow;
      std::memset(row, 0, static_cast<size_t>(4 * f.ow));
      for (int64_t ky = 0; ky < s.kernel[0]; ++ky)
        for (int64_t kx = 0; kx < s.kernel[1]; ++kx) {
          const uint32_t* at = pixels + (y * s.stride[0] + ky * s.dilation[0]) * f.wp + kx * s.dilation[1];
          for (int64_t i = 0; i < f.ow; ++i) row[i] += at[i * s.stride[1]];
        }
    }
  });
}

// [pixels][channels] to [channels][pixels] for a part of the pixels.
void to_planes(const void* from, int64_t pixels, int64_t channels, int64_t size, void* to, int64_t plane) {
  if (size == 1) {
    isa_table().transpose_bytes(static_cast<const uint8_t*>(from), channels, pixels, channels,
                                static_cast<uint8_t*>(to), plane, 0);
    return;
  }
  const auto* words = static_cast<const uint32_t*>(from);
  for (int64_t p0 = 0; p0 < pixels; p0 += 16)  // pixels whose lines stay in the first cache
    for (int64_t n = 0; n < channels; ++n)
      for (int64_t p = p0; p < lesser(pixels, p0 + 16); ++p)
        static_cast<uint32_t*>(to)[n * plane + p] = words[p * channels + n];
}

// Codes of n channels of some pixels through a table.
void look_up(const uint8_t* table, uint8_t* codes, int64_t pixels, int64_t n, int64_t pixel) {
  if (n == pixel) return isa_table().byte_table(table, codes, codes, pixels * pixel);
  for (int64_t p = 0; p < pixels; ++p) isa_table().byte_table(table, codes + p * pixel, codes + p * pixel, n);
}

Status packed_run(RunContext& c) {
  const ConvState& s = *static_cast<ConvState*>(c.state);
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  Frame f;
  frame_of(s, x, &f);
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  keep_others(c, s.part);
  const IsaTable& isa = isa_table();
  const bool turned = is_plain(y);
  const int64_t size = dtype_bits(y.dtype) / 8, channels = s.channels_out, plane = f.oh * f.ow;
  const int64_t y_pixel = turned ? channels : pixel_of(y);  // elements
  auto* memory = static_cast<uint8_t*>(c.scratch);
  void* vectors = memory;
  auto* segments = reinterpret_cast<int64_t*>(memory += 4 * vector_words(channels));
  uint8_t* padded = memory += align64(8 * f.segments);
  uint8_t* result = memory += frame_bytes(f);
  auto* pixel_sums = reinterpret_cast<uint32_t*>(memory + result_bytes(s, f, y));
  uint32_t* window_sums = pixel_sums + f.hp * f.wp;
  const int64_t row = f.wp * f.pixel;
  const bool taps = s.taps || s.depthwise;
  for (int64_t i = 0; i < f.segments; ++i) {
    const int64_t ky = taps ? i / s.kernel[1] % s.kernel[0] : i, kx = taps ? i % s.kernel[1] : 0;
    segments[i] = ky * s.dilation[0] * row + kx * s.dilation[1] * f.pixel;
  }
  IntegerArgs g{};
  const IntegerTerms terms = terms_of(c.inputs, c.n_inputs, 3, *c.attributes);
  fill_terms(terms, x.dtype, y.dtype, channels, f.segments * f.length, c.inputs[2].as<int32_t>(), vectors,
             &g);
  g.segments = segments;
  g.n_segments = f.segments;
  g.groups = (f.length + 3) / 4;
  g.b = c.inputs[1].as<int8_t>();
  g.a_row = s.stride[1] * f.pixel;
  g.c_row = y_pixel;
  // Lanes beyond the last channel are written where they belong to the pixel: whole vectors, no edge.
  if (!s.part.any() && y_pixel == padded16(channels)) g.n = y_pixel;
  const bool rows = needs_rows(terms, channels);
  const uint8_t flip = x.dtype == DType::kI8 ? kTopBit : 0;
  const uint8_t zero =
      terms.a_zero == nullptr ? flip : static_cast<uint8_t>(*terms.a_zero->as<uint8_t>() ^ flip);
  const uint8_t* table = table_of(c, kTable);
  const int64_t blocks = padded16(channels) / 16,
                x_bytes = f.h * f.w * (is_plain(x) ? s.channels_in : pixel_of(x));
  // Without a window the rows of an image are those of one matrix.
  const bool joined = f.segments * s.kernel[1] == 1 && s.stride[0] == 1 && s.stride[1] == 1 && f.wp == f.ow;
  const int64_t fitting = kIntegerWeights / greater<int64_t>(1, f.segments * g.groups * 64);
  const int64_t step = s.depthwise ? 1 : greater<int64_t>(4, fitting / 2 * 2);  // blocks
  // Rows of a unit: enough pixels to use a group of weights many times while it is in cache.
  const int64_t unit_rows = greater<int64_t>(1, 512 / greater<int64_t>(1, f.ow));
  for (int64_t image = 0; image < f.images; ++image) {
    const uint8_t* from = x.as<uint8_t>() + image * x_bytes;
    auto* to = y.as<uint8_t>() + image * plane * y_pixel * size;
    if (!f.direct) {
      pad_image(c, s, f, x, from, flip, zero, padded);
      from = padded;
    }
    if (rows) sum_windows(c, s, f, from, pixel_sums, window_sums);
    uint8_t* out = turned ? result : to + s.part.offset * size;
    for_units(c, ceil_div(f.oh, unit_rows), [&](int64_t, int64_t unit) {
      const int64_t y0 = unit * unit_rows, y1 = lesser(f.oh, y0 + unit_rows);
      for (int64_t block = 0; block < (s.depthwise ? 1 : blocks); block += step) {
        for (int64_t r = y0; r < y1; r += joined ? y1 - y0 : 1) {
          IntegerArgs own = g;
          own.a = from + r * s.stride[0] * row;
          own.c = out + r * f.ow * y_pixel * size;
          own.row = rows ? reinterpret_cast<int32_t*>(window_sums + r * f.ow) : nullptr;
          if (!s.depthwise) {
            isa.integer_product(own, 0, joined ? (y1 - y0) * f.ow : f.ow, block,
                                lesser(blocks, block + step));
            continue;
          }
          isa.integer_depthwise({own.a, own.a_row, segments, f.segments, own.b, own}, f.ow);
        }
      }
      if (table != nullptr) look_up(table, out + y0 * f.ow * y_pixel, (y1 - y0) * f.ow, g.n, y_pixel);
      if (turned)
        to_planes(out + y0 * f.ow * channels * size, (y1 - y0) * f.ow, channels, size, to + y0 * f.ow * size,
                  plane);
    });
  }
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"opforge", "IntegerConv", 1, 1, packed_load, packed_infer, packed_run, kPerImage, 3, 11},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(integer_conv, opforge::kRows);
