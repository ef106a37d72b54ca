"""NumPy arrays as a host: for constant folding, checks, and trying an operator without a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opforge.build import LoadedLibrary, abi, library_for
from opforge.build.invoke import Array, invoke
from opforge.errors import DtypeError
from opforge.schema import ABSENT
from opforge.schema.arguments import argument_dtype
from opforge.schema.dtypes import DType, f64, i64
from opforge.schema.operator import Operator

__all__ = ["call"]


def call(
    operator: Operator,
    tensors: Sequence[Any],
    attributes: Mapping[str, object],
    *,
    library: LoadedLibrary | None = None,
    device: int = abi.DEVICE_CPU,
) -> Any:  # noqa: ANN401
    """Compute `operator` with its compiled (or interpreted) kernel.

    Args:
        operator: what to compute.
        tensors: per input parameter an array, a number, None (absent optional) or a tuple (variadic).
        attributes: as the caller gave them.
        library: holds the kernel; None = the one that is built, or interpreted, for the operator.
        device: type of device of the kernel, one that reads the host's memory: the CPU, or an emulated one.

    Returns:
        One array, or a tuple where the signature has several outputs. Inputs are never written or aliased.

    Raises:
        ArgumentError: wrong count, rank, dimension or value.
        DtypeError: wrong dtype.
    """
    groups = _arrays(operator, tensors)
    flat = [array for group in groups for array in group]
    binding = operator.bind(
        [ABSENT if array is None else array.shape for array in flat],
        _dtypes(operator, groups),
        attributes,
    )
    row = (library or library_for([operator])).operator(operator.key)
    choice = tuple((d.code, d.bits) for d in (_type_of(operator, v, binding.types) for v in operator.types))
    outputs, position = [], 0
    for count in binding.output_counts:
        rows = zip(binding.output_shapes[position:], binding.output_dtypes[position:], strict=True)
        outputs.append([(_shape(shape), dtype or f64) for (shape, dtype), _ in zip(rows, range(count), strict=False)])
        position += count
    results = invoke(
        row.kernel_for(choice, device),
        [[array for array in group if array is not None] for group in groups],
        outputs,
        [(a.kind, binding.attributes[a.name]) for a in operator.signature.attributes],
        operator.key,
    )
    return results[0] if len(operator.signature.outputs) == 1 and len(results) == 1 else tuple(results)


def _shape(shape: Sequence[int | None] | None) -> Sequence[int] | None:
    if shape is None:
        return None
    known = [d for d in shape if d is not None]
    return known if len(known) == len(shape) else None


def _type_of(operator: Operator, variable: str, types: Mapping[str, DType]) -> DType:
    if variable not in types:
        raise DtypeError("the dtype is not known from the inputs", where=operator.key, expected=variable)
    return types[variable]


def _arrays(operator: Operator, tensors: Sequence[Any]) -> list[list[Array | None]]:
    """Turn everything into arrays in native byte order; a Python number takes the dtype of its type variable."""
    groups = [list(value) if isinstance(value, tuple) else [value] for value in tensors]
    known: dict[str, np.dtype[Any]] = {}
    for parameter, group in zip(operator.signature.inputs, groups, strict=True):
        for value in group:
            if value is not None and not _is_weak(value):
                known.setdefault(parameter.type, np.asarray(value).dtype)
    result: list[list[Array | None]] = []
    for parameter, group in zip(operator.signature.inputs, groups, strict=True):
        fallback = parameter.dtype.numpy if parameter.dtype else None
        made: list[Array | None] = []
        for value in group:
            weak = _is_weak(value)
            dtype = (known.get(parameter.type) or fallback or _default(operator, parameter.type)) if weak else None
            made.append(None if value is None else _native(np.asarray(value, dtype)))
        result.append(made)
    return result


def _dtypes(operator: Operator, groups: list[list[Array | None]]) -> list[DType | None]:
    """The dtypes of the arrays; one that opforge has not (complex, text, objects) names its argument."""
    return [
        None if array is None else argument_dtype(array.dtype, parameter, operator.types, operator.qualified_name)
        for parameter, group in zip(operator.signature.inputs, groups, strict=True)
        for array in group
    ]


def _is_weak(value: object) -> bool:
    """Whether it is a Python number or a list of them; np.float64 is a subclass of float, yet has a dtype."""
    return type(value) in (bool, int, float, list)


def _default(operator: Operator, variable: str) -> np.dtype[Any] | None:
    """Where no array decides, numbers are f64 or i64 if the operator takes them."""
    for dtype in (f64, i64):
        if dtype in operator.types.get(variable, ()):
            return dtype.numpy
    return None


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
