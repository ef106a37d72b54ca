"""manifest.json: a library's table as JSON, for tools that must not load native code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opforge.build import abi
from opforge.build.library import LibraryKernel, LibraryOperator, LoadedLibrary
from opforge.schema.dtypes import DType

__all__ = ["manifest"]

_FLAGS = {
    "pure": abi.OPERATOR_PURE,
    "deterministic": abi.OPERATOR_DETERMINISTIC,
    "differentiable": abi.OPERATOR_DIFFERENTIABLE,
    "formula": abi.OPERATOR_FORMULA,
    "gradient": abi.OPERATOR_GRADIENT,
}


def manifest(library: LoadedLibrary, sources: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the table as plain data. `sources` maps each author's file, ``operator/file``, to its SHA-256."""
    return {
        "manifest": 1,
        "abi": abi.ABI,
        "id": library.id,
        "version": library.version,
        "library": library.path.name if library.path else None,
        "content_hash": library.content_hash,
        "build": library.build,
        "architectures": list(library.architectures),
        "sources": dict(sources or {}),
        "operators": [_operator(row) for row in library.operators.values()],
    }


def _operator(row: LibraryOperator) -> dict[str, Any]:
    return {
        "domain": row.domain,
        "name": row.name,
        "since_version": row.since_version,
        "flags": [name for name, bit in _FLAGS.items() if row.flags & bit],
        "signature": row.signature,
        "types": row.types,
        "autocast": row.autocast,
        "gradient": row.gradient,
        "schema_hash": row.schema_hash,
        "kernels": [_kernel(kernel) for kernel in row.kernels],
    }


def _kernel(kernel: LibraryKernel) -> dict[str, Any]:
    return {
        "device": abi.DEVICE_NAMES.get(kernel.device_type, str(kernel.device_type)),
        "dtypes": [DType.from_dlpack(code, bits).name for code, bits in kernel.dtypes],
        "strided": bool(kernel.flags & abi.KERNEL_STRIDED),
        "inplace": [list(pair) for pair in kernel.inplace],
    }
