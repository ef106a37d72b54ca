"""What stands behind the launcher in a library of kernels that NVRTC compiled: a table, and the images.

``adapters/launcher/library.cpp`` reads it. Numbers are little-endian; a string is its size in 32 bits, its bytes and a
zero, a list its length in 32 bits and its items.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from opforge.build import abi
from opforge.codegen.cpp import program_of
from opforge.codegen.cuda import FormulaKernels
from opforge.schema.dtypes import DType
from opforge.schema.operator import Operator

__all__ = ["BuiltKernel", "payload"]

_MAGIC: Final = b"OPFORGEK"
_VERSION: Final = 1
_ALIGNMENT: Final = 16


@dataclass(frozen=True)
class BuiltKernel:
    """The kernels of a formula operator for one choice of dtypes.

    Attributes:
        dtypes: of the type variables.
        kernels: what was compiled.
        names: of the functions in every image, in the order of ``kernels.names``.
        images: machine code by architecture, then PTX by architecture, each from the oldest to the newest.
    """

    dtypes: tuple[DType, ...]
    kernels: FormulaKernels
    names: tuple[str, ...]
    images: Mapping[str, bytes]


def payload(
    facts: Sequence[str], rows: Iterable[tuple[Operator, Sequence[BuiltKernel]]], architectures: Sequence[str]
) -> bytes:
    """Return the bytes that go behind the launcher, trailer included.

    Args:
        facts: id, version, content hash and build of the library.
        rows: its operators with their kernels.
        architectures: what it embeds.
    """
    out = _Fields()
    out.number("<I", abi.ABI)
    for text in (*facts, " ".join(architectures)):
        out.text(text)
    every = list(rows)
    out.number("<I", len(every))
    for operator, built in every:
        _operator(out, operator, built)
    content = bytes(out.data)
    return content + _MAGIC + struct.pack("<IIQ", _VERSION, zlib.crc32(content), len(content))


def _operator(out: _Fields, operator: Operator, built: Sequence[BuiltKernel]) -> None:
    out.text(operator.domain)
    out.text(operator.name)
    out.number("<iI", operator.since_version, operator.flags)
    for text in (
        str(operator.signature),
        operator.types_text,
        operator.autocast,
        operator.gradient or "",
        operator.schema_hash,
    ):
        out.text(text)
    program = program_of(operator)
    sums = [-1 if output.sum_to is None else output.sum_to for output in program.outputs]
    out.number("<I", abi.KERNEL_STRIDED if operator.strided else 0)
    out.number("<III", len(program.inputs), len(program.attributes), len(sums))
    out.number(f"<{len(sums)}i", *sums)
    out.number("<I", len(built))
    for one in built:
        _kernel(out, one)


def _kernel(out: _Fields, built: BuiltKernel) -> None:
    kernels = built.kernels
    out.number("<I", len(built.dtypes))
    for dtype in (*built.dtypes, *kernels.inputs, *kernels.outputs):
        out.number("<BBH", dtype.code, dtype.bits, 1)
    out.number("<II", kernels.widest, kernels.sum_bytes)
    out.number("<I", len(built.names))
    for name in built.names:
        out.text(name)
    out.number("<I", len(built.images))
    for architecture, image in built.images.items():
        out.text(architecture)
        out.number("<Q", len(image))
        out.data += bytes(-len(out.data) % _ALIGNMENT)
        out.data += image


class _Fields:
    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, form: str, *values: int) -> None:
        self.data += struct.pack(form, *values)

    def text(self, text: str) -> None:
        content = text.encode()
        self.data += struct.pack("<I", len(content)) + content + b"\0"
