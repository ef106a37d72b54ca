// library.cuh: the same products by cuSPARSE. It follows whatever positions and columns it is given, so it is given
// copies of them, which are those of an empty-looking matrix where the facts say that this is no CSR matrix; the result
// becomes NaN then, as from our own kernels.
#pragma once

#include <initializer_list>

#include "csr.cuh"
#include "opforge/cuda/cusparse.h"

namespace csr {

using opforge::cuda::Cusparse;
using Library = opforge::cuda::Use<Cusparse>;

// Positions and columns that can be followed: all entries in the last row's column 0 where those of `a` cannot.
template <class T, class I>
__global__ void copy_checked(Matrix<T, I> a, I* starts, I* columns, const Facts* facts) {
  const bool valid = is_valid(facts);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  for (int64_t r = first; r <= a.m; r += step) {
    starts[r] = valid ? a.starts[r] : r < a.m ? I(0) : static_cast<I>(a.entries);
  }
  for (int64_t p = first; p < a.entries; p += step) columns[p] = valid ? a.columns[p] : I(0);
}

template <class T>
__global__ void spoil(T* out, int64_t n, const Facts* facts) {
  if (is_valid(facts)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step)
    out[i] = not_a_number<T>();
}

// Nothing that is empty is for cuSPARSE; `inner` columns are summed over, or multiplied, at a time.
template <class T, class I>
bool is_for_library(const Matrix<T, I>& a, int64_t inner) {
  return a.entries > 0 && a.m > 0 && a.k > 0 && inner > 0;
}

// Its loads of many elements at a time may want this.
inline bool are_aligned(Library& library, std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
      return library.miss("cuSPARSE is given tensors whose addresses are multiples of 16 only");
  }
  return true;
}

// False where there is no memory for the copies.
template <class T, class I>
bool check(Library& library, opforge::cuda::Launch& launch, const Matrix<T, I>& a, const Facts* facts,
           opforge::cuda::CsrMatrix<T, I>* checked) {
  I* starts = static_cast<I*>(library.workspace(static_cast<size_t>(a.m + 1) * sizeof(I)));
  I* columns = starts ? static_cast<I*>(library.workspace(static_cast<size_t>(a.entries) * sizeof(I))) : nullptr;
  if (columns == nullptr) return false;
  const int64_t most = a.m + 1 > a.entries ? a.m + 1 : a.entries;
  copy_checked<T, I><<<opforge::cuda::blocks_for(most), block_for(most), 0, launch.stream()>>>(a, starts, columns, facts);
  *checked = {a.m, a.k, a.entries, starts, columns, a.values};
  return true;
}

template <class T>
void spoil_invalid(opforge::cuda::Launch& launch, T* out, int64_t n, const Facts* facts) {
  spoil<T><<<opforge::cuda::blocks_for(n), block_for(n), 0, launch.stream()>>>(out, n, facts);
}

// out[m, n] = a dense[k, n], or a^T dense[m, n]: for an operation other than kPlain, and for kFastest, in any order.
template <class T, class I>
void multiply_by(Library& library, opforge::cuda::Launch& launch, const Matrix<T, I>& a,
                 Cusparse::Operation operation, const T* dense, int64_t n, T* out, const Facts* facts,
                 Cusparse::Algorithm algorithm) {
  opforge::cuda::CsrMatrix<T, I> matrix = {};
  if (!are_aligned(library, {a.values, dense, out}) || !check(library, launch, a, facts, &matrix)) return;
  if (n == 1 && operation == Cusparse::kPlain) {
    opforge::cuda::spmv(library, matrix, dense, out);
  } else {
    opforge::cuda::spmm(library, operation, matrix, dense, n, out, algorithm);
  }
  spoil_invalid(launch, out, (operation == Cusparse::kPlain ? a.m : a.k) * n, facts);
}

// out[entries] = (left[m, n] right[k, n]^T) at the entries of a.
template <class T, class I>
void dots_by(Library& library, opforge::cuda::Launch& launch, Matrix<T, I> a, const T* left, const T* right, int64_t n,
             T* out, const Facts* facts) {
  a.values = out;
  opforge::cuda::CsrMatrix<T, I> matrix = {};
  if (!are_aligned(library, {left, right, out}) || !check(library, launch, a, facts, &matrix)) return;
  if (!launch.ok(cudaMemsetAsync(out, 0, static_cast<size_t>(a.entries) * sizeof(T), launch.stream()))) return;
  opforge::cuda::sddmm(library, left, right, n, matrix);
  spoil_invalid(launch, out, a.entries, facts);
}

}  // namespace csr
