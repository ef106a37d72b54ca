"""Access to the compiled part of the package (``opforge._lib._native``), loaded on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from opforge._environment import check_runtime_variables, faults_reported
from opforge.errors import ToolchainError

__all__ = ["crc32c", "fault_of", "native"]


@cache
def native() -> Any:  # noqa: ANN401 - a compiled module
    """Return the compiled module, or say how to get it."""
    check_runtime_variables()
    try:
        return import_module("opforge._lib._native")
    except ImportError as error:
        raise ToolchainError(
            "the runtime of opforge is not built",
            where=str(Path(__file__).resolve().parent.parent / "_lib"),
            expected="the compiled module _native",
            got=str(error),
            hint="install the package with `pip install .`, or build the source tree with `make native`",
        ) from error


@contextmanager
def fault_of(what: str) -> Iterator[None]:
    """Have a fault that ends this process told as one of ``what``, where faults are reported.

    Args:
        what: such as "onnxruntime runs model.onnx"; kernels in sessions are told by themselves.
    """
    if not faults_reported():
        yield
        return
    native().report_faults_of(what.encode(errors="replace").decode())  # names of files are bytes
    try:
        yield
    finally:
        native().report_faults_of("")


def crc32c(data: Any, crc: int = 0) -> int:  # noqa: ANN401 - anything with a buffer
    """CRC-32C of a contiguous buffer, continuing from ``crc``."""
    return int(native().crc32c(data, crc))
