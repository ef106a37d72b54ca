"""Inputs of a run held against those of the model, in the same words for all engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from opforge.engines._protocol import Array, TensorInfo
from opforge.errors import ArgumentError, DtypeError
from opforge.schema.registry import nearest

__all__ = ["array_for", "array_of", "check_names"]


def check_names(given: Iterable[str], names: Sequence[str], where: str | None = None) -> None:
    """Check that ``given`` are exactly the inputs' names.

    Raises:
        ArgumentError: an unknown name (the nearest is named), or missing ones.
    """
    present = list(given)
    expected = ", ".join(map(repr, names))
    for name in present:
        if name not in names:
            near = nearest(str(name), names)
            hint = f"did you mean {near!r}?" if near else None
            raise ArgumentError("there is no such input", where=where, expected=expected, got=repr(name), hint=hint)
    missing = [name for name in names if name not in present]
    if missing:
        got = f"nothing for {', '.join(map(repr, missing))}"
        raise ArgumentError("inputs are missing", where=where, expected=expected, got=got)


def array_of(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401 - whatever NumPy makes an array of
    """Return an input as an array, which has the declared dtype.

    Raises:
        DtypeError: it has another one.
    """
    array = np.asarray(value)
    if array.dtype != info.dtype:
        raise DtypeError(
            "an input has the wrong dtype",
            where=f"input {info.name!r}",
            expected=info.dtype,
            got=array.dtype,
            hint="convert it with .astype(...)",
        )
    return array


def array_for(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401 - whatever NumPy makes an array of
    """Return an input as an array, which has the declared dtype and shape.

    Raises:
        DtypeError: it has another dtype.
        ArgumentError: it has another shape.
    """
    array = array_of(info, value)
    fits = len(array.shape) == len(info.shape) and all(
        not isinstance(wanted, int) or wanted == size for wanted, size in zip(info.shape, array.shape, strict=True)
    )
    if not fits:
        sizes = ", ".join("?" if wanted is None else str(wanted) for wanted in info.shape)
        raise ArgumentError(
            "an input has the wrong shape",
            where=f"input {info.name!r}",
            expected=f"{info.dtype}[{sizes}]",
            got=list(array.shape),
        )
    return array
