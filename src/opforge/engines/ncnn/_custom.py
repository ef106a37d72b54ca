"""Operators of ours as layers: their name in ncnn, what their parameters say, and their computation.

ncnn knows no domains, so a layer's kind is the operator's key with everything but letters and digits made ``_``.
Its tensors have neither dtype nor batch, so the parameters say for each what it holds and which form it has:

    0..19   attributes in the order of the declaration
    20      tensors per input parameter: 0 absent, 1 plain, n variadic
    21      dtype of each input tensor, DLPack's code * 256 + bits
    22      form of each input tensor, 23 of each output tensor, -1 = an output that nobody reads
    24      version of this layout

A form is 0 as the operator has it, 1 without its first axis, which has size 1, 2 an element for a tensor without axes.
An int or bool is a whole number; a float is written with a point, or, where it is none that ncnn can read (inf, nan),
as a list of one number, its bits; a string is a list of bytes; strings are a list of the count, then of each its length
and bytes; ints, bools, floats are lists, floats of their bits where one is inf or nan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from opforge.engines.ncnn._net import Array, Param, ints
from opforge.errors import CorruptFileError, UnsupportedError
from opforge.frameworks import numpy_host
from opforge.schema import DType, Operator
from opforge.schema.attributes import AttributeValue

__all__ = ["AS_IS", "LAYOUT", "MOST_ATTRIBUTES", "NO_AXES", "UNREAD", "WITHOUT_FIRST", "CustomLayer", "layer_kind"]

MOST_ATTRIBUTES: Final = 20
COUNTS, DTYPES, FORMS, RESULTS, LAYOUT_ID = 20, 21, 22, 23, 24
LAYOUT: Final = 1
AS_IS, WITHOUT_FIRST, NO_AXES, UNREAD = 0, 1, 2, -1


def layer_kind(key: str) -> str:
    """Name an operator ``domain::Name:version`` in ncnn."""
    return re.sub(r"[^0-9A-Za-z]+", "_", key)


@dataclass(frozen=True)
class CustomLayer:
    """One node of ours.

    Attributes:
        operator: what it computes.
        attributes: all of them, by name.
        counts: tensors per input parameter.
        dtypes: of each input tensor.
        forms: of each input tensor.
        results: form of each output tensor, UNREAD where it has no blob.
    """

    operator: Operator
    attributes: Mapping[str, AttributeValue]
    counts: tuple[int, ...]
    dtypes: tuple[DType, ...]
    forms: tuple[int, ...]
    results: tuple[int, ...]

    def params(self) -> dict[int, Param]:
        """Write the parameters.

        Raises:
            ValueError: an attribute has no form in them; the text says why.
        """
        declared = self.operator.signature.attributes
        if len(declared) > MOST_ATTRIBUTES:
            raise ValueError(f"{len(declared)} attributes; a layer has room for {MOST_ATTRIBUTES}")
        written = {k: _write(a.kind, self.attributes[a.name], a.name) for k, a in enumerate(declared)}
        codes = tuple(d.code * 256 + d.bits for d in self.dtypes)
        return {
            **written,
            COUNTS: self.counts,
            DTYPES: codes,
            FORMS: self.forms,
            RESULTS: self.results,
            LAYOUT_ID: LAYOUT,
        }

    @classmethod
    def read(cls, operator: Operator, params: Mapping[int, Param], where: str) -> CustomLayer:
        """Read the parameters of a layer.

        Raises:
            CorruptFileError: they are not those of this operator.
        """
        signature = operator.signature
        try:
            attributes = {a.name: _read(a.kind, params[k]) for k, a in enumerate(signature.attributes)}
            counts, codes = ints(params, COUNTS), ints(params, DTYPES)
            forms, results = ints(params, FORMS), ints(params, RESULTS)
            dtypes = tuple(DType.from_dlpack(code >> 8, code & 255) for code in codes)
            attributes = operator.coerce(attributes)
        except (KeyError, ValueError, TypeError, IndexError, UnicodeDecodeError) as problem:
            raise CorruptFileError(
                "the parameters are not those of the operator", where=where, expected=operator.key, got=str(problem)
            ) from None
        fits = len(counts) == len(signature.inputs) and sum(counts) == len(codes) == len(forms)
        fits = fits and all(form in (AS_IS, WITHOUT_FIRST, NO_AXES) for form in forms) and min(counts, default=0) >= 0
        if not fits or ints(params, LAYOUT_ID) != (LAYOUT,):
            expected = f"inputs of {operator.key}, layout {LAYOUT}"
            got = f"counts {counts}, {len(codes)} dtypes, {len(forms)} forms, layout {params.get(LAYOUT_ID)}"
            raise CorruptFileError("the layer's inputs are described wrongly", where=where, expected=expected, got=got)
        return cls(operator, attributes, counts, dtypes, forms, results)

    def compute(self, arrays: Sequence[Array], where: str) -> list[Array]:
        """Compute from arrays as ncnn has them, 4 bytes an element, to such arrays: those that are read.

        Raises:
            UnsupportedError: a result has a batch.
            OpforgeError: what the operator says of its inputs.
        """
        tensors = [_tensor(a, d, f) for a, d, f in zip(arrays, self.dtypes, self.forms, strict=True)]
        groups: list[Any] = []
        for parameter, count in zip(self.operator.signature.inputs, self.counts, strict=True):
            group, tensors = tensors[:count], tensors[count:]
            groups.append(tuple(group) if parameter.variadic else group[0] if group else None)
        found = numpy_host.call(self.operator, groups, self.attributes)
        values = found if isinstance(found, tuple) else (found,)
        made = []
        for value, form in zip(values, self.results, strict=True):
            if form == UNREAD:
                continue
            shape = value.shape[1:] if form == WITHOUT_FIRST else (1,) if form == NO_AXES else value.shape
            if form == WITHOUT_FIRST and value.shape[0] != 1:
                raise UnsupportedError(
                    "ncnn has no batch", where=where, expected="a first axis of size 1", got=list(value.shape)
                )
            made.append(np.ascontiguousarray(value).reshape(shape))
        return made


def _tensor(array: Array, dtype: DType, form: int) -> Array:
    typed = np.ascontiguousarray(array).view(dtype.numpy)
    return typed[None] if form == WITHOUT_FIRST else typed.reshape(()) if form == NO_AXES else typed


def _write(kind: str, value: AttributeValue, name: str) -> Param:
    if kind == "float":
        assert isinstance(value, (int, float))
        return float(value) if math.isfinite(value) else _bits([float(value)])
    if kind == "floats":
        assert isinstance(value, tuple)
        numbers = [float(v) for v in value]
        return tuple(numbers) if all(map(math.isfinite, numbers)) else _bits(numbers)
    if kind == "string":
        return tuple(str(value).encode())
    if kind == "strings":
        assert isinstance(value, tuple)
        texts = [str(v).encode() for v in value]
        return (len(texts), *(n for text in texts for n in (len(text), *text)))
    numbers_ = [int(v) for v in value] if isinstance(value, tuple) else [int(value)]
    if any(not -(2**31) <= v < 2**31 for v in numbers_):
        raise ValueError(f"the attribute {name} does not fit 32 bits")
    return tuple(numbers_) if isinstance(value, tuple) else numbers_[0]


def _bits(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(int(v) for v in np.asarray(values, np.float32).view(np.int32))


def _read(kind: str, param: Param) -> Any:  # noqa: ANN401 - as many types as attributes have
    values = param if isinstance(param, tuple) else (param,)
    if kind in ("float", "floats"):
        bits = isinstance(param, tuple) and bool(values) and all(isinstance(v, int) for v in values)
        floats = np.asarray(values, np.int32).view(np.float32) if bits else np.asarray(values, np.float32)
        return [float(v) for v in floats] if kind == "floats" else float(floats[0])
    if kind == "string":
        return bytes(int(v) for v in values).decode()
    if kind == "strings":
        count, rest = int(values[0]), list(values[1:])
        texts = []
        for _ in range(count):
            size = int(rest[0])
            texts.append(bytes(int(v) for v in rest[1 : size + 1]).decode())
            rest = rest[size + 1 :]
        return texts
    if kind in ("bool", "bools"):
        flags = [bool(v) for v in values]
        return flags if kind == "bools" else flags[0]
    numbers = [int(v) for v in values]
    return numbers if kind == "ints" else numbers[0]
