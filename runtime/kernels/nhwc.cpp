// nhwc.cpp: moves between images whose channels lie side by side, and to and from the other layouts.
#include "kernels/nhwc.h"

#include "kernels/move.h"

namespace opforge::kernels {
namespace {

Status refused(InferContext& c) {
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the operands are not [N, C, H, W] of one dtype in nhwc without a halo");
}
bool good(const Tensor& x, const Tensor& y) {
  return is_nhwc(x) && x.dtype == y.dtype && element_bytes(x.dtype) > 0 && x.packing == Packing::kNone;
}

uint8_t* pixel_at(const Tensor& t, int64_t element, int64_t image, int64_t y, int64_t x) {
  return t.as<uint8_t>() + ((image * t.shape[2] + y) * t.shape[3] + x) * pixel_of(t) * element;
}

// Rows of `columns` elements to columns: to[j][i] = from[i][j]; strides in elements.
template <class T>
void turn(const void* from, int64_t from_row, int64_t rows, int64_t columns, void* to, int64_t to_row) {
  const auto* a = static_cast<const T*>(from);
  auto* b = static_cast<T*>(to);
  for (int64_t j0 = 0; j0 < columns; j0 += 16)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = j0; j < lesser(columns, j0 + 16); ++j) b[j * to_row + i] = a[i * from_row + j];
}

void turn_elements(const void* from, int64_t from_row, int64_t rows, int64_t columns, void* to,
                   int64_t to_row, int64_t element) {
  if (element == 1)
    isa_table().transpose_bytes(static_cast<const uint8_t*>(from), from_row, rows, columns,
                                static_cast<uint8_t*>(to), to_row, 0);
  else if (element == 2)
    turn<uint16_t>(from, from_row, rows, columns, to, to_row);
  else if (element == 4)
    turn<uint32_t>(from, from_row, rows, columns, to, to_row);
  else
    turn<uint64_t>(from, from_row, rows, columns, to, to_row);
}

// One row of pixels between c16 and nhwc, f32.
void blocked_row(const Image& blocked, float* flat, int64_t pixel, int64_t image, int64_t row, bool to_flat) {
  const int64_t channels = blocked.channels;
  for (int64_t b = 0; b < blocks16(channels); ++b) {
    const int64_t lanes = b < (channels + 7) / 16 ? 16 : 8, real = lesser(lanes, channels - b * 16);
    float* at = blocked.data + image * blocked.batch + b * blocked.plane * 16 +
                ((blocked.top + row) * blocked.row + blocked.left) * lanes;
    float* to = flat + b * 16;
    for (int64_t i = 0; i < blocked.width; ++i, at += lanes, to += pixel) {
      std::memcpy(to_flat ? to : at, to_flat ? at : to, sizeof(float) * static_cast<size_t>(real));
      for (int64_t k = real; !to_flat && k < lanes; ++k) at[k] = 0;
    }
  }
}

}  // namespace

Status nhwc_resize_infer(InferContext& c, int64_t scale_h, int64_t scale_w) {
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  if (!good(x, y) || !same_layout(x.layout, y.layout)) return refused(c);
  y.shape = x.shape;
  y.shape.dims[2] *= scale_h;
  y.shape.dims[3] *= scale_w;
  return OPFORGE_STATUS_OK;
}

void nhwc_resize(RunContext& c, int64_t scale_h, int64_t scale_w) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const int64_t element = element_bytes(x.dtype), pixel = pixel_of(x) * element, height = x.shape[2],
                width = x.shape[3], row = width * scale_w * pixel;
  for_units(c, x.shape[0] * height, [&](int64_t, int64_t unit) {
    const uint8_t* from = pixel_at(x, element, unit / height, unit % height, 0);
    uint8_t* first = pixel_at(y, element, unit / height, unit % height * scale_h, 0);
    uint8_t* to = first;
    for (int64_t i = 0; i < width; ++i, from += pixel)
      for (int64_t k = 0; k < scale_w; ++k, to += pixel) std::memcpy(to, from, static_cast<size_t>(pixel));
    for (int64_t k = 1; k < scale_h; ++k) std::memcpy(first + k * row, first, static_cast<size_t>(row));
  });
}

Status nhwc_concat_infer(InferContext& c) {
  Tensor& y = c.outputs[0];
  int64_t channels = 0;
  for (int i = 0; i < c.n_inputs; ++i) {
    const Tensor& x = c.inputs[i];
    if (!good(x, y)) return refused(c);
    const Shape& first = c.inputs[0].shape;
    if (x.shape[0] != first[0] || x.shape[2] != first[2] || x.shape[3] != first[3])
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                    "the inputs of ConcatChannels differ in more than channels");
    channels += x.shape[1];
  }
  y.shape = c.inputs[0].shape;
  y.shape.dims[1] = channels;
  return is_nhwc(y) ? OPFORGE_STATUS_OK : refused(c);
}

void nhwc_concat(RunContext& c) {
  const Tensor& y = c.outputs[0];
  const int64_t element = element_bytes(y.dtype), to_pixel = pixel_of(y) * element, pixels = pixels_of(y);
  c.parallel(pixels, greater<int64_t>(1, 65536 / greater<int64_t>(1, to_pixel)),
             [&](int64_t begin, int64_t end) {
               uint8_t* part = y.as<uint8_t>() + begin * to_pixel;
               for (int i = 0; i < c.n_inputs; ++i) {
                 const Tensor& x = c.inputs[i];
                 const int64_t pixel = pixel_of(x) * element, bytes = x.shape[1] * element;
                 const uint8_t* from = x.as<uint8_t>() + begin * pixel;
                 uint8_t* to = part;
                 for (int64_t p = begin; p < end; ++p, from += pixel, to += to_pixel)
                   std::memcpy(to, from, static_cast<size_t>(bytes));
                 part += bytes;
               }
             });
}

Status nhwc_reorder_infer(InferContext& c) {
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  const auto known = [](const Tensor& t) { return is_plain(t) || wants_nhwc(t) || (is_c16(t) && is_f32(t)); };
  const Layout& to = y.layout;
  const bool framed = wants_nhwc(y) && (to.top | to.left | to.bottom | to.right) != 0;
  if (x.shape.rank != 4 || x.dtype != y.dtype || element_bytes(x.dtype) == 0 || !known(x) || !known(y) ||
      (wants_nhwc(x) && !is_nhwc(x)) || framed || x.packing != Packing::kNone)
    return refused(c);
  y.shape = x.shape;
  // One pixel whose channels are all there lies the same way in both.
  const bool dense = (is_plain(x) || is_nhwc(x)) && (is_plain(y) || wants_nhwc(y));
  const bool narrow = x.shape[1] == 1 || (x.shape[2] == 1 && x.shape[3] == 1);
  if (dense && pixel_of(x) == x.shape[1] && pixel_of(y) == x.shape[1] &&
      (narrow || (wants_nhwc(x) && wants_nhwc(y))))
    c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

void nhwc_reorder(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const int64_t element = element_bytes(x.dtype), channels = x.shape[1], height = x.shape[2],
                width = x.shape[3], plane = height * width;
  const int64_t strips = greater<int64_t>(1, lesser(height, plane * channels / 65536));
  for_units(c, x.shape[0] * strips, [&](int64_t, int64_t unit) {
    const int64_t image = unit / strips, y0 = cut(height, strips, unit % strips),
                  pixels = (cut(height, strips, unit % strips + 1) - y0) * width;
    const auto plain_at = [&](const Tensor& t) {
      return t.as<uint8_t>() + (image * channels * plane + y0 * width) * element;
    };
    const auto flat_at = [&](const Tensor& t) { return pixel_at(t, element, image, y0, 0); };
    if (is_c16(x) || is_c16(y)) {
      const Tensor &flat = is_c16(x) ? y : x, &blocked = is_c16(x) ? x : y;
      for (int64_t row = y0; row * width < y0 * width + pixels; ++row)
        blocked_row(image_of(blocked), reinterpret_cast<float*>(pixel_at(flat, element, image, row, 0)),
                    pixel_of(flat), image, row, is_c16(x));
    } else if (is_plain(x)) {
      turn_elements(plain_at(x), plane, channels, pixels, flat_at(y), pixel_of(y), element);
    } else if (is_plain(y)) {
      turn_elements(flat_at(x), pixel_of(x), pixels, channels, plain_at(y), plane, element);
    } else {
      const int64_t from = pixel_of(x) * element, to = pixel_of(y) * element;
      for (int64_t i = 0; i < pixels; ++i)
        std::memcpy(flat_at(y) + i * to, flat_at(x) + i * from, static_cast<size_t>(channels * element));
    }
  });
}

}  // namespace opforge::kernels
