"""The native adapter: one handler of XLA's foreign function interface for all operators."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import jax

from opforge._paths import library_dir
from opforge.build.native import call_native, load_native
from opforge.frameworks._devices import DeviceLoader

__all__ = ["TARGET", "Adapter", "adapter"]

TARGET: Final = "opforge_call"
"""Name of the custom call in programs and exported artefacts."""

_NEWEST: Final = 3  # minor version of the interface that the adapter was written for


_HANDLERS: Final = {"cpu": "opforge_jax_call", "CUDA": "opforge_jax_call_cuda"}
"""Platforms, as XLA calls them, and the adapter's handler for each; a platform that this process lacks does no
harm."""


class Adapter:
    """The loaded adapter of this process."""

    def __init__(self, path: Path) -> None:
        """Load it and register its handlers with XLA.

        Raises:
            MissingOperatorError: the file is not there.
            UnsupportedError: it does not load.
        """
        self._library = load_native(path, "JAX adapter")
        self._define = self._library.opforge_jax_define
        self._define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self._define.restype = ctypes.c_int32
        self._library.opforge_jax_set_version(ctypes.c_int32(min(interface_version(), _NEWEST)))
        self.loader: Callable[..., int] | None = None
        self._set_loader = self._library.opforge_jax_set_loader
        self._set_loader.argtypes = [DeviceLoader]
        self._set_loader.restype = None
        for platform, handler in _HANDLERS.items():
            function = jax.ffi.pycapsule(getattr(self._library, handler))
            jax.ffi.register_ffi_target(TARGET, function, platform=platform)

    def define(self, operator: int) -> None:
        """Make the operator whose ``opforge_operator`` lies at this address callable.

        Raises:
            OpforgeError: another operator of this name is there, or the table is not one of this version.
        """
        call_native(self._define, operator)

    def set_loader(self, loader: Callable[..., int]) -> None:
        """Say what brings the kernels of a device when a call on it comes; kept for the process."""
        self.loader = loader
        self._set_loader(loader)


@functools.cache
def interface_version() -> int:
    """Return the minor version of XLA's interface in the installed jaxlib.

    A handler that claims a version which the runtime does not know takes the whole CPU backend down, so it is read
    from the header that jaxlib ships; without one the oldest is claimed.
    """
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    try:
        found = re.search(r"^#define XLA_FFI_API_MINOR (\d+)", header.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return 1
    return int(found[1]) if found else 1


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, loading it on the first call."""
    return Adapter(library_dir() / "libopforge_jax.so")
