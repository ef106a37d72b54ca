// regions.cpp: RoiAlign and MaxRoiPool: regions of feature maps brought to one size.
#include <cmath>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr double kMostSamples = 4096;  // of a bin's side: regions come from data

// The common part: [N, C, H, W] and [R, columns] give [R, C, height, width].
Status region_shape(InferContext& c, int64_t columns, int64_t height, int64_t width) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Tensor &x = c.inputs[0], &rois = c.inputs[1];
  if (!is_real(x.dtype) || !is_plain(x)) return no_type(c);
  const auto in_range = [](int64_t n) { return n >= 1 && n < INT32_MAX; };
  if (x.shape.rank != 4 || rois.shape.rank != 2 || rois.shape[1] != columns || rois.dtype != x.dtype ||
      !is_plain(rois) || !in_range(height) || !in_range(width))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the operator takes X [N, C, H, W], regions [R, %lld] and a size of the result",
                  static_cast<long long>(columns));
  if (rois.shape[0] != 0 && (x.shape[2] == 0 || x.shape[3] == 0))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "an empty image has no regions");
  Shape& y = c.outputs[0].shape;
  y.rank = 4;
  y.dims[0] = rois.shape[0], y.dims[1] = x.shape[1], y.dims[2] = height, y.dims[3] = width;
  return OPFORGE_STATUS_OK;
}

// ---- RoiAlign
Status align_infer(InferContext& c) {
  const StringView mode = c.attributes->get_string("mode", "avg");
  const StringView way = c.attributes->get_string("coordinate_transformation_mode", "half_pixel");
  const int64_t ratio = c.attributes->get_int("sampling_ratio", 0);
  if ((!equals(mode, "avg") && !equals(mode, "max")) ||
      (!equals(way, "half_pixel") && !equals(way, "output_half_pixel")) || ratio < 0 ||
      ratio > static_cast<int64_t>(kMostSamples))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "an attribute of RoiAlign is out of range");
  if (Status wrong = region_shape(c, 4, c.attributes->get_int("output_height", 1),
                                  c.attributes->get_int("output_width", 1)))
    return wrong;
  const Tensor& batch = c.inputs[2];
  if (batch.dtype != DType::kI64 || batch.shape.rank != 1 || batch.shape[0] != c.inputs[1].shape[0])
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "batch_indices is no i64 [R]");
  return OPFORGE_STATUS_OK;
}

// Four neighbours of a sample; `weight` all zero outside.
template <class T>
struct Sample {
  int64_t at[4] = {};
  T weight[4] = {};
  Sample(T y, T x, int64_t height, int64_t width) {
    if (!(y >= -1) || !(x >= -1) || y > static_cast<T>(height) || x > static_cast<T>(width)) return;
    const auto axis = [](T v, int64_t size, int64_t* low, int64_t* high) {
      v = greater(v, T(0));
      *low = lesser(static_cast<int64_t>(v), size - 1);
      *high = lesser(*low + 1, size - 1);
      return *low == size - 1 ? T(0) : v - static_cast<T>(*low);
    };
    int64_t y0, y1, x0, x1;
    const T fy = axis(y, height, &y0, &y1), fx = axis(x, width, &x0, &x1);
    at[0] = y0 * width + x0, at[1] = y0 * width + x1, at[2] = y1 * width + x0, at[3] = y1 * width + x1;
    weight[0] = (1 - fy) * (1 - fx), weight[1] = (1 - fy) * fx, weight[2] = fy * (1 - fx),
    weight[3] = fy * fx;
  }
};

template <class T>
struct Region {
  T y = 0, x = 0, bin_height = 0, bin_width = 0;
  int64_t rows = 0, columns = 0;  // samples of a bin

  // False where the region needs too many samples (or has none of a size).
  bool set(const T* roi, const Attributes& a, const Shape& out) {
    const T scale = static_cast<T>(a.get_float("spatial_scale", 1));
    const bool half = equals(a.get_string("coordinate_transformation_mode", "half_pixel"), "half_pixel");
    const T shift = half ? T(0.5) : T(0);
    x = roi[0] * scale - shift, y = roi[1] * scale - shift;
    T width = roi[2] * scale - shift - x, height = roi[3] * scale - shift - y;
    if (!half) width = greater(width, T(1)), height = greater(height, T(1));
    bin_height = height / static_cast<T>(out[2]), bin_width = width / static_cast<T>(out[3]);
    const int64_t ratio = a.get_int("sampling_ratio", 0);
    const T r = ratio > 0 ? static_cast<T>(ratio) : std::ceil(bin_height);
    const T s = ratio > 0 ? static_cast<T>(ratio) : std::ceil(bin_width);
    if (!(std::fabs(r) <= T(kMostSamples)) || !(std::fabs(s) <= T(kMostSamples))) return false;
    rows = greater<int64_t>(0, static_cast<int64_t>(r)),
    columns = greater<int64_t>(0, static_cast<int64_t>(s));
    return true;
  }
};

template <class T>
void align_bin(const Region<T>& r, const Shape& shape, int64_t bin_y, int64_t bin_x, bool average,
               const T* planes, T* to, int64_t step) {
  const int64_t height = shape[2], width = shape[3], channels = shape[1];
  const T count = static_cast<T>(greater<int64_t>(1, r.rows * r.columns));
  for (int64_t k = 0; k < channels; ++k) to[k * step] = 0;
  for (int64_t i = 0; i < r.rows; ++i)
    for (int64_t j = 0; j < r.columns; ++j) {
      const T y = r.y + static_cast<T>(bin_y) * r.bin_height +
                  (static_cast<T>(i) + T(0.5)) * r.bin_height / static_cast<T>(r.rows);
      const T x = r.x + static_cast<T>(bin_x) * r.bin_width +
                  (static_cast<T>(j) + T(0.5)) * r.bin_width / static_cast<T>(r.columns);
      const Sample<T> s(y, x, height, width);
      for (int64_t k = 0; k < channels; ++k) {
        const T* p = planes + k * height * width;
        const T a = s.weight[0] * p[s.at[0]], b = s.weight[1] * p[s.at[1]];
        const T c = s.weight[2] * p[s.at[2]], d = s.weight[3] * p[s.at[3]];
        T& value = to[k * step];
        if (average) {
          value += a + b + c + d;
        } else {  // the greatest weighted neighbour, as the standard's own results have it
          const T most = greater(greater(a, b), greater(c, d));
          value = i + j == 0 ? most : greater(value, most);
        }
      }
    }
  for (int64_t k = 0; average && k < channels; ++k) to[k * step] /= count;
}

Status align_run(RunContext& c) {
  const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
  if (y.elements() == 0) return OPFORGE_STATUS_OK;
  const int64_t* batch = c.inputs[2].as<int64_t>();
  const bool average = equals(c.attributes->get_string("mode", "avg"), "avg");
  for (int64_t r = 0; r < y[0]; ++r)
    if (batch[r] < 0 || batch[r] >= x[0])
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "region %lld lies in image %lld of %lld",
                    static_cast<long long>(r), static_cast<long long>(batch[r]),
                    static_cast<long long>(x[0]));
  std::atomic<bool> good{true};
  with_real(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    c.parallel(y[0] * y[2], 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t r = unit / y[2], row = unit % y[2];
        Region<T> region;
        if (!region.set(c.inputs[1].as<T>() + 4 * r, *c.attributes, y)) {
          good = false;
          return;
        }
        const T* planes = c.inputs[0].as<T>() + batch[r] * x[1] * x[2] * x[3];
        for (int64_t column = 0; column < y[3]; ++column)
          align_bin(region, x, row, column, average, planes,
                    c.outputs[0].as<T>() + (r * y[1] * y[2] + row) * y[3] + column, y[2] * y[3]);
      }
    });
  });
  return good ? OPFORGE_STATUS_OK
              : c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                       "a region is not finite or takes too many samples");
}

// ---- MaxRoiPool
bool pooled_shape(const Attributes& attributes, int64_t* height, int64_t* width) {
  const int64_t* given = nullptr;
  int64_t count = 0;
  if (!attributes.get_ints("pooled_shape", &given, &count) || count != 2) return false;
  *height = given[0], *width = given[1];
  return true;
}

Status roi_pool_infer(InferContext& c) {
  int64_t height = 0, width = 0;
  if (!pooled_shape(*c.attributes, &height, &width))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "pooled_shape is no pair");
  return region_shape(c, 5, height, width);
}

// The pixels [begin, end) of a bin within an axis of `size` pixels.
template <class T>
void bin_range(T first, T last, int64_t bin, int64_t bins, int64_t size, int64_t* begin, int64_t* end) {
  const T length = greater(last - first + 1, T(1)), step = length / static_cast<T>(bins);
  const auto limit = [&](T v) {
    const T top = static_cast<T>(size);  // may be rounded up
    return !(v > 0) ? int64_t{0} : v > top ? size : lesser(size, static_cast<int64_t>(v));
  };
  *begin = limit(std::floor(static_cast<T>(bin) * step) + first);
  *end = limit(std::ceil(static_cast<T>(bin + 1) * step) + first);
}

template <class T>
bool roi_pool(RunContext& c) {
  const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
  const T scale = static_cast<T>(c.attributes->get_float("spatial_scale", 1));
  const T* rois = c.inputs[1].as<T>();
  for (int64_t r = 0; r < y[0]; ++r)
    if (!(rois[5 * r] >= 0) || !(rois[5 * r] < static_cast<T>(x[0]))) return false;
  c.parallel(y[0] * y[1], 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const T* roi = rois + unit / y[1] * 5;
      const T* plane =
          c.inputs[0].as<T>() + (static_cast<int64_t>(roi[0]) * x[1] + unit % y[1]) * x[2] * x[3];
      T* to = c.outputs[0].as<T>() + unit * y[2] * y[3];
      T edge[4];
      for (int k = 0; k < 4; ++k) edge[k] = std::round(roi[1 + k] * scale);
      for (int64_t i = 0; i < y[2]; ++i)
        for (int64_t j = 0; j < y[3]; ++j) {
          int64_t y0, y1, x0, x1;
          bin_range(edge[1], edge[3], i, y[2], x[2], &y0, &y1);
          bin_range(edge[0], edge[2], j, y[3], x[3], &x0, &x1);
          T most = y0 < y1 && x0 < x1 ? plane[y0 * x[3] + x0] : T(0);
          for (int64_t v = y0; v < y1; ++v)
            for (int64_t u = x0; u < x1; ++u) {
              const T value = plane[v * x[3] + u];
              if (value > most || value != value) most = value;
            }
          *to++ = most;
        }
    }
  });
  return true;
}

Status roi_pool_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  bool good = false;
  with_real(c.inputs[0].dtype,
            [&](auto* type) { good = roi_pool<std::remove_pointer_t<decltype(type)>>(c); });
  return good ? OPFORGE_STATUS_OK
              : c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "a region lies in no image of the batch");
}

const OpKernel kRows[] = {
    {"", "RoiAlign", 16, kNewest, nullptr, align_infer, align_run, 0, 3},
    {"", "MaxRoiPool", 1, kNewest, nullptr, roi_pool_infer, roi_pool_run, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(regions, opforge::kRows);
