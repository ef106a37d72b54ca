"""The native adapter: compiled once per OpenVINO version against the installed one.

An import never compiles. The first session does, which takes some 10 seconds; ``opforge build --host openvino`` does
it ahead.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from opforge.build.adapters import Recipe
from opforge.engines._table import OperatorTable
from opforge.errors import UnsupportedError

__all__ = ["OLDEST", "adapter", "build_adapter", "built_adapter", "openvino_folder", "version", "version_numbers"]

OLDEST: Final = (2025, 0)
"""Oldest version that the adapter is tested with."""

_WHAT: Final = "OpenVINO adapter"
# The libraries that the adapter is linked to; their file names carry the version.
_LIBRARIES: Final = ("libopenvino.so", "libopenvino_onnx_frontend.so", "libopenvino_frontend_common.so", "libtbb.so")
_OPTIONAL: Final = ("libopenvino_frontend_common.so",)
_HEADERS: Final = ("openvino/openvino.hpp", "openvino/frontend/onnx/extension/conversion.hpp", "tbb/parallel_for.h")


def openvino_folder() -> Path | None:
    """Return the folder of the installed package without importing it."""
    spec = find_spec("openvino")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def version() -> str:
    """Return the version of the installed package."""
    return metadata.version("openvino")


def version_numbers(text: str) -> tuple[int, ...]:
    """Return (year, number)."""
    return tuple(int(part) for part in text.split("-")[0].split(".")[:2] if part.isdigit())


def _strings_of(library: Path) -> int:
    """Say which std::string a library was built with: 1 = today's, 0 = the one before C++11, as older wheels have."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return int(content.find(b"_ZN2ov4Node17set_friendly_nameERKNSt7__cxx11") >= 0)


@functools.cache
def _recipe(folder: Path, version: str) -> Recipe:
    missing = [name for name in _HEADERS if not (folder / "include" / name).is_file()]
    found: list[Path] = []
    for name in _LIBRARIES:
        files = sorted((folder / "libs").glob(f"{name}*"))
        if files:
            found.append(files[0])
        elif name not in _OPTIONAL:
            missing.append(name)
    if missing:
        raise UnsupportedError(
            "this OpenVINO has no C++ headers and libraries to build an adapter against",
            where=str(folder), expected=", ".join(missing), got="not there", hint="install OpenVINO from its wheels",
        )  # fmt: skip
    return Recipe(
        name="openvino-adapter",
        where=f"the adapter for OpenVINO {version}",
        source="openvino/openvino.cpp",
        flags=(
            "-std=c++17", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG",
            f"-D_GLIBCXX_USE_CXX11_ABI={_strings_of(found[0])}", "-isystem", str(folder / "include"),
        ),
        link_flags=(
            "-shared", f"-L{folder / 'libs'}", *(f"-l:{path.name}" for path in found), f"-Wl,-rpath,{folder / 'libs'}",
            "-Wl,-z,nodelete", "-Wl,--as-needed", "-s",
        ),
        identity=(version,),
    )  # fmt: skip


def _installed() -> Recipe:
    folder = openvino_folder()
    assert folder is not None, "asked for without OpenVINO"
    return _recipe(folder, version())


def built_adapter() -> Path | None:
    """Return the adapter that fits this OpenVINO, or None where it has not been built."""
    return _installed().built()


def build_adapter(*, force: bool = False) -> Path:
    """Build the adapter for this OpenVINO, unless it is there already, and return its path.

    It takes some 10 seconds and 500 MB of memory.

    Args:
        force: build even where an earlier attempt failed.

    Raises:
        ToolchainError: there is no C++ compiler.
        BuildError: the compiler refuses it; its words are in the message.
        UnsupportedError: this OpenVINO has no C++ headers.
    """
    return _installed().build(force=force)


@functools.cache
def _loaded(path: Path) -> OperatorTable:
    import openvino  # noqa: F401 - the adapter needs its libraries

    return OperatorTable(path, _WHAT, "opforge_openvino")


def adapter(path: Callable[[], Path] = build_adapter) -> tuple[Path, OperatorTable]:
    """Return the adapter's file and the adapter, built and loaded where it was not yet."""
    file = path()
    return file, _loaded(file)
