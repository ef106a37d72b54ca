// cublas.h: matrix products by cuBLAS, as a variant of an operator's own kernels (library.h). The
// declarations are our own: those that are needed, which are the same in versions 12 and 13.
//
// float is multiplied and added as float (no TF32), halves are added in float. The workspace is the call's
// own, so that results do not depend on what other streams do.
#pragma once

#include "opforge/cuda/library.h"

namespace opforge {
namespace cuda {

struct Cublas {
  static constexpr LibraryRow kRow = {"cuBLAS", "libcublas.so.13 libcublas.so.12", "OPFORGE_CUBLAS",
                                      "nvidia-cublas (CUDA 13) or nvidia-cublas-cu12"};
  static constexpr LibraryError kErrors[] = {
      {1, "CUBLAS_STATUS_NOT_INITIALIZED", OPFORGE_STATUS_UNSUPPORTED},
      {3, "CUBLAS_STATUS_ALLOC_FAILED", OPFORGE_STATUS_OUT_OF_MEMORY},
      {7, "CUBLAS_STATUS_INVALID_VALUE", OPFORGE_STATUS_INTERNAL},
      {8, "CUBLAS_STATUS_ARCH_MISMATCH", OPFORGE_STATUS_UNSUPPORTED},
      {11, "CUBLAS_STATUS_MAPPING_ERROR", OPFORGE_STATUS_INTERNAL},
      {13, "CUBLAS_STATUS_EXECUTION_FAILED", OPFORGE_STATUS_INTERNAL},
      {14, "CUBLAS_STATUS_INTERNAL_ERROR", OPFORGE_STATUS_INTERNAL},
      {15, "CUBLAS_STATUS_NOT_SUPPORTED", OPFORGE_STATUS_UNSUPPORTED},
      {16, "CUBLAS_STATUS_LICENSE_ERROR", OPFORGE_STATUS_UNSUPPORTED},
  };
  enum { kHostPointers = 0, kPlain = 0, kDefaultAlgorithm = -1, kCompute32 = 68, kCompute64 = 70 };
  // The default, which has no TF32, and no sums of halves in halves.
  enum { kMath = 16 };

  int (*property)(int which, int* value);
  int (*create)(void** handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*set_pointer_mode)(void* handle, int mode);
  int (*set_math_mode)(void* handle, int mode);
  int (*set_workspace)(void* handle, void* workspace, size_t bytes);
  // Matrices by columns; sizes and strides of 64 bits.
  int (*gemm)(void* handle, int left_operation, int right_operation, int64_t m, int64_t n, int64_t k,
              const void* alpha, const void* left, int left_type, int64_t left_stride, const void* right,
              int right_type, int64_t right_stride, const void* beta, void* out, int out_type,
              int64_t out_stride, int compute_type, int algorithm);

  template <class Each>
  void calls(Each each) {
    each("cublasCreate_v2", create);
    each("cublasSetStream_v2", set_stream);
    each("cublasSetPointerMode_v2", set_pointer_mode);
    each("cublasSetMathMode", set_math_mode);
    each("cublasSetWorkspace_v2", set_workspace);
    each("cublasGemmEx_64", gemm);
    each("cublasGetProperty", property);
  }
  int bind(void* handle, cudaStream_t stream) const {
    int status = set_stream(handle, stream);  // which forgets the workspace of an earlier call
    if (status == 0) status = set_pointer_mode(handle, kHostPointers);
    return status != 0 ? status : set_math_mode(handle, kMath);
  }
};

// Bytes that cuBLAS asks for: what it takes by itself on such a device.
inline bool workspace_of(Launch& launch, size_t* bytes) {
  int major = 0;
  if (!launch.ok(
          cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, launch.context()->device.id)))
    return false;
  *bytes = size_t{major == 9 || major == 10 ? 32u : major == 12 ? 12u : 4u} << 20;
  return true;
}

// out[m, n] = left[m, k] right[k, n], all row-major and dense, none empty.
template <class T>
void gemm(Use<Cublas>& library, Launch& launch, const T* left, const T* right, T* out, int64_t m, int64_t n,
          int64_t k) {
  using R = compute_t<T>;
  constexpr int kType = DataType<T>::value,
                kCompute = sizeof(R) == 8 ? Cublas::kCompute64 : Cublas::kCompute32;
  const R one = 1, zero = 0;
  size_t bytes = 0;
  if (!workspace_of(launch, &bytes)) return;
  void* workspace = library.workspace(bytes);
  if (workspace == nullptr ||
      !library.ok("cublasSetWorkspace", library->set_workspace(library.handle(), workspace, bytes)))
    return;
  // By columns these are the transposed matrices: out^T = right^T left^T.
  library.ok("cublasGemmEx",
             library->gemm(library.handle(), Cublas::kPlain, Cublas::kPlain, n, m, k, &one, right, kType, n,
                           left, kType, k, &zero, out, kType, n, kCompute, Cublas::kDefaultAlgorithm));
}

}  // namespace cuda
}  // namespace opforge
