// integer_image.cpp: what stands between quantised convolutions and works on their bytes: IntegerAdd and
// IntegerMul, IntegerTable, IntegerPool.
#include <cmath>
#include <limits>

#include "kernels/integer.h"
#include "kernels/nhwc.h"
#include "kernels/window.h"

namespace opforge {
namespace {

using namespace kernels;

bool is_code(const Tensor& t) { return is_byte(t.dtype) && t.packing == Packing::kNone; }
bool is_dense(const Tensor& t) { return is_plain(t) || is_nhwc(t); }
// Bytes that a tensor takes, lanes beyond the last channel included.
int64_t held_bytes(const Tensor& t) { return storage_bytes(t.dtype, t.shape, t.layout); }

// The scale and zero point of one operand, attributes NAME_scale and NAME_zero.
struct Quantisation {
  float scale = 1;
  int32_t zero = 0;

  // False where they are out of range.
  bool read(const Attributes& a, const char* scale_name, const char* zero_name) {
    scale = static_cast<float>(a.get_float(scale_name, 1));
    const int64_t given = a.get_int(zero_name, 0);
    zero = static_cast<int32_t>(given);
    return std::isfinite(scale) && scale > 0 && given >= -128 && given <= 255;
  }
  bool fits(DType dtype) const { return dtype == DType::kI8 ? zero <= 127 : zero >= 0; }
};

Status out_of_range(LoadContext& c) {
  return c.fail(&c, OPFORGE_STATUS_CORRUPT, "a scale or zero point of a quantised operand is out of range");
}

// ---- IntegerAdd, IntegerMul: A, B, table or absent
// ------------------------------------------------------------------------------------------------------
struct PairState {
  Quantisation a, b, y;
  int64_t least, most;
};

Status pair_load(LoadContext& c) {
  PairState* s = new_state<PairState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  const bool good = s->a.read(a, "a_scale", "a_zero") && s->b.read(a, "b_scale", "b_zero") &&
                    s->y.read(a, "y_scale", "y_zero");
  s->least = a.get_int("least", -128);
  s->most = a.get_int("most", 255);
  if (!good || s->least > s->most) return out_of_range(c);
  return load_table(c, 2);
}

Status pair_infer(InferContext& c) {
  const PairState& s = *static_cast<PairState*>(c.state);
  const Tensor &a = c.inputs[0], &b = c.inputs[1];
  Tensor& y = c.outputs[0];
  const bool pixels = wants_nhwc(y) && b.shape.rank == 4 && b.shape[0] == a.shape[0] &&
                      b.shape[1] == a.shape[1] && b.shape[2] == 1 && b.shape[3] == 1;
  if (!is_code(a) || !is_code(b) || !is_byte(y.dtype) || !is_dense(a) || !is_dense(b) ||
      !same_layout(a.layout, y.layout) || !same_layout(b.layout, y.layout) ||
      !(same_shape(a.shape, b.shape) || pixels) || !s.a.fits(a.dtype) || !s.b.fits(b.dtype) ||
      !s.y.fits(y.dtype))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the operands of a quantised sum or product are not bytes of one shape and layout");
  y.shape = a.shape;
  if (Status wrong = check_table(c, 2)) return wrong;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status pair_run(RunContext& c, bool product) {
  const PairState& s = *static_cast<PairState*>(c.state);
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &y = c.outputs[0];
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  BytePairArgs g{};
  g.a_scale = s.a.scale, g.b_scale = s.b.scale, g.scale = s.y.scale;
  g.inverse = lesser(1 / s.y.scale, std::numeric_limits<float>::max());  // 0 times infinity is no number
  g.a_flip = a.dtype == DType::kI8 ? kTopBit : 0, g.b_flip = b.dtype == DType::kI8 ? kTopBit : 0;
  g.a_zero = s.a.zero + g.a_flip, g.b_zero = s.b.zero + g.b_flip, g.zero = s.y.zero;
  const bool is_signed = y.dtype == DType::kI8;
  // The bounds of the dtype hold whatever the file says, and the zero point lies between them.
  g.least = static_cast<int32_t>(greater<int64_t>(s.least, is_signed ? -128 : 0));
  g.most = static_cast<int32_t>(lesser<int64_t>(s.most, is_signed ? 127 : 255));
  if (g.most < g.least) g.most = g.least;
  g.product = product;
  const uint8_t* table = table_of(c, 2);
  const auto *from_a = a.as<uint8_t>(), *from_b = b.as<uint8_t>();
  auto* to = y.as<uint8_t>();
  if (same_shape(a.shape, b.shape)) {
    c.parallel(held_bytes(y), 16384, [&](int64_t begin, int64_t end) {
      BytePairArgs own = g;
      own.a = from_a + begin, own.b = from_b + begin, own.y = to + begin, own.n = end - begin;
      isa_table().byte_pairs(own, 1);
      if (table != nullptr) isa_table().byte_table(table, own.y, own.y, own.n);
    });
    return OPFORGE_STATUS_OK;
  }
  const int64_t pixel = pixel_of(y);
  g.a_row = g.y_row = g.n = pixel;
  for_units(c, y.shape[0] * y.shape[2], [&](int64_t, int64_t unit) {
    const int64_t image = unit / y.shape[2], first = unit * y.shape[3];
    BytePairArgs own = g;
    own.a = from_a + first * pixel, own.b = from_b + image * pixel, own.y = to + first * pixel;
    isa_table().byte_pairs(own, y.shape[3]);
    if (table != nullptr) isa_table().byte_table(table, own.y, own.y, y.shape[3] * pixel);
  });
  return OPFORGE_STATUS_OK;
}
Status add_run(RunContext& c) { return pair_run(c, false); }
Status mul_run(RunContext& c) { return pair_run(c, true); }

// ---- IntegerTable: X, table
// ------------------------------------------------------------------------------------------------------
Status lookup_load(LoadContext& c) { return load_table(c, 1); }

Status lookup_infer(InferContext& c) {
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  if (!is_code(x) || !is_dense(x) || !same_layout(x.layout, y.layout))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "X of a table is not bytes in the output's layout");
  y.shape = x.shape;
  c.inplace_input[0] = 0;
  return check_table(c, 1);
}

Status lookup_run(RunContext& c) {
  const Tensor& y = c.outputs[0];
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  const uint8_t* table = table_of(c, 1);
  c.parallel(held_bytes(y), 32768, [&](int64_t begin, int64_t end) {
    isa_table().byte_table(table, c.inputs[0].as<uint8_t>() + begin, y.as<uint8_t>() + begin, end - begin);
  });
  return OPFORGE_STATUS_OK;
}

// ---- IntegerPool: X in nhwc
// ------------------------------------------------------------------------------------------------------
struct PoolState {
  Quantisation x, y;
  bool average = false, count_padding = false, whole = false;  // whole: one window, the image
};

Status pool_load(LoadContext& c) {
  PoolState* s = new_state<PoolState>(c);
  if (s == nullptr) return no_memory(c);
  const Attributes& a = *c.attributes;
  const StringView mode = a.get_string("mode", "max");
  s->average = equals(mode, "average");
  if (!s->average && !equals(mode, "max"))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "mode is neither max nor average");
  s->count_padding = a.get_int("count_include_pad", 0) != 0;
  s->whole = !a.has("kernel_shape");
  if (!s->x.read(a, "x_scale", "x_zero") || !s->y.read(a, "y_scale", "y_zero")) return out_of_range(c);
  return OPFORGE_STATUS_OK;
}

bool window_of(const Attributes& a, const PoolState& s, const Shape& x, Window* w) {
  if (!s.whole) return read_window(a, x, nullptr, w);
  w->rank = 2;
  w->in[1] = w->kernel[1] = x[2], w->in[2] = w->kernel[2] = x[3];
  return x[2] > 0 && x[3] > 0;
}

Status pool_infer(InferContext& c) {
  const PoolState& s = *static_cast<PoolState*>(c.state);
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  Window w;
  const bool bytes = is_code(x) && is_nhwc(x) && same_layout(x.layout, y.layout);
  if (!bytes || !is_byte(y.dtype) || (!s.average && x.dtype != y.dtype) || !s.x.fits(x.dtype) ||
      !s.y.fits(y.dtype) || !window_of(*c.attributes, s, x.shape, &w) || w.rank != 2)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "X of a quantised pool is not bytes [N, C, H, W] in nhwc");
  y.shape = x.shape;
  for (int i = 0; i < 2; ++i) y.shape.dims[2 + i] = w.out[1 + i];
  return OPFORGE_STATUS_OK;
}

typedef uint8_t Codes __attribute__((vector_size(16)));
typedef uint8_t CodesMemory __attribute__((vector_size(16), aligned(1), may_alias));
typedef int8_t SignedCodes __attribute__((vector_size(16)));
typedef uint16_t Sums __attribute__((vector_size(32)));

// The taps of one window that lie in the image.
struct Taps {
  const uint8_t* first;
  int64_t rows, columns, row, column;  // bytes from tap to tap
};

void largest(const Taps& t, int64_t n, bool is_signed, uint8_t* to) {
  const uint8_t flip = is_signed ? kTopBit : 0;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Codes best{};
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t k = 0; k < t.columns; ++k) {
        const Codes x = *reinterpret_cast<const CodesMemory*>(t.first + r * t.row + k * t.column + i) ^ flip;
        best = x > best ? x : best;
      }
    *reinterpret_cast<CodesMemory*>(to + i) = best ^ flip;
  }
  for (; i < n; ++i) {
    uint8_t best = 0;
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t k = 0; k < t.columns; ++k)
        best = greater(best, static_cast<uint8_t>(t.first[r * t.row + k * t.column + i] ^ flip));
    to[i] = best ^ flip;
  }
}

// Sums of codes with their top bit turned where they are signed.
void sum_up(const Taps& t, int64_t n, uint8_t flip, int64_t* sums) {
  for (int64_t i = 0; i < n; i += 16) {
    const int64_t real = lesser<int64_t>(16, n - i);
    int64_t total[16] = {};
    Sums part{};
    int32_t taken = 0;
    const auto spill = [&] {
      for (int j = 0; j < 16; ++j) total[j] += part[j];
      part = Sums{};
      taken = 0;
    };
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t k = 0; k < t.columns; ++k) {
        const uint8_t* at = t.first + r * t.row + k * t.column + i;
        Codes x{};
        if (real == 16)
          x = *reinterpret_cast<const CodesMemory*>(at);
        else
          std::memcpy(&x, at, static_cast<size_t>(real));
        part += __builtin_convertvector(x ^ flip, Sums);
        if (++taken == 256) spill();
      }
    spill();
    for (int64_t j = 0; j < real; ++j) sums[i + j] = total[j];
  }
}

Status pool_run(RunContext& c) {
  const PoolState& s = *static_cast<PoolState*>(c.state);
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  if (y.shape.elements() == 0) return OPFORGE_STATUS_OK;
  Window w;
  window_of(*c.attributes, s, x.shape, &w);
  const int64_t pixel = pixel_of(x), height = x.shape[2], width = x.shape[3], channels = x.shape[1];
  const bool is_signed = x.dtype == DType::kI8;
  const uint8_t flip = is_signed ? kTopBit : 0;
  const double factor = static_cast<double>(s.x.scale) / s.y.scale;
  const double least = y.dtype == DType::kI8 ? -128 : 0, most = y.dtype == DType::kI8 ? 127 : 255;
  for_units(c, y.shape[0] * y.shape[2], [&](int64_t, int64_t unit) {
    const Span sy(w, 1, unit % y.shape[2], s.count_padding);
    const uint8_t* from = x.as<uint8_t>() + unit / y.shape[2] * height * width * pixel;
    uint8_t* to = y.as<uint8_t>() + unit * y.shape[3] * pixel;
    for (int64_t ox = 0; ox < y.shape[3]; ++ox, to += pixel) {
      const Span sx(w, 2, ox, s.count_padding);
      Taps t{from, sy.hi - sy.lo, sx.hi - sx.lo, w.dilation[1] * width * pixel, w.dilation[2] * pixel};
      if (t.rows > 0 && t.columns > 0)
        t.first += ((sy.at + sy.lo * w.dilation[1]) * width + sx.at + sx.lo * w.dilation[2]) * pixel;
      if (!s.average) {
        largest(t, pixel, is_signed, to);
        continue;
      }
      const double zero = static_cast<double>(s.x.zero + flip) * static_cast<double>(t.rows * t.columns);
      const double share = factor / (static_cast<double>(sy.counted) * static_cast<double>(sx.counted));
      for (int64_t i = 0; i < channels; i += 256) {
        int64_t sums[256];
        const int64_t n = lesser<int64_t>(256, channels - i);
        Taps part = t;
        part.first += i;
        sum_up(part, n, flip, sums);
        for (int64_t k = 0; k < n; ++k) {
          const double q = std::nearbyint((static_cast<double>(sums[k]) - zero) * share) + s.y.zero;
          // A window without taps is no number, and that is code 0.
          to[i + k] = static_cast<uint8_t>(static_cast<int32_t>(q != q      ? 0
                                                                : q < least ? least
                                                                : q > most  ? most
                                                                            : q));
        }
      }
    }
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"opforge", "IntegerAdd", 1, 1, pair_load, pair_infer, add_run, kPerImage, 2, 3},
    {"opforge", "IntegerMul", 1, 1, pair_load, pair_infer, mul_run, kPerImage, 2, 3},
    {"opforge", "IntegerTable", 1, 1, lookup_load, lookup_infer, lookup_run, kPerImage, 2},
    {"opforge", "IntegerPool", 1, 1, pool_load, pool_infer, pool_run, kPerImage},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(integer_image, opforge::kRows);
