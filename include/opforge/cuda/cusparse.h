// cusparse.h: products with sparse matrices by cuSPARSE, as a variant of an operator's own kernels
// (library.h). The declarations are our own: those of its generic interface that are needed, which are the
// same in CUDA 12 and 13 (both have libcusparse.so.12).
//
// Algorithms are those whose sums do not depend on the run, unless kFastest is asked for. Matrices are
// row-major, scalars are the host's, workspaces come from the call's scratch memory.
#pragma once

#include "opforge/cuda/library.h"

namespace opforge {
namespace cuda {

struct Cusparse {
  static constexpr LibraryRow kRow = {"cuSPARSE", "libcusparse.so.12", "OPFORGE_CUSPARSE",
                                      "nvidia-cusparse (CUDA 13) or nvidia-cusparse-cu12"};
  static constexpr LibraryError kErrors[] = {
      {1, "CUSPARSE_STATUS_NOT_INITIALIZED", OPFORGE_STATUS_UNSUPPORTED},
      {2, "CUSPARSE_STATUS_ALLOC_FAILED", OPFORGE_STATUS_OUT_OF_MEMORY},
      {3, "CUSPARSE_STATUS_INVALID_VALUE", OPFORGE_STATUS_INTERNAL},
      {4, "CUSPARSE_STATUS_ARCH_MISMATCH", OPFORGE_STATUS_UNSUPPORTED},
      {5, "CUSPARSE_STATUS_MAPPING_ERROR", OPFORGE_STATUS_INTERNAL},
      {6, "CUSPARSE_STATUS_EXECUTION_FAILED", OPFORGE_STATUS_INTERNAL},
      {7, "CUSPARSE_STATUS_INTERNAL_ERROR", OPFORGE_STATUS_INTERNAL},
      {8, "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", OPFORGE_STATUS_UNSUPPORTED},
      {9, "CUSPARSE_STATUS_ZERO_PIVOT", OPFORGE_STATUS_INTERNAL},
      {10, "CUSPARSE_STATUS_NOT_SUPPORTED", OPFORGE_STATUS_UNSUPPORTED},
      {11, "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", OPFORGE_STATUS_UNSUPPORTED},
  };
  enum Operation { kPlain = 0, kTransposed = 1 };
  enum Algorithm {
    kMergedRows = 12 /* CSR_ALG3 */,
    kFastest = 6 /* CSR_ALG2 */,
    kVector = 3 /* SPMV_CSR_ALG2 */
  };
  enum { kHostPointers = 0, kZeroBased = 0, kRowMajor = 2, kIndex32 = 2, kIndex64 = 3 };
  // Columns of a dense matrix. Versions before that of CUDA 13.1 launch as many blocks in y as the columns
  // need, which CUDA limits to this many, and leave zeros, without an error, where it takes more.
  static constexpr int64_t kMostColumns = 65535;

  int (*property)(int which, int* value);
  int (*create)(void** handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*set_pointer_mode)(void* handle, int mode);
  int (*create_csr)(void** made, int64_t rows, int64_t columns, int64_t entries, void* starts, void* indices,
                    void* values, int starts_type, int indices_type, int base, int value_type);
  int (*destroy_sparse)(void* matrix);
  int (*create_dense)(void** made, int64_t rows, int64_t columns, int64_t stride, void* values,
                      int value_type, int order);
  int (*destroy_dense)(void* matrix);
  int (*create_vector)(void** made, int64_t size, void* values, int value_type);
  int (*destroy_vector)(void* vector);
  using Size = int(void* handle, int first, int second, const void* alpha, void* a, void* b, const void* beta,
                   void* c, int compute_type, int algorithm, size_t* bytes);
  using Product = int(void* handle, int first, int second, const void* alpha, void* a, void* b,
                      const void* beta, void* c, int compute_type, int algorithm, void* workspace);
  Size *spmm_size, *sddmm_size;
  Product *spmm, *sddmm;
  int (*spmv_size)(void* handle, int operation, const void* alpha, void* a, void* x, const void* beta,
                   void* y, int compute_type, int algorithm, size_t* bytes);
  int (*spmv)(void* handle, int operation, const void* alpha, void* a, void* x, const void* beta, void* y,
              int compute_type, int algorithm, void* workspace);

  template <class Each>
  void calls(Each each) {
    each("cusparseCreate", create);
    each("cusparseSetStream", set_stream);
    each("cusparseSetPointerMode", set_pointer_mode);
    each("cusparseCreateCsr", create_csr);
    each("cusparseDestroySpMat", destroy_sparse);
    each("cusparseCreateDnMat", create_dense);
    each("cusparseDestroyDnMat", destroy_dense);
    each("cusparseCreateDnVec", create_vector);
    each("cusparseDestroyDnVec", destroy_vector);
    each("cusparseSpMM_bufferSize", spmm_size);
    each("cusparseSpMM", spmm);
    each("cusparseSDDMM_bufferSize", sddmm_size);
    each("cusparseSDDMM", sddmm);
    each("cusparseSpMV_bufferSize", spmv_size);
    each("cusparseSpMV", spmv);
    each("cusparseGetProperty", property);
  }
  int bind(void* handle, cudaStream_t stream) const {
    const int status = set_stream(handle, stream);
    return status != 0 ? status : set_pointer_mode(handle, kHostPointers);
  }
};

// A CSR matrix whose indices have been checked: cuSPARSE follows them as they are.
template <class T, class I>
struct CsrMatrix {
  int64_t rows, columns, entries;
  const I* starts;
  const I* indices;
  const T* values;
};

namespace detail {

template <class T, class I>
bool describe(Use<Cusparse>& library, Descriptor& made, const CsrMatrix<T, I>& a) {
  constexpr int kIndex = sizeof(I) == 4 ? Cusparse::kIndex32 : Cusparse::kIndex64;
  return library.ok("cusparseCreateCsr",
                    library->create_csr(made.made(), a.rows, a.columns, a.entries, const_cast<I*>(a.starts),
                                        const_cast<I*>(a.indices), const_cast<T*>(a.values), kIndex, kIndex,
                                        Cusparse::kZeroBased, DataType<T>::value));
}
template <class T>
bool describe(Use<Cusparse>& library, Descriptor& made, int64_t rows, int64_t columns, const T* values) {
  return library.ok("cusparseCreateDnMat",
                    library->create_dense(made.made(), rows, columns, columns, const_cast<T*>(values),
                                          DataType<T>::value, Cusparse::kRowMajor));
}
template <class T>
bool describe(Use<Cusparse>& library, Descriptor& made, int64_t size, const T* values) {
  return library.ok("cusparseCreateDnVec",
                    library->create_vector(made.made(), size, const_cast<T*>(values), DataType<T>::value));
}

// Asks for the workspace's size, takes it from the host, computes.
template <class Size, class Compute>
void computed(Use<Cusparse>& library, const char* call, Size size, Compute compute) {
  size_t bytes = 0;
  if (!library.ok((std::string(call) + "_bufferSize").c_str(), size(&bytes))) return;
  void* workspace = library.workspace(bytes);
  if (workspace != nullptr) library.ok(call, compute(workspace));
}

}  // namespace detail

// out = a dense, or a^T dense: dense has n columns, out too, of which kMostColumns are possible. Sums of a^T,
// and those of kFastest, are formed in any order.
template <class T, class I>
void spmm(Use<Cusparse>& library, Cusparse::Operation operation, const CsrMatrix<T, I>& a, const T* dense,
          int64_t n, T* out, Cusparse::Algorithm algorithm = Cusparse::kMergedRows) {
  using R = compute_t<T>;
  const R one = 1, zero = 0;
  if (n > Cusparse::kMostColumns) {
    library.miss("cuSPARSE is given at most " + std::to_string(Cusparse::kMostColumns) +
                 " columns: some versions leave zeros in others");
    return;
  }
  const bool turned = operation == Cusparse::kTransposed;
  const int64_t inner = turned ? a.rows : a.columns, outer = turned ? a.columns : a.rows;
  Descriptor matrix(library->destroy_sparse), from(library->destroy_dense), to(library->destroy_dense);
  if (!detail::describe(library, matrix, a) || !detail::describe(library, from, inner, n, dense) ||
      !detail::describe(library, to, outer, n, out))
    return;
  const auto call = [&](auto* function, auto last) {
    return function(library.handle(), operation, Cusparse::kPlain, &one, matrix.get(), from.get(), &zero,
                    to.get(), DataType<R>::value, algorithm, last);
  };
  detail::computed(
      library, "cusparseSpMM", [&](size_t* bytes) { return call(library->spmm_size, bytes); },
      [&](void* workspace) { return call(library->spmm, workspace); });
}

// out = a x for a vector, in an order that does not depend on the run.
template <class T, class I>
void spmv(Use<Cusparse>& library, const CsrMatrix<T, I>& a, const T* x, T* out) {
  using R = compute_t<T>;
  const R one = 1, zero = 0;
  Descriptor matrix(library->destroy_sparse), from(library->destroy_vector), to(library->destroy_vector);
  if (!detail::describe(library, matrix, a) || !detail::describe(library, from, a.columns, x) ||
      !detail::describe(library, to, a.rows, out))
    return;
  const auto call = [&](auto* function, auto last) {
    return function(library.handle(), Cusparse::kPlain, &one, matrix.get(), from.get(), &zero, to.get(),
                    DataType<R>::value, Cusparse::kVector, last);
  };
  detail::computed(
      library, "cusparseSpMV", [&](size_t* bytes) { return call(library->spmv_size, bytes); },
      [&](void* workspace) { return call(library->spmv, workspace); });
}

// a.values = (left right^T) at a's entries; left has a.rows rows of n columns, right a.columns. What a.values
// holds is not read: it must be zeros, since an unknown value times a zero factor may be NaN.
template <class T, class I>
void sddmm(Use<Cusparse>& library, const T* left, const T* right, int64_t n, const CsrMatrix<T, I>& a) {
  using R = compute_t<T>;
  const R one = 1, zero = 0;
  Descriptor matrix(library->destroy_sparse), first(library->destroy_dense), second(library->destroy_dense);
  if (!detail::describe(library, matrix, a) || !detail::describe(library, first, a.rows, n, left) ||
      !detail::describe(library, second, a.columns, n, right))
    return;
  const auto call = [&](auto* function, auto last) {
    return function(library.handle(), Cusparse::kPlain, Cusparse::kTransposed, &one, first.get(),
                    second.get(), &zero, matrix.get(), DataType<R>::value, 0, last);
  };
  detail::computed(
      library, "cusparseSDDMM", [&](size_t* bytes) { return call(library->sddmm_size, bytes); },
      [&](void* workspace) { return call(library->sddmm, workspace); });
}

}  // namespace cuda
}  // namespace opforge
