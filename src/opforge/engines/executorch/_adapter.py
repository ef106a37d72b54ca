"""The native adapter: compiled once against the installed ExecuTorch, loaded into its process, told of operators."""

from __future__ import annotations

import ctypes
import functools
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Final

from opforge._paths import library_dir
from opforge.build.adapters import Recipe
from opforge.build.native import TEXT_SIZE, call_native, load_native, to_error
from opforge.errors import OpforgeError, UnsupportedError

__all__ = ["OLDEST", "Adapter", "adapter", "package", "recipe", "unfit", "version"]

OLDEST: Final = (1, 5)
"""Oldest version whose interface the adapter is written for."""

_PROBE: Final = "include/executorch/runtime/kernel/operator_registry.h"


def version() -> str:
    """Return the version of the installed package."""
    return metadata.version("executorch")


def package() -> Path:
    """Return the folder of the installed package."""
    spec = util.find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def unfit() -> tuple[str, str] | None:
    """Say why the installed package does not serve and what to do, or None where it serves; imports nothing heavy."""
    if util.find_spec("executorch") is None:
        return "the package is not installed", "pip install 'opforge[executorch]'"
    found = version()
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < OLDEST:
        text = ".".join(map(str, OLDEST))
        return f"version {found} is too old, {text} is needed", "pip install --upgrade executorch"
    if util.find_spec("torch") is None:
        return "its Python binding needs torch, which is not installed", "pip install 'opforge[executorch]'"
    if not (package() / _PROBE).is_file():
        return f"version {found} comes without C++ headers", "install executorch from its wheels"
    return None


def recipe() -> Recipe:
    """Say how the adapter is compiled here."""
    root = package()
    headers = root / "include"
    return Recipe(
        name="executorch-adapter",
        where=f"the adapter for executorch {version()}",
        source="executorch/executorch.cpp",
        flags=(
            "-std=c++17", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG",
            "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED",
            "-isystem", str(headers), "-isystem", str(headers / "executorch/runtime/core/portable_type/c10"),
        ),
        link_flags=(
            "-shared", f"-L{root / 'lib'}", "-lexecutorch", f"-Wl,-rpath,{root / 'lib'}",
            f"-L{library_dir()}", "-lopforge", f"-Wl,-rpath,{library_dir()}", "-Wl,-z,nodelete", "-s",
        ),
        identity=("executorch", version()),
    )  # fmt: skip


class Adapter:
    """The loaded adapter of this process."""

    def __init__(self, path: Path) -> None:
        """Load it into the process in which ExecuTorch is.

        Raises:
            UnsupportedError: it does not load.
        """
        import_module("executorch.runtime").Runtime.get()  # it brings the registry that the adapter fills
        library = load_native(path, "ExecuTorch adapter")
        self._define = library.opforge_executorch_define
        self._define.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self._define.restype = ctypes.c_int32
        self._threads = library.opforge_executorch_threads
        self._threads.argtypes = [ctypes.c_int32]
        self._threads.restype = None
        self._last_failure = library.opforge_executorch_last_failure
        self._last_failure.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._last_failure.restype = ctypes.c_int32
        self.library = library

    def define(self, operator: int, name: str) -> None:
        """Register the operator whose ``opforge_operator`` lies at this address as ``namespace::name.out``.

        Raises:
            OpforgeError: another operator has the name, or ExecuTorch cannot call this one.
        """
        call_native(self._define, operator, name.encode(), error=to_error)

    def threads(self, count: int) -> None:
        """Let kernels of later calls from this thread take so many threads; 0 = the whole pool."""
        self._threads(count)

    def last_failure(self) -> OpforgeError | None:
        """Return what a kernel last failed with in this thread, and forget it."""
        text = ctypes.create_string_buffer(TEXT_SIZE)
        status = self._last_failure(text, TEXT_SIZE)
        return to_error(status, text.value.decode("utf-8", "replace")) if status else None


@functools.cache
def adapter() -> Adapter:
    """Return the adapter, compiling it where that has not been done, and loading it on the first call.

    Raises:
        UnsupportedError: ExecuTorch is not here, or too old.
        ToolchainError: it has to be compiled, and there is no compiler.
        BuildError: the compiler refuses it.
    """
    reason = unfit()
    if reason is not None:
        raise UnsupportedError("ExecuTorch cannot be used here", where="executorch", got=reason[0], hint=reason[1])
    return Adapter(recipe().build())
