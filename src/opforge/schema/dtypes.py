"""Element types: one table with every name and number by which hosts know them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import DtypeError

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ALL",
    "DECLARABLE",
    "DType",
    "bf16",
    "bool_",
    "f16",
    "f32",
    "f64",
    "floating",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "u8",
    "u16",
    "u32",
    "u64",
]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: short name used in signatures, e.g. ``f32``.
        code: DLPack type code.
        bits: DLPack bits of one element.
        long_name: name in NumPy and the frameworks, e.g. ``float32``.
        onnx: ``TensorProto.DataType`` number.
        cpp: C++ type name used in generated code.
    """

    name: str
    code: int
    bits: int
    long_name: str
    onnx: int
    cpp: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether it is a floating type (f16, bf16, f32, f64)."""
        return self.code in (_FLOAT, _BFLOAT)

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer type; bool is none."""
        return self.code in (_INT, _UINT)

    @property
    def is_bool(self) -> bool:
        """Whether it is bool."""
        return self.code == _BOOL

    @property
    def is_half(self) -> bool:
        """Whether it is a 16-bit floating type, which is computed in float32 and rounded once."""
        return self.is_float and self.bits == 16

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16 comes from ml_dtypes, which is imported only then."""
        import numpy

        if self.code == _BFLOAT:
            import ml_dtypes

            bfloat16: np.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return numpy.dtype(self.long_name)

    @classmethod
    def parse(cls, value: object) -> DType:
        """Find the dtype of a short or long name, a NumPy dtype or scalar type, or a framework's dtype.

        Raises:
            DtypeError: no element type of opforge is known by that value.
        """
        if isinstance(value, DType):
            return value
        found = _BY_NAME.get(_name_of(value))
        if found is None:
            raise DtypeError("unknown dtype", expected=_join([d.name for d in ALL]), got=repr(value))
        return found

    @classmethod
    def from_onnx(cls, number: int) -> DType:
        """Find the dtype of a ``TensorProto.DataType`` number.

        Raises:
            DtypeError: the number is of no dtype that opforge has.
        """
        for dtype in ALL:
            if dtype.onnx == number:
                return dtype
        raise DtypeError("unknown ONNX dtype", expected=_join([f"{d.onnx} ({d.name})" for d in ALL]), got=number)

    @classmethod
    def from_dlpack(cls, code: int, bits: int) -> DType:
        """Find the dtype of a DLPack code and number of bits.

        Raises:
            DtypeError: the pair is of no dtype that opforge has.
        """
        for dtype in ALL:
            if (dtype.code, dtype.bits) == (code, bits):
                return dtype
        raise DtypeError("unknown DLPack dtype", got=f"code {code}, {bits} bits")

    def __str__(self) -> str:
        """Give the short name."""
        return self.name

    def __repr__(self) -> str:
        """Give the public name, e.g. ``opforge.f32``."""
        return f"opforge.{'bool_' if self.name == 'bool' else self.name}"


_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

f16: Final = DType("f16", _FLOAT, 16, "float16", 10, "_Float16")
bf16: Final = DType("bf16", _BFLOAT, 16, "bfloat16", 16, "opforge::bf16")
f32: Final = DType("f32", _FLOAT, 32, "float32", 1, "float")
f64: Final = DType("f64", _FLOAT, 64, "float64", 11, "double")
i8: Final = DType("i8", _INT, 8, "int8", 3, "int8_t")
u8: Final = DType("u8", _UINT, 8, "uint8", 2, "uint8_t")
i16: Final = DType("i16", _INT, 16, "int16", 5, "int16_t")
u16: Final = DType("u16", _UINT, 16, "uint16", 4, "uint16_t")
i32: Final = DType("i32", _INT, 32, "int32", 6, "int32_t")
u32: Final = DType("u32", _UINT, 32, "uint32", 12, "uint32_t")
i64: Final = DType("i64", _INT, 64, "int64", 7, "int64_t")
u64: Final = DType("u64", _UINT, 64, "uint64", 13, "uint64_t")
bool_: Final = DType("bool", _BOOL, 8, "bool", 9, "bool")

ALL: Final[tuple[DType, ...]] = (f16, bf16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, bool_)
"""Every element type."""

DECLARABLE: Final[tuple[DType, ...]] = (f16, bf16, f32, f64, i8, u8, i32, i64, bool_)
"""The types that a declared operator may take; the others occur in models only."""

floating: Final[tuple[DType, ...]] = (f16, bf16, f32, f64)
"""The floating types."""

index: Final[tuple[DType, ...]] = (i32, i64)
"""The types of indices."""

_BY_NAME: Final[dict[str, DType]] = {d.name: d for d in ALL} | {d.long_name: d for d in ALL} | {"bool_": bool_}


def _name_of(value: object) -> str:
    """Reduce a framework's dtype to its bare name, without importing the framework."""
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None)  # np.dtype, tf.DType
    if not isinstance(name, str):
        name = value.__name__ if isinstance(value, type) else str(value)  # np.float32; torch.float32
    return name.rpartition(".")[2]


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
