"""How much memory this process has taken from the allocator, exactly where glibc tells it."""

from __future__ import annotations

import ctypes
import functools
import resource
from collections.abc import Callable
from pathlib import Path

__all__ = ["bytes_in_use"]


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo2] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2  # glibc 2.33
    except (OSError, AttributeError):
        return None
    function.restype = _Mallinfo2
    function.argtypes = []
    return function


def bytes_in_use() -> int:
    """Return the bytes that are allocated; elsewhere than with glibc, the memory that the process occupies."""
    function = _mallinfo()
    if function is not None:
        info = function()
        return int(info.uordblks) + int(info.hblkhd)
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
