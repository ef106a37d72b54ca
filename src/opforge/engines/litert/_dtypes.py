"""Element types: the numbers that a .tflite file and LiteRT have for them beside ours."""

from __future__ import annotations

from typing import Final

from opforge.errors import DtypeError
from opforge.schema import DType

__all__ = ["FILE_NUMBERS", "NUMBERS", "dtype_of_file", "name_of_file"]

_ROWS: Final = (
    ("f32", 0, 1),
    ("f16", 1, 10),
    ("i32", 2, 2),
    ("u8", 3, 3),
    ("i64", 4, 4),
    ("bool", 6, 6),
    ("i16", 7, 7),
    ("i8", 9, 9),
    ("f64", 10, 11),
    ("u64", 12, 13),
    ("u32", 15, 16),
    ("u16", 16, 17),
    ("bf16", 18, 19),
)
"""Ours, the schema's TensorType, LiteRtElementType."""

_OTHERS: Final = {5: "string", 8: "complex64", 11: "complex128", 13: "resource", 14: "variant", 17: "int4"}

FILE_NUMBERS: Final = {name: number for name, number, _ in _ROWS}
"""Our name -> TensorType of a file."""

NUMBERS: Final = {name: number for name, _, number in _ROWS}
"""Our name -> LiteRtElementType."""

_BY_FILE: Final = {number: name for name, number, _ in _ROWS}


def dtype_of_file(number: int, where: str) -> DType:
    """Return the dtype of a TensorType.

    Raises:
        DtypeError: NumPy has no arrays of it.
    """
    if number not in _BY_FILE:
        raise DtypeError("tensors of this type cannot be passed", where=where, got=name_of_file(number))
    return DType.parse(_BY_FILE[number])


def name_of_file(number: int) -> str:
    """Name a TensorType."""
    return _BY_FILE.get(number) or _OTHERS.get(number, f"type {number}")
