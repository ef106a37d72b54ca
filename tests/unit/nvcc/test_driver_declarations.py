"""What the launcher declares of NVIDIA's driver against cuda.h: sizes of all parameters and results, and constants."""

import subprocess

from opforge._paths import include_dir
from opforge.build.adapters import adapter_sources
from opforge.build.toolchain import find_compiler

SOURCE = r"""
#include <cuda.h>
#include <array>
#include "launcher/driver.h"
#include "opforge/cuda/call.h"
using namespace opforge::launcher;

template <class R, class... A>
constexpr std::array<size_t, 1 + sizeof...(A)> sizes(R (*)(A...)) {
  return {sizeof(R), sizeof(A)...};
}
template <size_t N, size_t M>
constexpr bool same(const std::array<size_t, N>& a, const std::array<size_t, M>& b) {
  if (N != M) return false;
  for (size_t k = 0; k < (N < M ? N : M); ++k) {
    if (a[k] != b[k]) return false;
  }
  return true;
}
constexpr Driver d = {};
#define SAME(field, function) static_assert(same(sizes(d.field), sizes(decltype(&function)(nullptr))), #function)
SAME(init, cuInit);
SAME(device, cuDeviceGet);
SAME(device_attribute, cuDeviceGetAttribute);
SAME(retain_primary, cuDevicePrimaryCtxRetain);
SAME(current, cuCtxGetCurrent);
SAME(current_device, cuCtxGetDevice);
SAME(push, cuCtxPushCurrent);
SAME(pop, cuCtxPopCurrent);
SAME(load, cuModuleLoadDataEx);
SAME(unload, cuModuleUnload);
SAME(function, cuModuleGetFunction);
SAME(function_attribute, cuFuncGetAttribute);
SAME(launch, cuLaunchKernel);
SAME(error_name, cuGetErrorName);
SAME(error_text, cuGetErrorString);
SAME(context_id, cuCtxGetId);
SAME(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
SAME(load_function, cuFuncLoad);

static_assert(kThreadsOfBlock == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "");
static_assert(kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "");
static_assert(kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "");
static_assert(kErrorLog == CU_JIT_ERROR_LOG_BUFFER && kErrorLogBytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
static_assert(kRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED, "");
using namespace opforge::cuda;
static_assert(kNoMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoDevice == CUDA_ERROR_NO_DEVICE, "");
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE && kNoImage == CUDA_ERROR_NO_BINARY_FOR_GPU, "");
static_assert(kBadImage == CUDA_ERROR_INVALID_IMAGE && kPtxTooNew == CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "");
// The names that dlsym is asked for are those behind the macros.
#define TEXT(name) #name
#define NAME(name) TEXT(name)
static_assert(__builtin_strcmp(NAME(cuCtxPushCurrent), "cuCtxPushCurrent_v2") == 0, "");
static_assert(__builtin_strcmp(NAME(cuCtxPopCurrent), "cuCtxPopCurrent_v2") == 0, "");
static_assert(__builtin_strcmp(NAME(cuModuleLoadDataEx), "cuModuleLoadDataEx") == 0, "");
static_assert(__builtin_strcmp(NAME(cuDevicePrimaryCtxRetain), "cuDevicePrimaryCtxRetain") == 0, "");
static_assert(__builtin_strcmp(NAME(cuLaunchKernel), "cuLaunchKernel") == 0, "");
"""


def test_they_are_those_of_cuda_h(toolkit, tmp_path):
    source = tmp_path / "declarations.cpp"
    source.write_text(SOURCE)
    folders = [f"-I{folder}" for folder in (adapter_sources(), include_dir(), *toolkit.include_folders)]
    command = [*find_compiler().command, "-std=c++17", "-fsyntax-only", *folders, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
