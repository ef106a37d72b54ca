"""The native adapter: one library of custom operators (and an execution provider) for every ONNX Runtime."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from opforge._paths import library_dir
from opforge.errors import (
    ArgumentError,
    DtypeError,
    InternalError,
    MissingOperatorError,
    OpforgeError,
    UnsupportedError,
)

__all__ = ["Adapter", "adapter", "adapter_path"]

_TEXT_SIZE: Final = 16384
_CLASSES: Final[dict[int, type[OpforgeError]]] = {
    1: ArgumentError,
    2: DtypeError,
    3: UnsupportedError,
    6: MissingOperatorError,
}


def adapter_path() -> Path:
    """Return the file that ONNX Runtime loads.

    Raises:
        MissingOperatorError: this installation lacks it.
    """
    path = library_dir() / "libopforge_onnxruntime.so"
    if not path.is_file():
        raise MissingOperatorError(
            "the ONNX Runtime adapter is not there", where=str(path), hint="install opforge again"
        )
    return path


class Adapter:
    """The loaded adapter of this process; ONNX Runtime opens the same file and so meets the same state."""

    def __init__(self, path: Path) -> None:
        """Load it.

        Raises:
            UnsupportedError: it does not load.
        """
        try:
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            raise UnsupportedError("the ONNX Runtime adapter does not load", where=str(path), got=str(error)) from None
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
        text = ctypes.create_string_buffer(_TEXT_SIZE)
        status = self._define(operator, text, _TEXT_SIZE)
        if status:
            raise _CLASSES.get(status, InternalError)(text.value.decode("utf-8", "replace"))

    def select(self, keys: Sequence[str]) -> None:
        """Say which operators the next registration on this thread takes; none = the newest of each."""
        self._select((ctypes.c_char_p * len(keys))(*(key.encode() for key in keys)), len(keys))


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(adapter_path())
