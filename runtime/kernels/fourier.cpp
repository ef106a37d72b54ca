// fourier.cpp: discrete Fourier transforms.
#include "kernels/fourier.h"

#include <cmath>
#include <utility>

namespace opforge::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;

Complex times(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// exp(-2 pi i k/n).
Complex root(int64_t k, int64_t n) {
  const double angle = -2 * kPi * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// n is a power of two; roots[k] = exp(-2 pi i k/n) for k < n/2.
void halving(Complex* x, int64_t n, const Complex* roots) {
  for (int64_t i = 1, j = 0; i < n; ++i) {  // order of reversed bits
    int64_t bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (int64_t half = 1; half < n; half *= 2)
    for (int64_t begin = 0; begin < n; begin += 2 * half)
      for (int64_t k = 0; k < half; ++k) {
        const Complex a = x[begin + k], b = times(x[begin + half + k], roots[k * (n / (2 * half))]);
        x[begin + k] = {a.re + b.re, a.im + b.im};
        x[begin + half + k] = {a.re - b.re, a.im - b.im};
      }
}

}  // namespace

void Fourier::prepare(Complex* table) {
  roots_ = table;
  const int64_t n = padded_ != 0 ? padded_ : n_, used = padded_ != 0 ? padded_ / 2 : n_;
  for (int64_t k = 0; k < used; ++k) table[k] = root(k, n);
  if (padded_ == 0) return;
  Complex *chirp = table + used, *kernel = chirp + n_;
  // exp(-pi i k^2/n); k^2 modulo 2n keeps the angle small.
  for (int64_t k = 0; k < n_; ++k) chirp[k] = root(k * k % (2 * n_), 2 * n_);
  for (int64_t k = 0; k < padded_; ++k) kernel[k] = Complex();
  for (int64_t k = 0; k < n_; ++k) kernel[k] = kernel[k == 0 ? 0 : padded_ - k] = {chirp[k].re, -chirp[k].im};
  halving(kernel, padded_, table);
  chirp_ = chirp, kernel_ = kernel;
}

void Fourier::transform(Complex* x, Complex* work) const {
  if (padded_ != 0) {
    for (int64_t k = 0; k < n_; ++k) work[k] = times(x[k], chirp_[k]);
    for (int64_t k = n_; k < padded_; ++k) work[k] = Complex();
    halving(work, padded_, roots_);
    // The inverse transform is the transform of the conjugate.
    for (int64_t k = 0; k < padded_; ++k) {
      const Complex y = times(work[k], kernel_[k]);
      work[k] = {y.re, -y.im};
    }
    halving(work, padded_, roots_);
    const double scale = 1 / static_cast<double>(padded_);
    for (int64_t k = 0; k < n_; ++k) x[k] = times({work[k].re * scale, -work[k].im * scale}, chirp_[k]);
    return;
  }
  if ((n_ & (n_ - 1)) == 0) return halving(x, n_, roots_);
  for (int64_t k = 0; k < n_; ++k) {
    Complex sum;
    for (int64_t j = 0; j < n_; ++j) {
      const Complex y = times(x[j], roots_[j * k % n_]);
      sum.re += y.re, sum.im += y.im;
    }
    work[k] = sum;
  }
  std::memcpy(x, work, static_cast<size_t>(n_) * sizeof(Complex));
}

}  // namespace opforge::kernels
