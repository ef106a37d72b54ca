"""The native adapter: one library of custom operators (and an execution provider) for every ONNX Runtime."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

from opforge._paths import library_dir
from opforge.build.native import native_file
from opforge.engines._table import OperatorTable

__all__ = ["adapter", "adapter_path"]

_WHAT: Final = "ONNX Runtime adapter"


def adapter_path() -> Path:
    """Return the file that ONNX Runtime loads.

    Raises:
        MissingOperatorError: this installation lacks it.
    """
    return native_file(library_dir() / "libopforge_onnxruntime.so", _WHAT)


@functools.cache
def adapter() -> OperatorTable:
    """Return the adapter, loading it on the first call."""
    return OperatorTable(adapter_path(), _WHAT, "opforge_onnxruntime")
