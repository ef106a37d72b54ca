"""NVIDIA's driver through ctypes: which devices there are, or why none; memory, streams, events and graphs on one.

Needs neither a toolkit nor a framework. Memory and streams belong to the device's primary context, which is the one
that the CUDA runtime inside kernel libraries, and PyTorch, use.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from opforge.errors import OpforgeError, UnsupportedError

__all__ = ["Device", "Driver", "Found", "current_device", "find_devices", "no_gpu_reason"]

_LIBRARY: Final = "libcuda.so.1"
_ATTRIBUTES: Final = {"processors": 16, "l2": 38, "major": 75, "minor": 76}
_MEMORY: Final = c_uint64  # CUdeviceptr
_OUT: Final = c_void_p  # address of what a function writes
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_OUT,),
    "cuDeviceGetCount": (_OUT,),
    "cuDeviceGet": (_OUT, c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetAttribute": (_OUT, c_int, c_int),
    "cuDeviceTotalMem_v2": (_OUT, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxGetDevice": (_OUT,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_OUT, _OUT),
    "cuMemAlloc_v2": (_OUT, c_size_t),
    "cuMemFree_v2": (_MEMORY,),
    "cuMemcpyHtoD_v2": (_MEMORY, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _MEMORY, c_size_t),
    "cuMemcpyDtoDAsync_v2": (_MEMORY, _MEMORY, c_size_t, c_void_p),
    "cuMemsetD8Async": (_MEMORY, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (_OUT, c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, c_void_p, ctypes.c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
    "cuGetErrorName": (c_int, _OUT),
    "cuGetErrorString": (c_int, _OUT),
}
_CAPTURE_THREAD_LOCAL: Final = 1
_NON_BLOCKING: Final = 1


@dataclass(frozen=True)
class Device:
    """One device as its driver describes it.

    Attributes:
        ordinal: its number in this process.
        name: such as "NVIDIA H200".
        architecture: compute capability, 90 = sm_90.
        processors: multiprocessors.
        memory: bytes.
        l2: bytes of its L2 cache.
        driver: the newest CUDA version that the driver serves, "13000".
    """

    ordinal: int
    name: str
    architecture: int
    processors: int
    memory: int
    l2: int
    driver: str


@dataclass(frozen=True)
class Found:
    """The devices, or the reason why there are none (then `devices` is empty)."""

    devices: tuple[Device, ...]
    reason: str = ""


class Driver:
    """The driver's functions, each checked; loaded and started when it is made.

    Raises:
        UnsupportedError: there is no driver, or it does not start; the message says which.
    """

    def __init__(self) -> None:
        """Load and start the driver."""
        name = os.environ.get("OPFORGE_CUDA_DRIVER", _LIBRARY)
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise _no_gpu(f"the NVIDIA driver is not installed: {error}") from None
        self._functions: dict[str, Any] = {}
        status = self._raw("cuInit")(0)
        if status:
            raise _no_gpu(f"the NVIDIA driver does not start: {self._words(status)}")

    def _raw(self, name: str) -> Any:  # noqa: ANN401 - a ctypes function
        if name not in self._functions:
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise _no_gpu(f"the NVIDIA driver has no {name}: it is too old") from None
            function.argtypes, function.restype = _SIGNATURES[name], c_int
            self._functions[name] = function
        return self._functions[name]

    def _words(self, status: int) -> str:
        texts = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            self._raw(function)(status, byref(text))
            texts.append((text.value or b"").decode("utf-8", "replace"))
        return f"error {status}, {texts[0] or 'unknown'}: {texts[1] or 'no words'}"

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - as the function wants them
        """Call a function of the driver.

        Raises:
            OpforgeError: it failed; the message has CUDA's number and words.
        """
        status = self._raw(name)(*arguments)
        if status:
            raise OpforgeError("the CUDA driver refuses", where=name, got=self._words(status))

    def number(self, name: str, kind: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a ctypes type
        """Call a function that writes one value through its first argument, and return the value."""
        value = kind()
        self.call(name, byref(value), *arguments)
        return value.value

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that this process sees."""
        return tuple(self._device(k) for k in range(self.number("cuDeviceGetCount", c_int)))

    def _device(self, ordinal: int) -> Device:
        handle = self.number("cuDeviceGet", c_int, ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), handle)
        known = {k: self.number("cuDeviceGetAttribute", c_int, number, handle) for k, number in _ATTRIBUTES.items()}
        return Device(
            ordinal=ordinal,
            name=name.value.decode("utf-8", "replace"),
            architecture=known["major"] * 10 + known["minor"],
            processors=known["processors"],
            memory=self.number("cuDeviceTotalMem_v2", c_size_t, handle),
            l2=known["l2"],
            driver=str(self.number("cuDriverGetVersion", c_int)),
        )

    # ---- one device

    def enter(self, ordinal: int) -> None:
        """Make the primary context of a device this thread's; it is kept for the process."""
        handle = self.number("cuDeviceGet", c_int, ordinal)
        context = self.number("cuDevicePrimaryCtxRetain", c_void_p, handle)
        self.call("cuCtxSetCurrent", context)

    def free_bytes(self) -> int:
        """Return the free memory of the current device."""
        total = c_size_t()
        free = c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes of device memory; 0 for none."""
        return int(self.number("cuMemAlloc_v2", _MEMORY, size)) if size else 0

    def free(self, address: int) -> None:
        """Give memory back."""
        if address:
            self.call("cuMemFree_v2", address)

    def upload(self, address: int, host: int, size: int) -> None:
        """Copy from the host, and wait for it; not while something is recorded."""
        if size:
            self.call("cuMemcpyHtoD_v2", address, host, size)
            self.synchronize(0)  # a small copy comes back before it has arrived, and `stream`s do not wait for it

    def download(self, host: int, address: int, size: int) -> None:
        """Copy to the host, and wait for it."""
        if size:
            self.call("cuMemcpyDtoH_v2", host, address, size)

    def copy(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copy within the device, on a stream."""
        if size:
            self.call("cuMemcpyDtoDAsync_v2", target, source, size, stream)

    def fill(self, address: int, byte: int, size: int, stream: int = 0) -> None:
        """Fill memory with a byte, on a stream."""
        if size:
            self.call("cuMemsetD8Async", address, byte, size, stream)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for the whole device; errors of kernels come up here."""
        if stream is None:
            self.call("cuCtxSynchronize")
        else:
            self.call("cuStreamSynchronize", stream)

    def stream(self) -> int:
        """Make a stream that does not wait for the default one."""
        return int(self.number("cuStreamCreate", c_void_p, _NON_BLOCKING))

    def end_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self.call("cuStreamDestroy_v2", stream)

    def event(self) -> int:
        """Make an event that takes time."""
        return int(self.number("cuEventCreate", c_void_p, 0))

    def record(self, event: int, stream: int = 0) -> None:
        """Let an event happen when the stream gets there."""
        self.call("cuEventRecord", event, stream)

    def seconds(self, start: int, end: int) -> float:
        """Wait for the second event and return the time between the two."""
        self.call("cuEventSynchronize", end)
        return float(self.number("cuEventElapsedTime", c_float, start, end)) / 1000

    def end_event(self, event: int) -> None:
        """Destroy an event."""
        self.call("cuEventDestroy_v2", event)

    def begin_capture(self, stream: int) -> None:
        """Record what goes to the stream from now on instead of running it; this thread's unsafe calls then fail."""
        self.call("cuStreamBeginCapture_v2", stream, _CAPTURE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """End the recording and return an executable graph."""
        graph = c_void_p()
        self.call("cuStreamEndCapture", stream, byref(graph))
        if not graph.value:
            raise OpforgeError("nothing was recorded", where="cuStreamEndCapture")
        try:
            return int(self.number("cuGraphInstantiateWithFlags", c_void_p, graph, 0))
        finally:
            self.call("cuGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        """Run an executable graph on a stream."""
        self.call("cuGraphLaunch", graph, stream)

    def end_graph(self, graph: int) -> None:
        """Destroy an executable graph."""
        self.call("cuGraphExecDestroy", graph)


def _no_gpu(reason: str) -> UnsupportedError:
    return UnsupportedError(
        "no GPU",
        expected="an NVIDIA GPU with its driver",
        got=reason,
        hint="run this on a machine with one; `opforge check --device cuda-emulated` needs none",
    )


@cache
def find_devices() -> Found:
    """Return this process's devices or the reason why there are none. The driver is asked once."""
    try:
        devices = Driver().devices()
    except OpforgeError as error:
        return Found((), str(error.got))
    return Found(devices) if devices else Found((), "the NVIDIA driver sees no device (CUDA_VISIBLE_DEVICES?)")


def no_gpu_reason() -> str:
    """Return why there is no GPU here, "" where there is one."""
    return find_devices().reason


def current_device() -> int:
    """Return the number of the device that this thread works on; 0 where none is current, or there is none."""
    driver = _started()
    try:
        return 0 if driver is None else int(driver.number("cuCtxGetDevice", c_int))
    except OpforgeError:
        return 0


@cache
def _started() -> Driver | None:
    try:
        return Driver()
    except OpforgeError:
        return None
