"""The native adapter: registration of operators through TensorFlow's C API."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Final

import tensorflow as tf

from opforge._environment import check_runtime_variables
from opforge._paths import library_dir
from opforge.errors import (
    ArgumentError,
    DtypeError,
    InternalError,
    MissingOperatorError,
    OpforgeError,
    UnsupportedError,
)

__all__ = ["Adapter", "adapter"]

_TEXT_SIZE: Final = 16384
_CLASSES: Final[dict[int, type[OpforgeError]]] = {1: ArgumentError, 2: DtypeError, 3: UnsupportedError}
_NAMES: Final = ("libtensorflow_framework.so.2", "libtensorflow_framework.2.dylib")


class Adapter:
    """The loaded adapter of this process."""

    def __init__(self, path: Path) -> None:
        """Load it and look up TensorFlow's functions.

        Raises:
            MissingOperatorError: the file is not there.
            UnsupportedError: it does not load, or this TensorFlow lacks functions of the C API.
        """
        if not path.is_file():
            raise MissingOperatorError(
                "the TensorFlow adapter is not there", where=str(path), hint="install opforge again"
            )
        check_runtime_variables()
        try:
            self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            raise UnsupportedError("the TensorFlow adapter does not load", where=str(path), got=str(error)) from None
        text = ctypes.c_char_p, ctypes.c_size_t
        self._library.opforge_tensorflow_open.argtypes = [ctypes.c_char_p, *text]
        self._library.opforge_tensorflow_define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, *text]
        self._checked("open", str(_framework()).encode())

    def define(self, operator: int, name: str) -> None:
        """Register the operator whose ``opforge_operator`` lies at this address under a name.

        Raises:
            OpforgeError: another operator has the name, or TensorFlow has no tensors of one of its types.
        """
        self._checked("define", operator, name.encode())

    def _checked(self, function: str, *arguments: object) -> None:
        text = ctypes.create_string_buffer(_TEXT_SIZE)
        status = getattr(self._library, f"opforge_tensorflow_{function}")(*arguments, text, _TEXT_SIZE)
        if status:
            raise _CLASSES.get(status, InternalError)(text.value.decode("utf-8", "replace"))


def _framework() -> Path:
    folder = Path(tf.sysconfig.get_lib())
    return next((folder / name for name in _NAMES if (folder / name).is_file()), folder / _NAMES[0])


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(library_dir() / "libopforge_tensorflow.so")
