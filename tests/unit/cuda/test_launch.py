"""Launches: the context's device and stream, what they refuse, and whether a library has code for the device."""

import ctypes
import subprocess
from functools import cache

import numpy as np
import pytest

from opforge._paths import include_dir
from opforge.build import abi, load_library
from opforge.build.toolchain import find_compiler
from opforge.cuda import emulate, emulate_operators
from opforge.ops import mish

F32 = abi.DType(2, 32, 1)
DEVICES = 2


class Call:
    """A call of mish's emulated kernel, field by field."""

    def __init__(self, library, size=5, device=(abi.DEVICE_CUDA, 0), stream=None):
        self.path = library
        self.words = ""
        self.x, self.y = np.ones(size, np.float32), np.zeros(size, np.float32)
        self.shape = (ctypes.c_int64 * 1)(size)
        self.counts = (ctypes.c_int32 * 1)(1)
        self.tensors = [self._tensor(self.x, device), self._tensor(self.y, device)]
        self.kept = abi.Error(self._error)
        self.context = abi.Context(size=ctypes.sizeof(abi.Context), abi=abi.ABI, stream=stream, error=self.kept)
        self.context.device = abi.Device(*device)

    def _tensor(self, array, device):
        data = array.ctypes.data if array.size else None
        return abi.Tensor(data=data, device=abi.Device(*device), ndim=1, dtype=F32, shape=self.shape)

    def _error(self, context, code, text):
        self.words = text.decode()
        return code

    def run(self):
        kernel = load_library(self.path).operator(mish.key).kernel_for(((2, 32),), abi.DEVICE_CUDA)
        self.context.kernel_data = kernel.data
        x, y = (abi.Arguments((abi.Tensor * 1)(tensor), self.counts, 1, 1) for tensor in self.tensors)
        return abi.KernelFunction(kernel.run)(ctypes.byref(self.context), ctypes.byref(x), ctypes.byref(y), None)

    def launched(self):
        device, stream = ctypes.c_int(-1), ctypes.c_void_p()
        function = ctypes.CDLL(str(self.path)).opforge_cuda_launched
        function.restype = ctypes.c_int64
        count = function(ctypes.byref(device), ctypes.byref(stream))
        return count, device.value, stream.value


@cache
def library():
    return emulate_operators([mish]).path


@pytest.mark.parametrize("device", range(DEVICES))
def test_the_contexts_device_and_stream(device):
    call = Call(library(), device=(abi.DEVICE_CUDA, device), stream=0x5EED0)
    before = call.launched()[0]
    assert call.run() == 0
    assert call.launched() == (before + 1, device, 0x5EED0)
    np.testing.assert_allclose(call.y, mish.reference(call.x), rtol=1e-6)
    # The device that was current is so again: a launch for device 0 needs no other.
    after = Call(library())
    assert after.run() == 0
    assert after.launched()[1] == 0


def test_empty_tensors_launch_nothing_whatever_the_device():
    call = Call(library(), size=0, device=(abi.DEVICE_CUDA, 99))
    before = call.launched()[0]
    assert call.run() == 0
    assert call.launched()[0] == before


def test_a_device_that_does_not_exist():
    call = Call(library(), device=(abi.DEVICE_CUDA, DEVICES))
    assert call.run() == 1
    assert call.words == "no such GPU: cudaErrorInvalidDevice (101): cudaErrorInvalidDevice"
    assert Call(library()).run() == 0  # the error is told once


def test_another_kind_of_device():
    call = Call(library(), device=(abi.DEVICE_CPU, 0))
    assert call.run() == 1
    assert call.words == "a CUDA kernel was called for another device"


@pytest.mark.parametrize(("which", "words"), [(0, "input 0"), (1, "output 0")])
def test_tensors_of_different_devices(which, words):
    call = Call(library())
    call.tensors[which].device.id = 1
    assert call.run() == 1
    assert call.words == (f"{words} lies on another device (type 2, number 1) than the call's (type 2, number 0)")


SERVES = [
    ("", 75, True),
    ("sm_80", 80, True),
    ("sm_80", 86, True),
    ("sm_86", 80, False),
    ("sm_80", 90, False),
    ("sm_80 sm_90", 90, True),
    ("sm_80 sm_90 compute_90", 121, True),
    ("sm_80 compute_90", 89, True),
    ("sm_90 compute_90", 89, False),
    ("compute_75", 75, True),
    ("sm_90a", 90, True),
    ("sm_90a compute_90a", 100, False),
    ("sm_100f", 103, True),
    ("sm_100f compute_100f", 120, False),
    ("sm_120", 121, True),
    ("sm_120 compute_120", 90, False),  # what the device check builds to be refused; sm_75 would bring PTX for all
    ("sm_75 compute_75", 90, True),
    ("sm_80 sm_86", 87, False),  # machine code of cards is not for Orin, nor the other way
    ("sm_80 sm_87", 87, True),
    ("sm_87", 89, False),
    ("sm_80 compute_80", 87, True),
    ("compute_87", 89, True),
    ("sm_70", 72, False),
    ("sm_100f", 101, False),
    ("sm_101", 110, True),
    ("sm_12", 120, False),
    ("nonsense", 80, False),
]


def test_which_devices_a_librarys_code_serves(tmp_path):
    program = tmp_path / "serves"
    source = tmp_path / "serves.cpp"
    source.write_text(
        '#include <stdlib.h>\n#include "opforge/cuda/architectures.h"\n'
        "int main(int, char** a) { return opforge::cuda::serves(a[1], atoi(a[2])) ? 10 : 20; }\n"
    )
    flags = [f"-I{include_dir()}", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*find_compiler().command, *flags, source, "-o", program], check=True)
    found = [subprocess.run([program, built, str(device)]).returncode == 10 for built, device, _ in SERVES]
    assert found == [right for *_, right in SERVES]


LAUNCHER = """
#include "opforge/cuda/launch.h"
__global__ void twice(float* x, int n) {
  extern __shared__ float row[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) row[threadIdx.x] = x[i], x[i] = 2 * row[threadIdx.x];
}
static char words[512];
static opforge_status tell(opforge_context*, opforge_status status, const char* text) {
  snprintf(words, sizeof words, "%s", text);
  return status;
}
extern "C" const char* told() { return words; }
extern "C" int launch_twice(float* x, int64_t n, int64_t threads, int64_t shared, int64_t rows) {
  opforge_context context = {};
  context.device = {OPFORGE_DEVICE_CUDA, 0};
  context.error = tell;
  opforge::cuda::Launch launch(&context, n);
  dim3 grid;
  if (!launch || !launch.grid((n + 63) / 64, rows, 1, &grid) || !launch.allow_shared(twice, shared))
    return launch.status();
  twice<<<grid, threads, shared, launch.stream()>>>(x, n);
  return launch.finish();
}
"""


def twice(folder, flags=(), n=100, threads=64, shared=256, rows=1):
    source = folder / "twice.cu"
    source.write_text(LAUNCHER)
    loaded = emulate(source, flags=flags).load()
    loaded.told.restype = ctypes.c_char_p
    x = np.ones(n, np.float32)
    numbers = map(ctypes.c_int64, (n, threads, shared, rows))
    status = loaded.launch_twice(ctypes.c_void_p(x.ctypes.data), *numbers)
    return status, x, loaded.told().decode()


def test_a_launcher_of_an_author(tmp_path):
    status, x, _ = twice(tmp_path)
    assert status == 0
    assert (x == 2).all()
    assert twice(tmp_path, shared=100_000)[0] == 0  # more than CUDA gives unasked


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"rows": 65536}, 3, "the tensors need more blocks than one launch can have"),
        ({"shared": 300_000}, 3, "the kernel needs more shared memory than this GPU has"),
        ({"threads": 2000}, 7, "cudaErrorInvalidConfiguration (9): twice: "),
    ],
)
def test_launches_beyond_what_a_device_can(tmp_path, change, status, words):
    found, x, told = twice(tmp_path, **change)
    assert found == status
    assert told.startswith(words)
    assert (x == 1).all()


def test_a_library_without_code_for_the_device(tmp_path):
    flag = '-DOPFORGE_CUDA_ARCHITECTURES="sm_80 sm_86"'
    status, x, told = twice(tmp_path, flags=[flag])
    assert status == 3
    assert told == (
        "the library has no code for this GPU (sm_90): it was built for sm_80 sm_86; build it again with "
        "`opforge build --device cuda --arch sm_90`"
    )
    assert (x == 1).all()
    assert twice(tmp_path, flags=[flag.replace("sm_86", "compute_80")])[0] == 0


OLD_DRIVER = """
#include <cuda_runtime.h>
static int driver = 0;
static cudaError_t no_device(int*) { return cudaErrorInsufficientDriver; }
static cudaError_t driver_of_here(int* version) { return *version = driver, cudaSuccess; }
#define cudaGetDevice no_device
#define cudaDriverGetVersion driver_of_here
#include "opforge/cuda/launch.h"
static char words[512];
static opforge_status tell(opforge_context*, opforge_status status, const char* text) {
  snprintf(words, sizeof words, "%s", text);
  return status;
}
extern "C" const char* told() { return words; }
extern "C" int call(int version) {
  driver = version;
  opforge_context context = {};
  context.device = {OPFORGE_DEVICE_CUDA, 0};
  context.error = tell;
  return opforge::cuda::Launch(&context, 1).status();
}
"""


def test_a_driver_that_is_too_old(tmp_path):
    source = tmp_path / "old.cu"
    source.write_text(OLD_DRIVER)
    loaded = emulate(source).load()
    loaded.told.restype = ctypes.c_char_p
    said = {}
    for version in (0, 12080, 13020):
        assert loaded.call(version) == 3
        said[version] = (
            loaded.told().decode().removesuffix("cudaErrorInsufficientDriver (35): cudaErrorInsufficientDriver")
        )
    assert said == {
        0: "no GPU: there is no NVIDIA driver here: ",
        12080: "the library was built with CUDA 13.0, the driver here serves CUDA 12.8 at most: update the driver, or "
        "build the library with a toolkit of CUDA 12 (CUDA_HOME names one): ",
        13020: "no GPU: the NVIDIA driver, of CUDA 13.2, does not start: ",
    }
