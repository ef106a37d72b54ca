"""What native adapters call when a tensor on a device, or on the CPU, comes whose kernels they do not know yet."""

from __future__ import annotations

import _thread
import ctypes
from collections.abc import Callable
from typing import Any, Final

from opforge.build import abi
from opforge.build.device import DEVICE_TYPES
from opforge.build.native import STATUS_ERRORS
from opforge.errors import BuildError, InternalError, OpforgeError, ToolchainError, UnsupportedError
from opforge.frameworks._entries import Entries

__all__ = ["DeviceLoader", "device_loader"]

DeviceLoader: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)
"""``opforge::adapter::DeviceLoader``: key, device type, a buffer for words and its size; returns a status."""

_INTERNAL: Final = 7


def device_loader(entries: Entries[Any], prepare: Callable[[], None] | None = None) -> Callable[..., int]:
    """Return a function for a host's adapter to call, from any thread; the host keeps it for the process.

    Args:
        entries: what is registered with the host.
        prepare: what the host needs besides kernels; called first.
    """

    def load(key: bytes, device_type: int, words: Any, size: int) -> int:  # noqa: ANN401 - a ctypes pointer
        try:
            if device_type == abi.DEVICE_CPU:
                entries.load_cpu(key.decode())
                return 0
            if device_type not in DEVICE_TYPES:
                raise UnsupportedError(
                    "no kernels are built for this device", where=key.decode(), got=f"device type {device_type}"
                )
            if prepare is not None:
                prepare()
            entries.load_device(key.decode(), DEVICE_TYPES[device_type])
        except BaseException as error:  # nothing may leave through the adapter: ctypes would return any number
            if isinstance(error, KeyboardInterrupt):
                _thread.interrupt_main()  # it comes again once Python is back
            text = OpforgeError._message(error) if isinstance(error, OpforgeError) else f"{key.decode()}: {error!r}"
            content = text.encode()[: size - 1]
            ctypes.memmove(words, content + b"\0", len(content) + 1)
            return _status(error)
        return 0

    return DeviceLoader(load)


def _status(error: BaseException) -> int:
    """Return the status that adapters raise an error by: a missing compiler is something that nothing here serves."""
    if isinstance(error, ToolchainError | BuildError):
        error = UnsupportedError("")
    if isinstance(error, InternalError):
        return _INTERNAL
    return next((status for status, kind in STATUS_ERRORS.items() if isinstance(error, kind)), _INTERNAL)
