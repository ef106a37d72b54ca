"""A CUDA for a PyTorch without one: tensors that say "cuda" over the host's memory, and what our adapters ask for.

PyTorch makes such tensors from DLPack; the handful of its own operators that copies and outputs need are registered
here for the CUDA key, and `libtorch_cuda.so` is a small library that counts guards and gives streams. Kernels
are the emulated ones. The autograd engine has no threads for such devices, so backward functions are called directly.
"""

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

SOURCE = r"""
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
struct HostGuard : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return 2; }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
};
C10_REGISTER_GUARD_IMPL(CUDA, HostGuard)
}
extern "C" {
int32_t current = 0, guards = 0, refuse_guard = 0, refuse_stream = 0;
static int32_t before[64];
int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  *stream = (void*)(intptr_t)(0x1000 + device);
  return refuse_stream;
}
int32_t aoti_torch_create_cuda_guard(int32_t device, void** guard) {
  if (refuse_guard) return 1;
  before[guards++] = current;
  current = device;
  *guard = (void*)0x77;
  return 0;
}
int32_t aoti_torch_delete_cuda_guard(void* guard) {
  if (guard != (void*)0x77) return 1;
  current = before[--guards];
  return 0;
}
}
"""

_CODES = {"f": 2, "i": 0, "u": 1}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


# A function of our own: that of ctypes.pythonapi is the whole process's, and JAX gives it other types.
_capsule: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_kept: dict[int, Any] = {}


@_DELETER
def _forget(address: int) -> None:
    _kept.pop(address, None)


def on_cuda(array: np.ndarray, device: int = 0) -> torch.Tensor:
    """Make a tensor on a CUDA device that shares the array's memory."""
    bfloat = array.dtype == ml_dtypes.bfloat16
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    strides = (ctypes.c_int64 * max(array.ndim, 1))(*[step // array.itemsize for step in array.strides])
    tensor = _Tensor(
        array.ctypes.data, 2, device, array.ndim, 4 if bfloat else _CODES[array.dtype.kind], array.itemsize * 8, 1,
        ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)), 0,
    )  # fmt: skip
    managed = _Managed(tensor, None, _forget)
    _kept[ctypes.addressof(managed)] = (array, shape, strides, managed)
    return torch._C._from_dlpack(_capsule(ctypes.addressof(managed), b"dltensor", None))


def numpy_type(dtype: torch.dtype) -> Any:
    """Return NumPy's dtype of PyTorch's."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch."))


def view(tensor: torch.Tensor) -> np.ndarray:
    """See the memory of a tensor, wherever it says that it is."""
    storage = tensor.untyped_storage()
    steps = [step * tensor.element_size() for step in tensor.stride()]
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr()) if storage.nbytes() else bytearray()
    offset = tensor.storage_offset() * tensor.element_size()
    return np.ndarray(tuple(tensor.shape), numpy_type(tensor.dtype), memory, offset, steps)


class HostCuda:
    """What the pretended CUDA saw: `allocated` are shapes, dtypes and devices of new tensors."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Begin with nothing seen."""
        self.library = library
        self.allocated: list[tuple[tuple[int, ...], torch.dtype, int]] = []
        self.current: list[int] = []  # the current device at each allocation

    def number(self, name: str) -> Any:
        """Return a variable of the library."""
        return ctypes.c_int32.in_dll(self.library, name)

    def empty(self, size: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
        """Stand for aten::empty and aten::empty_strided."""
        dtype = dtype or torch.float32
        self.allocated.append((tuple(size), dtype, device.index or 0))
        self.current.append(self.number("current").value)
        return on_cuda(np.empty(tuple(size), numpy_type(dtype)), device.index or 0)


def _copy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    view(self)[...] = view(source).astype(numpy_type(self.dtype))
    return self


def _fill(self: torch.Tensor, value: Any) -> torch.Tensor:
    assert not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    view(self)[...] = value.item() if isinstance(value, torch.Tensor) else value
    return self


@contextmanager
def host_cuda(folder: Path) -> Iterator[HostCuda]:
    """Pretend that this process has CUDA."""
    source, path, root = folder / "torch_cuda.cpp", folder / "libtorch_cuda.so", Path(torch.__file__).parent
    source.write_text(SOURCE)
    flags = ["-std=c++20", "-w", "-shared", "-fPIC", "-isystem", str(root / "include"), f"-L{root / 'lib'}", "-lc10"]
    subprocess.run(["c++", str(source), "-o", str(path), *flags], check=True)
    cuda = HostCuda(ctypes.CDLL(str(path)))
    from opforge.frameworks.torch._adapter import adapter

    adapter().library.opforge_torch_set_cuda(str(path).encode())
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", cuda.empty, "CUDA")
    library.impl("empty_strided", lambda size, stride, **rest: cuda.empty(size, **rest), "CUDA")
    library.impl("copy_", _copy, "CUDA")
    library.impl("fill_.Tensor", _fill, "CUDA")
    library.impl("fill_.Scalar", _fill, "CUDA")
    lazy = torch.cuda._lazy_init
    torch.cuda._lazy_init = lambda: None
    try:
        yield cuda
    finally:
        torch.cuda._lazy_init = lazy
        library._destroy()
