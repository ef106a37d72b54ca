"""The native adapter: one library of custom operators (and an execution provider) for every ONNX Runtime."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from opforge._paths import library_dir
from opforge.build.native import call_native, load_native, native_file

__all__ = ["Adapter", "adapter", "adapter_path"]

_WHAT: Final = "ONNX Runtime adapter"


def adapter_path() -> Path:
    """Return the file that ONNX Runtime loads.

    Raises:
        MissingOperatorError: this installation lacks it.
    """
    return native_file(library_dir() / "libopforge_onnxruntime.so", _WHAT)


class Adapter:
    """The loaded adapter of this process; ONNX Runtime opens the same file and so meets the same state."""

    def __init__(self, path: Path) -> None:
        """Load it.

        Raises:
            UnsupportedError: it does not load.
        """
        library = load_native(path, _WHAT)
        self._define = library.opforge_onnxruntime_define
        self._define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self._define.restype = ctypes.c_int32
        self._select = library.opforge_onnxruntime_select
        self._select.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
        self._select.restype = None

    def define(self, operator: int) -> None:
        """Make the operator whose ``opforge_operator`` lies at this address known.

        Raises:
            OpforgeError: another operator of this name is there, or the table is not one of this version.
        """
        call_native(self._define, operator)

    def select(self, keys: Sequence[str]) -> None:
        """Say which operators the next registration on this thread takes; none = the newest of each."""
        self._select((ctypes.c_char_p * len(keys))(*(key.encode() for key in keys)), len(keys))


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(adapter_path())
