// fake_cublas.cpp: the calls of cuBLAS that opforge makes, with the signatures of cublas_api.h, over the
// host's memory.
#include "fake_library.h"

namespace {

struct Handle {
  void *stream = nullptr, *workspace = nullptr;
  size_t bytes = 0;
  int pointer_mode = -1, math = -1, number = 0;
};
int handles;
constexpr int kInvalid = 7, kUnsupported = 15;

}  // namespace

FAKE_EXPORT int cublasGetProperty(int which, int* value) { return fake_property(which, value); }
FAKE_EXPORT int cublasCreate_v2(Handle** handle) {
  if (const int status = fake_failure("cublasCreate_v2")) return status;
  *handle = new Handle;
  (*handle)->number = ++handles;
  fake_note("cublasCreate handle=" + std::to_string(handles));
  return 0;
}
FAKE_EXPORT int cublasSetStream_v2(Handle* handle, void* stream) {
  handle->stream = stream;
  handle->workspace = nullptr;  // as cuBLAS does
  return 0;
}
FAKE_EXPORT int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
FAKE_EXPORT int cublasSetMathMode(Handle* handle, int mode) {
  handle->math = mode;
  return 0;
}
FAKE_EXPORT int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
  if (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return kInvalid;
  handle->workspace = workspace;
  handle->bytes = bytes;
  return 0;
}
FAKE_EXPORT int cublasGemmEx_64(Handle* handle, int left_operation, int right_operation, int64_t m, int64_t n,
                                int64_t k, const void* alpha, const void* left, int left_type,
                                int64_t left_stride, const void* right, int right_type, int64_t right_stride,
                                const void* beta, void* out, int out_type, int64_t out_stride, int compute,
                                int algorithm) {
  fake_note("cublasGemmEx handle=" + std::to_string(handle->number) + " stream=" +
            std::to_string(reinterpret_cast<uintptr_t>(handle->stream)) + " m=" + std::to_string(m) +
            " n=" + std::to_string(n) + " k=" + std::to_string(k) + " type=" + std::to_string(out_type) +
            " compute=" + std::to_string(compute) + " math=" + std::to_string(handle->math) +
            " workspace=" + std::to_string(handle->bytes) + " algorithm=" + std::to_string(algorithm));
  if (const int status = fake_failure("cublasGemmEx")) return status;
  const int scalar = out_type == kDouble ? kDouble : kFloat;
  if (left_type != out_type || right_type != out_type || compute != (scalar == kDouble ? 70 : 68))
    return kUnsupported;
  if (handle->pointer_mode != 0 || handle->workspace == nullptr || load(alpha, 0, scalar) != 1 ||
      load(beta, 0, scalar) != 0)
    return kInvalid;
  if (left_operation != 0 || right_operation != 0 || m < 1 || n < 1 || k < 1) return kInvalid;
  if (left_stride < m || right_stride < k || out_stride < m) return kInvalid;
  memset(handle->workspace, 0xa5, handle->bytes);
  for (int64_t c = 0; c < n; ++c)
    for (int64_t r = 0; r < m; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += load(left, i * left_stride + r, left_type) * load(right, c * right_stride + i, right_type);
      store(out, c * out_stride + r, out_type, sum);
    }
  return 0;
}
