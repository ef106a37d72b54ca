"""The native adapter: registration of operators through TensorFlow's C API."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import tensorflow as tf

from opforge._environment import check_runtime_variables
from opforge._paths import library_dir
from opforge.build.native import call_native, load_native, native_file
from opforge.frameworks._devices import DeviceLoader

__all__ = ["Adapter", "adapter"]

_WHAT: Final = "TensorFlow adapter"
_NAMES: Final = ("libtensorflow_framework.so.2", "libtensorflow_framework.2.dylib")


class Adapter:
    """The loaded adapter of this process."""

    def __init__(self, path: Path) -> None:
        """Load it and look up TensorFlow's functions.

        Raises:
            MissingOperatorError: the file is not there.
            UnsupportedError: it does not load, or this TensorFlow lacks functions of the C API.
        """
        native_file(path, _WHAT)
        check_runtime_variables()
        self._library = load_native(path, _WHAT)
        text = ctypes.c_char_p, ctypes.c_size_t
        self._library.opforge_tensorflow_open.argtypes = [ctypes.c_char_p, *text]
        self.loader: Callable[..., int] | None = None
        self._library.opforge_tensorflow_set_loader.argtypes = [DeviceLoader]
        self._library.opforge_tensorflow_set_loader.restype = None
        self._library.opforge_tensorflow_set_stream.argtypes = [ctypes.c_void_p]
        self._library.opforge_tensorflow_set_stream.restype = None
        self._library.opforge_tensorflow_define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, *text]
        call_native(self._library.opforge_tensorflow_open, str(_framework()).encode())

    def define(self, operator: int, name: str) -> None:
        """Register the operator whose ``opforge_operator`` lies at this address under a name.

        Raises:
            OpforgeError: another operator has the name, or TensorFlow has no tensors of one of its types.
        """
        call_native(self._library.opforge_tensorflow_define, operator, name.encode())

    def set_loader(self, loader: Callable[..., int]) -> None:
        """Say what brings the kernels of a device when a node on it comes; kept for the process."""
        self.loader = loader
        self._library.opforge_tensorflow_set_loader(loader)

    def set_stream(self, function: int) -> None:
        """Give the address of ``opforge_tensorflow_stream``."""
        self._library.opforge_tensorflow_set_stream(function)


def _framework() -> Path:
    folder = Path(tf.sysconfig.get_lib())
    return next((folder / name for name in _NAMES if (folder / name).is_file()), folder / _NAMES[0])


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(library_dir() / "libopforge_tensorflow.so")
