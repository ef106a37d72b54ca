"""What NVIDIA's driver says of this machine. Nothing here needs CUDA's toolkit, or a driver to be there."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["GPU", "Devices", "find_devices"]

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class GPU:
    """A device.

    Attributes:
        name: the product's.
        capability: 80 = compute capability 8.0 = sm_80.
        memory: bytes.
    """

    name: str
    capability: int
    memory: int


@dataclass(frozen=True)
class Devices:
    """What was found.

    Attributes:
        gpus: the devices, in the driver's order.
        driver: the newest version of CUDA that the driver serves, such as "13.0"; "" without a driver.
        reason: why there is no device; "" where there is one.
    """

    gpus: tuple[GPU, ...]
    driver: str = ""
    reason: str = ""


_LIBRARY: Final = "libcuda.so.1"


@cache
def find_devices() -> Devices:
    """Ask the driver for its devices; never raises."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return Devices((), reason=f"no GPU driver: {error}")
    number = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    version = f"{number.value // 1000}.{number.value % 1000 // 10}"
    status = driver.cuInit(0)
    if status != 0:
        return Devices((), version, f"the driver (CUDA {version}) finds no GPU: {_error(driver, status)}")
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    gpus = tuple(_gpu(driver, k) for k in range(count.value))
    return Devices(gpus, version, "" if gpus else f"the driver (CUDA {version}) has no GPU")


def _gpu(driver: ctypes.CDLL, number: int) -> GPU:
    device, memory = ctypes.c_int(0), ctypes.c_size_t(0)
    driver.cuDeviceGet(ctypes.byref(device), number)
    name = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    capability = 0
    for attribute, factor in ((_MAJOR, 10), (_MINOR, 1)):
        value = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability += factor * value.value
    return GPU(name.value.decode("utf-8", "replace"), capability, memory.value)


def _error(driver: ctypes.CDLL, status: int) -> str:
    name = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(name))
    return f"{(name.value or b'unknown error').decode()} ({status})"
