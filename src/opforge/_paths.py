"""Where the installed package (or the source tree) keeps its headers and native libraries."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cmake_dir", "include_dir", "library_dir", "runtime_library"]

_PACKAGE = Path(__file__).resolve().parent


def include_dir() -> Path:
    """Return the folder that holds ``opforge/abi.h``."""
    installed = _PACKAGE / "include"
    return installed if installed.is_dir() else _PACKAGE.parent.parent / "include"


def cmake_dir() -> Path:
    """Return the folder of ``opforge-config.cmake``: what ``find_package(opforge)`` is given as ``opforge_DIR``."""
    return _PACKAGE / "cmake"


def library_dir() -> Path:
    """Return the folder of libopforge, the Python binding, ``opforge-run`` and the adapters."""
    return _PACKAGE / "_lib"


def runtime_library() -> Path:
    """Return the path of libopforge.so (whether it exists is for the caller to check)."""
    return library_dir() / "libopforge.so"
