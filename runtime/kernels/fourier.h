// fourier.h: discrete Fourier transforms of any length in double precision, in memory of the caller.
#pragma once

#include "kernels/common.h"

namespace opforge::kernels {

struct Complex {
  double re = 0, im = 0;
};

// Lengths that are powers of two go by halving, short other ones by the definition, long ones as a
// convolution of a power of two (Bluestein).
class Fourier {
 public:
  explicit Fourier(int64_t n) : n_(n) {
    if (n <= kShort || (n & (n - 1)) == 0) return;
    for (padded_ = 1; padded_ < 2 * n; padded_ *= 2) {
    }
  }
  // Elements of the tables that all transforms of this length read, and of the workspace of one thread.
  int64_t table_size() const { return padded_ != 0 ? padded_ / 2 + n_ + padded_ : n_; }
  int64_t work_size() const { return padded_ != 0 ? padded_ : n_; }
  // Fills the tables; afterwards transform() may run on many threads.
  void prepare(Complex* table);
  // x[k] = sum over j of x[j] * exp(-2 pi i jk/n), in place.
  void transform(Complex* x, Complex* work) const;

 private:
  static constexpr int64_t kShort = 16;
  int64_t n_, padded_ = 0;
  const Complex *roots_ = nullptr, *chirp_ = nullptr, *kernel_ = nullptr;
};

}  // namespace opforge::kernels
