// linear_algebra.cpp: Det and LRN.
#include <cmath>
#include <utility>

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

// ---- Det: elimination with partial pivoting, in double precision
Status det_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const Shape& x = c.inputs[0].shape;
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (x.rank < 2 || x[-1] != x[-2])
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "Det takes square matrices [..., M, M]");
  c.outputs[0].shape = x;
  c.outputs[0].shape.rank -= 2;
  c.scratch_bytes = 8 * scratch_floats(x[-1] * x[-1]) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

double determinant(double* a, int64_t n) {
  double result = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t r = k + 1; r < n; ++r)
      if (std::fabs(a[r * n + k]) > std::fabs(a[best * n + k])) best = r;
    const double pivot = a[best * n + k];
    if (pivot == 0) return 0;
    if (best != k) {
      for (int64_t j = k; j < n; ++j) std::swap(a[k * n + j], a[best * n + j]);
      result = -result;
    }
    result *= pivot;
    for (int64_t r = k + 1; r < n; ++r) {
      const double factor = a[r * n + k] / pivot;
      for (int64_t j = k + 1; j < n; ++j) a[r * n + j] -= factor * a[k * n + j];
    }
  }
  return result;
}

Status det_run(RunContext& c) {
  const int64_t n = c.inputs[0].shape[-1];
  with_real(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for_units(c, c.outputs[0].shape.elements(), [&](int64_t slot, int64_t unit) {
      auto* a = reinterpret_cast<double*>(static_cast<char*>(c.scratch) + 8 * slot * scratch_floats(n * n));
      const T* from = c.inputs[0].as<T>() + unit * n * n;
      for (int64_t k = 0; k < n * n; ++k) a[k] = static_cast<double>(from[k]);
      c.outputs[0].as<T>()[unit] = static_cast<T>(determinant(a, n));
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- LRN: x / (bias + alpha/size * sum of squares of `size` neighbouring channels) ^ beta
Status lrn_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const int64_t size = c.attributes->get_int("size", 0);
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  if (c.inputs[0].shape.rank < 2 || size < 1 || size > INT32_MAX)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "LRN takes [N, C, ...] and a size of at least 1");
  c.outputs[0].shape = c.inputs[0].shape;
  return OPFORGE_STATUS_OK;
}

template <class T>
void lrn(RunContext& c) {
  const Shape& x = c.inputs[0].shape;
  const int64_t size = c.attributes->get_int("size", 1), channels = x[1];
  const int64_t pixels = x.elements() / (x[0] * channels), before = (size - 1) / 2, after = size - 1 - before;
  const T alpha = static_cast<T>(c.attributes->get_float("alpha", 1e-4)) / static_cast<T>(size);
  const T beta = static_cast<T>(c.attributes->get_float("beta", 0.75));
  const T bias = static_cast<T>(c.attributes->get_float("bias", 1));
  constexpr int64_t kPixels = 256;
  const int64_t pieces = ceil_div(pixels, kPixels);
  c.parallel(x[0] * pieces, grain_of(kPixels * channels), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % pieces * kPixels, n = lesser(kPixels, pixels - first);
      const int64_t image = unit / pieces * channels * pixels + first;
      for (int64_t k = 0; k < channels; ++k) {
        T sums[kPixels] = {};
        const int64_t last = lesser(channels - 1, k + after);
        for (int64_t j = greater<int64_t>(0, k - before); j <= last; ++j) {
          const T* from = c.inputs[0].as<T>() + image + j * pixels;
          for (int64_t i = 0; i < n; ++i) sums[i] += from[i] * from[i];
        }
        const T* from = c.inputs[0].as<T>() + image + k * pixels;
        T* to = c.outputs[0].as<T>() + image + k * pixels;
        if (beta == T(0.75)) {  // the usual power needs two roots only
          for (int64_t i = 0; i < n; ++i) {
            const T root = std::sqrt(bias + alpha * sums[i]);
            to[i] = from[i] / (root * std::sqrt(root));
          }
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] = from[i] / std::pow(bias + alpha * sums[i], beta);
        }
      }
    }
  });
}

Status lrn_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  with_real(c.inputs[0].dtype, [&](auto* type) { lrn<std::remove_pointer_t<decltype(type)>>(c); });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Det", 11, kNewest, nullptr, det_infer, det_run},
    {"", "LRN", 1, kNewest, nullptr, lrn_infer, lrn_run},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(linear_algebra, opforge::kRows);
