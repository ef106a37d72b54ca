"""A session through the C API with limits, from bytes in memory: for programs that may not end by themselves."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from opforge._paths import runtime_library


class _Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("verify", ctypes.c_int32),
        ("no_mmap", ctypes.c_int32),
        ("refuse_native", ctypes.c_int32),
        ("libraries", ctypes.c_void_p),
        ("n_libraries", ctypes.c_int32),
        ("n_search", ctypes.c_int32),
        ("search", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_user", ctypes.c_void_p),
        ("memory_limit", ctypes.c_int64),
        ("loop_limit", ctypes.c_int64),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Value(ctypes.Structure):
    _fields_ = (("tensors", ctypes.POINTER(_Tensor)), ("count", ctypes.c_int32), ("reserved", ctypes.c_int32))


_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_LIBRARY = ctypes.CDLL(str(runtime_library()))
_LIBRARY.opforge_session_input_count.argtypes = [ctypes.c_void_p]


def open_session(data: bytes) -> tuple[int, ctypes.c_void_p]:
    """Open with limits; return the status and the session."""
    options = _Options(size=ctypes.sizeof(_Options), threads=1, no_mmap=1, refuse_native=1)
    options.memory_limit, options.loop_limit = 1 << 24, 100
    session = ctypes.c_void_p()
    size = ctypes.c_size_t(len(data))
    status = _LIBRARY.opforge_session_open_memory(data, size, ctypes.byref(options), ctypes.byref(session))
    return int(status), session


def attempt(data: bytes, feeds: list[Any]) -> int:
    """Open and run with limits; return the status, -1 when the number of inputs is another.

    Args:
        data: a file.
        feeds: per input an array, a list of arrays, or None.
    """
    status, session = open_session(data)
    if status != 0:
        return status
    results = ctypes.c_void_p()
    kept: list[Any] = []
    values = (_Value * len(feeds))(*(_value(feed, kept) for feed in feeds))
    if _LIBRARY.opforge_session_input_count(session) == len(feeds):
        status = _LIBRARY.opforge_session_run_values(session, values, len(feeds), ctypes.byref(results))
    else:
        status = -1
    _LIBRARY.opforge_results_free(results)
    _LIBRARY.opforge_session_close(session)
    return int(status)


def _value(feed: Any, kept: list[Any]) -> _Value:
    if feed is None:
        return _Value(None, -1, 0)
    arrays = [np.asarray(a, order="C") for a in (feed if isinstance(feed, list) else [feed])]
    tensors = (_Tensor * max(len(arrays), 1))()
    for tensor, array in zip(tensors, arrays, strict=False):
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        tensor.data, tensor.ndim, tensor.shape = array.ctypes.data, array.ndim, shape
        tensor.device[0] = 1
        tensor.code, tensor.bits, tensor.lanes = _CODES[array.dtype.kind], array.dtype.itemsize * 8, 1
        kept += [array, shape]
    kept.append(tensors)
    return _Value(tensors, len(arrays), 0)
