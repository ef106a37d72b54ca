"""What the checks of an operator share: rows, choices of dtypes, calls against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from opforge.errors import OpforgeError
from opforge.schema import DType, Operator, f64, i64
from opforge.verify._announced import announce
from opforge.verify._measures import explain, measure
from opforge.verify.cases import Case, Tolerance, tolerance
from opforge.verify.hosts import Host

__all__ = ["Array", "Row", "choices", "held", "label", "reference", "same_bits", "widest"]

Array = np.ndarray[Any, Any]


class Row(NamedTuple):
    """One check of one case."""

    check: str
    case: str
    host: str
    dtype: str
    passed: bool
    detail: str = ""


def choices(operator: Operator) -> Iterator[dict[str, DType]]:
    """Yield every choice of dtypes for the type variables."""
    names = list(operator.types)
    for choice in product(*operator.types.values()):
        yield dict(zip(names, choice, strict=True))


def widest(operator: Operator) -> dict[str, DType]:
    """Return the choice with f64 and i64 where they are declared; that is where gradients are checked."""
    wide = {}
    for name, allowed in operator.types.items():
        floats = [d for d in allowed if d.is_float]
        wide[name] = f64 if f64 in allowed else i64 if i64 in allowed else (floats or list(allowed))[-1]
    return wide


def label(types: Mapping[str, DType]) -> str:
    """Name a choice in a row."""
    return " ".join(dtype.name for dtype in types.values())


def reference(operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    """Compute the float64 reference, as a list."""
    with np.errstate(all="ignore"):
        result = operator.reference(*inputs, **attributes)
    return list(result) if isinstance(result, tuple) else [result]


def held(
    operator: Operator,
    host: Host,
    case: Case,
    name: str,
    inputs: Sequence[Array | None],
    types: Mapping[str, DType],
    check: str,
    limits: Mapping[str, Tolerance] | None = None,
) -> Row:
    """Compute in the host, and hold the result against the reference of the same inputs.

    ``limits`` are tolerances by dtype, in place of the operator's own.
    """

    def row(passed: bool, detail: str = "") -> Row:
        return Row(check, name, host.name, label(types), passed, detail)

    announce(check, name, host.name, label(types))
    try:
        expected = reference(operator, inputs, case.attributes)
        got = host.compute(operator, inputs, case.attributes)
    except OpforgeError as problem:
        return row(False, str(problem))
    if len(got) != len(expected):
        return row(False, f"{len(got)} outputs, the reference gives {len(expected)}")

    def wandering() -> str:
        """A wrong value that a second equal call does not give is another kind of fault."""
        try:
            found = same_bits(got, host.compute(operator, inputs, case.attributes))
        except OpforgeError as problem:
            return f"; a second equal call fails: {problem}"
        return f"; it is not deterministic: of two equal calls {found}" if found else ""

    outputs = operator.signature.outputs
    for parameter, result, right in zip(
        (*outputs, *outputs[-1:] * (len(got) - len(outputs))), got, expected, strict=False
    ):
        dtype = types.get(parameter.type) or DType.parse(parameter.type)
        if result.dtype != dtype.numpy:
            return row(False, f"output {parameter.name} is {result.dtype}, declared {dtype.name}")
        limit = (limits or {}).get(dtype.name) or tolerance(operator, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            # What overflows in the result's dtype is right as an infinity; around that limit either is.
            narrow = np.asarray(right).astype(result.dtype).astype(np.float64)
        rounded = np.where(np.isfinite(narrow), np.asarray(right, np.float64), narrow)
        difference = measure(result, rounded, rtol=limit.rtol, atol=limit.atol)
        if not difference.passed:
            allowed = f"allowed {limit.atol:g} + {limit.rtol:g}*|expected| ({limit.reason})"
            if limit.reason.startswith("default"):
                allowed += "; TOLERANCES in cases.py sets another limit, with its reason"
            text = explain(difference, np.asarray(result, np.float64), rounded, (limit.rtol, limit.atol))
            only_values = difference.same_shape and difference.same_pattern
            return row(
                False, f"output {parameter.name}: {text}" + (f"; {allowed}" if only_values else "") + wandering()
            )
    return row(True)


def same_bits(a: Sequence[Array], b: Sequence[Array]) -> str:
    """Say where two results differ in bits ("" = nowhere); any NaN equals any NaN."""
    for index, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.shape != y.shape:
            return f"output {index} has the shapes {x.shape} and {y.shape}"
        wide = np.asarray(x, np.float64), np.asarray(y, np.float64)
        equal = (wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1]))
        wrong = ~(equal | (np.isnan(wide[0]) & np.isnan(wide[1])))
        if wrong.any():
            place = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
            count = int(np.count_nonzero(wrong))
            values = f"{wide[0][place]:.17g}, then {wide[1][place]:.17g}"
            return f"{count} of {wrong.size} elements differ, at {list(place)}: {values}"
    return ""
