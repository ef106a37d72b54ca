// signal.cpp: DFT, STFT and MelWeightMatrix.
#include <cmath>

#include "kernels/fourier.h"
#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr int64_t kLongest = int64_t{1} << 28;

int64_t complex_bytes(int64_t n) { return (n * int64_t{sizeof(Complex)} + 127) / 64 * 64; }

// Scratch of transforms: the tables, then for each thread a signal and a workspace.
int64_t scratch_of(const Fourier& f, int64_t n, int32_t threads) {
  return complex_bytes(f.table_size()) + threads * (complex_bytes(n) + complex_bytes(f.work_size()));
}
struct Slot {
  Complex *signal, *work;
  Slot(void* scratch, const Fourier& f, int64_t n, int64_t slot) {
    char* at = static_cast<char*>(scratch) + complex_bytes(f.table_size()) +
               slot * (complex_bytes(n) + complex_bytes(f.work_size()));
    signal = reinterpret_cast<Complex*>(at);
    work = reinterpret_cast<Complex*>(at + complex_bytes(n));
  }
};

template <class T>
Complex load(const T* x, int64_t at, bool complex) {
  return {static_cast<double>(x[complex ? 2 * at : at]), complex ? static_cast<double>(x[2 * at + 1]) : 0};
}

// A single i32 or i64, where the input is there.
template <class Context>
bool read_one(const Context& c, int32_t k, int64_t* value) {
  int64_t count = 0;
  return !given(c, k) || (c.inputs[k].shape.elements() == 1 && read_values(c.inputs[k], value, 1, &count));
}

// ---- DFT
struct DftPlan {
  int axis = 0;
  int64_t n = 0, in = 0, bins = 0;  // length of the transform, of the input, of the output
  bool complex = false, inverse = false, onesided = false;
};

template <class Context>
bool dft_plan(const Context& c, DftPlan* p) {
  const Shape& x = c.inputs[0].shape;
  int64_t axis = -2;
  if (x.rank < 2 || (x[-1] != 1 && x[-1] != 2) || !read_one(c, 2, &axis)) return false;
  p->axis = axis_of(axis, x.rank);
  p->complex = x[-1] == 2;
  p->inverse = c.attributes->get_int("inverse", 0) != 0;
  p->onesided = c.attributes->get_int("onesided", 0) != 0;
  if (p->axis < 0 || p->axis == x.rank - 1) return false;
  p->in = x[p->axis];
  p->n = p->inverse && p->onesided ? 2 * (p->in - 1) : p->in;
  if (!read_one(c, 1, &p->n) || p->n < 1 || p->n > kLongest) return false;
  p->bins = p->onesided && !p->inverse ? p->n / 2 + 1 : p->n;
  return true;
}

Status dft_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  for (int32_t k = 1; k < 3; ++k)
    if (given(c, k) && c.inputs[k].data == nullptr) return c.need_data(k);
  DftPlan p;
  if (!dft_plan(c, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the input, the length or the axis of DFT is not valid");
  Shape& y = c.outputs[0].shape;
  y = c.inputs[0].shape;
  y.dims[p.axis] = p.bins;
  y.dims[y.rank - 1] = p.onesided && p.inverse ? 1 : 2;
  c.scratch_bytes = scratch_of(Fourier(p.n), p.n, c.max_threads);
  return OPFORGE_STATUS_OK;
}

template <class T>
void dft(RunContext& c, const DftPlan& p, const Fourier& f) {
  const T* x = c.inputs[0].as<T>();
  T* y = c.outputs[0].as<T>();
  const Shape& shape = c.inputs[0].shape;
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < p.axis; ++k) outer *= shape.dims[k];
  for (int k = p.axis + 1; k < shape.rank - 1; ++k) inner *= shape.dims[k];
  const bool real_result = p.onesided && p.inverse;
  for_units(c, outer * inner, [&](int64_t slot, int64_t unit) {
    const Slot s(c.scratch, f, p.n, slot);
    const int64_t o = unit / inner, i = unit % inner, known = real_result ? p.n / 2 + 1 : p.n;
    for (int64_t k = 0; k < p.n; ++k) {
      const bool there = k < p.in && k < known;
      s.signal[k] = there ? load(x, (o * p.in + k) * inner + i, p.complex) : Complex();
    }
    if (real_result)  // the other half mirrors the given one
      for (int64_t k = 1; k <= (p.n - 1) / 2; ++k) s.signal[p.n - k] = {s.signal[k].re, -s.signal[k].im};
    for (int64_t k = 0; p.inverse && k < p.n; ++k) s.signal[k].im = -s.signal[k].im;
    f.transform(s.signal, s.work);
    const double scale = p.inverse ? 1 / static_cast<double>(p.n) : 1;
    for (int64_t k = 0; k < p.bins; ++k) {
      const int64_t at = (o * p.bins + k) * inner + i;
      const double re = s.signal[k].re * scale, im = s.signal[k].im * scale;
      if (real_result) {
        y[at] = static_cast<T>(re);
      } else {
        y[2 * at] = static_cast<T>(re);
        y[2 * at + 1] = static_cast<T>(p.inverse ? -im : im);
      }
    }
  });
}

Status dft_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  DftPlan p;
  dft_plan(c, &p);
  Fourier f(p.n);
  f.prepare(static_cast<Complex*>(c.scratch));
  with_real(c.inputs[0].dtype, [&](auto* type) { dft<std::remove_pointer_t<decltype(type)>>(c, p, f); });
  return OPFORGE_STATUS_OK;
}

// ---- STFT
struct StftPlan {
  int64_t length = 0, step = 0, n = 0, frames = 0, bins = 0;
  bool complex = false;
};

template <class Context>
bool stft_plan(const Context& c, StftPlan* p) {
  const Shape& x = c.inputs[0].shape;
  // Rank 2 is a real signal without the last dimension, as the older exporter of PyTorch writes it.
  if (x.rank != 2 && (x.rank != 3 || (x[2] != 1 && x[2] != 2))) return false;
  p->length = x[1];
  p->complex = x.rank == 3 && x[2] == 2;
  p->n = p->length;
  if (given(c, 2)) {
    if (c.inputs[2].dtype != c.inputs[0].dtype || c.inputs[2].shape.rank != 1 || !is_plain(c.inputs[2]))
      return false;
    p->n = c.inputs[2].shape[0];
  }
  const int64_t window = p->n;
  if (!given(c, 1) || !read_one(c, 1, &p->step) || !read_one(c, 3, &p->n)) return false;
  if (p->step < 1 || p->n < 1 || p->n > kLongest || p->n > p->length || (given(c, 2) && p->n != window))
    return false;
  p->frames = (p->length - p->n) / p->step + 1;
  p->bins = c.attributes->get_int("onesided", 1) != 0 ? p->n / 2 + 1 : p->n;
  return true;
}

Status stft_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  for (int32_t k = 1; k < 4; k += 2)
    if (given(c, k) && c.inputs[k].data == nullptr) return c.need_data(k);
  StftPlan p;
  if (!stft_plan(c, &p))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the signal, the step, the window or the length of STFT is not valid");
  Shape& y = c.outputs[0].shape;
  y.rank = 4;
  y.dims[0] = c.inputs[0].shape[0], y.dims[1] = p.frames, y.dims[2] = p.bins, y.dims[3] = 2;
  c.scratch_bytes = scratch_of(Fourier(p.n), p.n, c.max_threads);
  return OPFORGE_STATUS_OK;
}

template <class T>
void stft(RunContext& c, const StftPlan& p, const Fourier& f) {
  const T* x = c.inputs[0].as<T>();
  const T* window = given(c, 2) ? c.inputs[2].as<T>() : nullptr;
  for_units(c, c.inputs[0].shape[0] * p.frames, [&](int64_t slot, int64_t unit) {
    const Slot s(c.scratch, f, p.n, slot);
    const int64_t first = unit / p.frames * p.length + unit % p.frames * p.step;
    for (int64_t k = 0; k < p.n; ++k) {
      const double w = window != nullptr ? static_cast<double>(window[k]) : 1;
      const Complex v = load(x, first + k, p.complex);
      s.signal[k] = {v.re * w, v.im * w};
    }
    f.transform(s.signal, s.work);
    T* to = c.outputs[0].as<T>() + unit * p.bins * 2;
    for (int64_t k = 0; k < p.bins; ++k) {
      to[2 * k] = static_cast<T>(s.signal[k].re);
      to[2 * k + 1] = static_cast<T>(s.signal[k].im);
    }
  });
}

Status stft_run(RunContext& c) {
  if (c.outputs[0].shape.elements() == 0) return OPFORGE_STATUS_OK;
  StftPlan p;
  stft_plan(c, &p);
  Fourier f(p.n);
  f.prepare(static_cast<Complex*>(c.scratch));
  with_real(c.inputs[0].dtype, [&](auto* type) { stft<std::remove_pointer_t<decltype(type)>>(c, p, f); });
  return OPFORGE_STATUS_OK;
}

// ---- MelWeightMatrix: triangles in the mel scale over the bins of a spectrum
Status mel_infer(InferContext& c) {
  if (!has_type(c.outputs[0].dtype) || !is_plain(c.outputs[0])) return no_type(c);
  int64_t sizes[3] = {};
  for (int32_t k = 0; k < 5; ++k)
    if (c.inputs[k].shape.elements() != 1 || (k < 3 ? !is_index(c.inputs[k]) : !is_real(c.inputs[k].dtype)))
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "input %d is no single number of its type", k);
  for (int32_t k = 0; k < 3; ++k) {
    if (c.inputs[k].data == nullptr) return c.need_data(k);
    sizes[k] = index_at(c.inputs[k], 0);
  }
  if (sizes[0] < 0 || sizes[1] < 0 || sizes[2] < 1 || sizes[0] > kLongest || sizes[1] > kLongest)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "a size or the rate of MelWeightMatrix is not valid");
  Shape& y = c.outputs[0].shape;
  y.rank = 2;
  y.dims[0] = sizes[1] / 2 + 1, y.dims[1] = sizes[0];
  return OPFORGE_STATUS_OK;
}

Status mel_run(RunContext& c) {
  const Shape& y = c.outputs[0].shape;
  const int64_t bins = y[0], bands = y[1];
  const double length = static_cast<double>(index_at(c.inputs[1], 0));
  const double rate = static_cast<double>(index_at(c.inputs[2], 0));
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(number_of(c.inputs[3])), high = mel(number_of(c.inputs[4]));
  const double step = (high - low) / static_cast<double>(bands + 2);
  // The bin of the spectrum at which band edge k lies.
  const auto edge = [&](int64_t k) {
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(k) * step) / 2595) - 1);
    return std::floor((length + 1) * hertz / rate);
  };
  bool good = true;
  for (int64_t k = 0; k < bands + 2; ++k) good = good && edge(k) >= 0 && edge(k) < static_cast<double>(bins);
  if (bands > 0 && !good)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the frequencies do not lie within the spectrum");
  with_type(c.outputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* to = c.outputs[0].as<T>();
    for (int64_t k = 0; k < bins * bands; ++k) to[k] = 0;
    for (int64_t band = 0; band < bands; ++band) {
      const auto left = static_cast<int64_t>(edge(band)), middle = static_cast<int64_t>(edge(band + 1));
      const auto right = static_cast<int64_t>(edge(band + 2));
      const auto ratio = [](int64_t a, int64_t b) {
        return static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
      };
      if (left == middle) to[middle * bands + band] = 1;
      for (int64_t k = left; left != middle && k <= middle; ++k)
        to[k * bands + band] = ratio(k - left, middle - left);
      for (int64_t k = middle; k < right; ++k) to[k * bands + band] = ratio(right - k, right - middle);
    }
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "DFT", 20, kNewest, nullptr, dft_infer, dft_run, 0, 1, 3},
    {"", "STFT", 17, kNewest, nullptr, stft_infer, stft_run, 0, 2, 4},
    {"", "MelWeightMatrix", 17, kNewest, nullptr, mel_infer, mel_run, 0, 5},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(signal, opforge::kRows);
