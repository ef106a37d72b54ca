"""Loaded native adapters of engines that keep a table of the operators that they were told of."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path

from opforge.build import device_library, library_for
from opforge.build.device import Device
from opforge.build.native import call_native, load_native
from opforge.schema import Operator

__all__ = ["OperatorTable"]


class OperatorTable:
    """An adapter that this process has loaded; the engine opens the same file and so meets the same state."""

    def __init__(self, path: Path, what: str, prefix: str) -> None:
        """Load it.

        Args:
            path: the adapter's file.
            what: its name, for messages.
            prefix: what the names of its functions begin with.

        Raises:
            UnsupportedError: it does not load.
        """
        library = load_native(path, what)
        self._define = getattr(library, f"{prefix}_define")
        self._define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self._define.restype = ctypes.c_int32
        self._select = getattr(library, f"{prefix}_select")
        self._select.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
        self._select.restype = None

    def define(self, operator: int) -> None:
        """Make the operator whose ``opforge_operator`` lies at this address known.

        Raises:
            OpforgeError: another operator of this name is there, or the table is not one of this version.
        """
        call_native(self._define, operator)

    def define_all(self, operators: Iterable[Operator], device: Device | None = None) -> list[str]:
        """Build (or find) the kernels of operators and make them known; return their keys.

        Args:
            operators: whose kernels for the CPU are needed.
            device: where their kernels are needed too.
        """
        keys = []
        for operator in operators:
            self.define(library_for([operator]).operator(operator.key).address)
            if device is not None:
                self.define(device_library(operator, device).operator(operator.key).address)
            keys.append(operator.key)
        return keys

    def select(self, keys: Sequence[str]) -> None:
        """Say which operators the next registration on this thread takes; none = the newest of each."""
        self._select((ctypes.c_char_p * len(keys))(*(key.encode() for key in keys)), len(keys))
