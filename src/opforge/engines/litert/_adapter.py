"""The native adapter: our kernels for the custom nodes of one compiled model of LiteRT."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Final

from opforge._paths import library_dir
from opforge.build import library_for
from opforge.build.library import LoadedLibrary
from opforge.build.native import STATUS_ERRORS, TEXT_SIZE, call_native, load_native, native_file
from opforge.engines.litert._library import library
from opforge.errors import InternalError, OpforgeError
from opforge.frameworks._names import tensorflow_name
from opforge.schema import Operator

__all__ = ["DEFINED", "Adapter", "Kernels", "adapter", "adapter_path", "define", "register_library"]

_WHAT: Final = "LiteRT adapter"


def adapter_path() -> Path:
    """Return the file of the adapter, for programs in C and C++.

    Raises:
        MissingOperatorError: this installation lacks it.
    """
    return native_file(library_dir() / "libopforge_litert.so", _WHAT)


class Adapter:
    """The loaded adapter of this process."""

    def __init__(self, path: Path, litert: Path) -> None:
        """Load it and let it find LiteRT's functions.

        Raises:
            UnsupportedError: one of the two does not load, or LiteRT is too old.
        """
        found = load_native(path, _WHAT)
        text = c_char_p, c_size_t
        for name, arguments in (
            ("open", (c_char_p, *text)),
            ("define", (c_void_p, *text)),
            ("create", (POINTER(c_char_p), c_size_t, c_int32, POINTER(c_void_p), *text)),
            ("add", (c_void_p, c_void_p, *text)),
            ("failure", (c_void_p, *text)),
            ("destroy", (c_void_p,)),
        ):
            getattr(found, f"opforge_litert_{name}").argtypes = arguments
        found.opforge_litert_destroy.restype = None
        self.functions = found
        call_native(found.opforge_litert_open, str(litert).encode())

    def define(self, operator: int) -> None:
        """Make the operator whose ``opforge_operator`` lies at this address known.

        Raises:
            OpforgeError: another operator of this name is there, or the table is not one of this version.
        """
        call_native(self.functions.opforge_litert_define, operator)


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(adapter_path(), library().path)


def define(operators: Iterable[Operator]) -> None:
    """Build (or find) the kernels of operators and make them known to the adapter."""
    for operator in operators:
        adapter().define(library_for([operator]).operator(operator.key).address)


DEFINED: Final[set[str]] = set()
"""Names by which nodes may call operators that have no declaration in Python."""


def register_library(library: LoadedLibrary) -> list[str]:
    """Make every operator of a kernel library known, gradient operators too; return their keys.

    Raises:
        ArgumentError: another operator of the same name and version is known.
    """
    for key, operator in library.operators.items():
        adapter().define(operator.address)
        DEFINED.update((key, tensorflow_name(operator.domain, operator.name, operator.since_version)))
    return list(library.operators)


class Kernels:
    """The kernels for the custom nodes of one compiled model, which goes before they do."""

    def __init__(self, codes: Sequence[str], threads: int) -> None:
        """Make them.

        Args:
            codes: names of the custom nodes.
            threads: of opforge's pool; 0 = all.

        Raises:
            MissingOperatorError: an operator is not defined.
            UnsupportedError: the sizes of its outputs depend on data.
        """
        self._functions = adapter().functions
        self._handle: c_void_p | None = None
        handle = c_void_p()
        names = (c_char_p * len(codes))(*(code.encode() for code in codes))
        call_native(self._functions.opforge_litert_create, names, len(codes), threads, ctypes.byref(handle))
        self._handle = handle

    def add(self, options: c_void_p) -> None:
        """Add them to a LiteRtOptions."""
        call_native(self._functions.opforge_litert_add, self._handle, options)

    def failure(self) -> OpforgeError | None:
        """Take the first failure of a kernel since the last call; LiteRT knows nothing of it."""
        text = ctypes.create_string_buffer(TEXT_SIZE)
        status = self._functions.opforge_litert_failure(self._handle, text, TEXT_SIZE)
        return STATUS_ERRORS.get(status, InternalError)(text.value.decode("utf-8", "replace")) if status else None

    def close(self) -> None:
        """Destroy them; a second time does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._functions.opforge_litert_destroy(handle)
