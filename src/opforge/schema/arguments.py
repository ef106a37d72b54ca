"""Arguments of a call: tensors brought to their parameters, and arrays for a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opforge.errors import ArgumentError, DtypeError
from opforge.schema.dtypes import DType
from opforge.schema.signature import Parameter, Signature

__all__ = ["argument_dtype", "arrange", "as_arrays", "call_text", "widened"]


def arrange(where: str, signature: Signature, tensors: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Bring positional and keyword tensors into one list with an entry per parameter.

    An absent optional is None; the variadic input is a tuple.

    Raises:
        ArgumentError: too many tensors, one given twice, or one missing.
    """
    result: list[Any] = []
    rest = list(tensors)
    for parameter in signature.inputs:
        if parameter.name in named:
            if rest:
                raise ArgumentError("input given twice", where=where, got=parameter.name)
            value = named[parameter.name]
            result.append(tuple(value) if parameter.variadic else value)
        elif parameter.variadic:
            if not rest:
                raise _wrong_count(where, signature, len(tensors) + len(named))
            result.append(tuple(rest))
            rest = []
        elif rest:
            result.append(rest.pop(0))
        else:
            result.append(None)
        if result[-1] is None and not parameter.optional:
            raise _wrong_count(where, signature, sum(value is not None for value in (*tensors, *named.values())))
    if rest:
        raise _wrong_count(where, signature, len(tensors) + len(named))
    return result


def _wrong_count(where: str, signature: Signature, got: int) -> ArgumentError:
    return ArgumentError("wrong number of inputs", where=where, expected=signature.expected_inputs(), got=got)


def argument_dtype(dtype: object, parameter: Parameter, types: Mapping[str, Sequence[DType]], where: str) -> DType:
    """Return the dtype of an argument.

    Raises:
        DtypeError: opforge has no such dtype (complex, text, objects); the message names argument and allowed ones.
    """
    try:
        return DType.parse(dtype)
    except DtypeError:
        allowed = types.get(parameter.type)
        raise DtypeError(
            "wrong dtype",
            where=f"{where}, argument {parameter.name}",
            expected=f"{parameter.type}: {', '.join(d.name for d in allowed)}" if allowed else parameter.type,
            got=getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype),
        ) from None


def widened(signature: Signature, arranged: Sequence[Any]) -> list[Any]:
    """Return arguments of a reference: floating arrays as float64, others as they are, a variadic input spread out."""
    inputs: list[Any] = []
    for parameter, value in zip(signature.inputs, arranged, strict=True):
        inputs.extend(_widen(value)) if parameter.variadic else inputs.append(_widen(value))
    return inputs


def _widen(value: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays or None
    import numpy

    if value is None or isinstance(value, tuple):
        return None if value is None else tuple(_widen(item) for item in value)
    array = numpy.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype(numpy.float64)


def as_arrays(result: Any) -> Any:  # noqa: ANN401 - an array or a tuple of them
    """Return what a reference gave as an array, or as a tuple of arrays."""
    import numpy

    if isinstance(result, tuple | list):
        return tuple(numpy.asarray(item) for item in result)
    return numpy.asarray(result)


def call_text(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    """Write the arguments of a reference for people: dtypes and shapes, and attributes."""
    tensors = ["None" if value is None else f"{value.dtype}{list(value.shape)}" for value in inputs]
    return ", ".join([*tensors, *(f"{name}={value!r}" for name, value in attributes.items())])
