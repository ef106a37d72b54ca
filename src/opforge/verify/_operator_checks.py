"""Checks of an operator's declaration and of its values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from opforge.errors import SchemaError
from opforge.schema import DType, Operator, Signature, registry
from opforge.schema.gradient import GradientProgram
from opforge.verify import _variants
from opforge.verify._rows import Array, Row, choices, held
from opforge.verify.cases import Case, arrays, cases_of, limit_of, parameters
from opforge.verify.hosts import Host
from opforge.verify.sweep import drawn_cases, unruly

__all__ = ["boundary", "drawn", "in_mode", "schema", "values"]

_ROOM = 1e5
_OVERFLOWS = (
    f"; inputs up to {_ROOM:g} are right: an intermediate result overflows where float64 has room. Write the formula "
    "so that it does not (divide before multiplying), or say in cases.py up to where it holds: LIMITS"
)
_SPECIAL = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf}


def schema(operator: Operator) -> Iterator[Row]:
    """Signature, reference, cases, gradient program, registration."""

    def row(case: str, passed: bool, detail: str = "") -> Row:
        return Row("schema", case, "", "", passed, "" if passed else detail)

    text = str(operator.signature)
    yield row("signature", str(Signature.parse(text)) == text, f"{text} does not read back")
    has = operator.reference_function is not None
    yield row("reference", has, "there is no reference: declare reference=, a function over float64 NumPy arrays")
    try:
        yield row("cases", bool(cases_of(operator)), "CASES in cases.py is empty")
    except SchemaError as problem:
        yield row("cases", False, str(problem))
    if operator.gradient is not None:
        program = GradientProgram.parse(operator.gradient, where=operator.qualified_name)
        program.check(operator.signature, where=operator.qualified_name)
        yield row("gradient program", True)
    elif operator.differentiable:
        yield row("gradient program", False, "declared differentiable, but there is no gradient: give gradient=")
    # Loading a package twice must not hurt: hosts and notebooks do it.
    again = registry.register(operator)
    yield row("registered twice", again.schema_hash == operator.schema_hash, "a second registration differs")


def values(operator: Operator, host: Host, layout_cases: int, seed: int) -> Iterator[Row]:
    """Every case in every declared dtype, some in other layouts, against the float64 reference of the same inputs."""
    rows = []
    for types in choices(operator):
        laid_out = 0
        for case in cases_of(operator):
            inputs = arrays(operator, case, types, seed=seed)
            dense = held(operator, host, case, case.name, inputs, types, "values")
            rows.append(dense)
            if not dense.passed or laid_out >= layout_cases:
                continue
            laid_out += any(value is not None and value.size > 1 for value in inputs)
            for index, value in enumerate(inputs):
                if value is None:
                    continue
                for layout, other in _variants.layouts(value):
                    changed = [*inputs[:index], other, *inputs[index + 1 :]]
                    name = f"{case.name}, {parameters(operator, inputs)[index].name} {layout}"
                    row = held(operator, host, case, name, changed, types, "layouts")
                    hint = f"; dense arrays are right, so the strides of the {layout} one are not honoured"
                    rows.append(row if row.passed else row._replace(detail=row.detail + hint))
    yield from _with_hints(operator, rows)


def drawn(operator: Operator, host: Host, count: int, seed: int) -> Iterator[Row]:
    """Cases drawn from the schema, in every declared dtype."""
    missing = unruly(operator)
    if missing:
        text = f"no shapes are drawn: only the author knows which values {', '.join(missing)} may have"
        yield Row("drawn", "", host.name, "", True, f"{text}; say it by DRAWS in cases.py")
        return
    for types in choices(operator):
        for case in drawn_cases(operator, count, seed):
            inputs = arrays(operator, case, types, seed=seed)
            shapes = ", ".join("absent" if v is None else str(list(v.shape)) for v in inputs)
            yield held(operator, host, case, f"{case.name} {shapes}", inputs, types, "drawn")


def in_mode(operator: Operator, host: Host, count: int, seed: int) -> Iterator[Row]:
    """The first cases with elements, and the first without, by another way of calling the host."""
    for types in choices(operator):
        full: list[tuple[Case, list[Array | None]]] = []
        empty: list[tuple[Case, list[Array | None]]] = []
        for case in cases_of(operator):
            inputs = arrays(operator, case, types, seed=seed)
            (full if all(v is None or v.size for v in inputs) else empty).append((case, inputs))
        for case, inputs in [*full[: max(1, count - 1)], *empty[: count // 2]]:
            yield held(operator, host, case, case.name, inputs, types, "values")


def _with_hints(operator: Operator, rows: list[Row]) -> Iterator[Row]:
    """Say what usually is behind a dtype that fails where others pass."""
    good = {row.dtype for row in rows if row.check == "values"} - {row.dtype for row in rows if not row.passed}
    hints = {
        "f16": "f32 is right: are sums or products formed in half precision? compute in opforge::compute_t<T>",
        "bf16": "f32 is right: are sums or products formed in half precision? compute in opforge::compute_t<T>",
        "f64": "f32 is right: does something pass through float? compute in opforge::compute_t<T>",
    }
    for row in rows:
        first = row.dtype.partition(" ")[0]
        others = row.dtype.replace(first, "f32", 1)
        known = not row.passed and row.check == "values" and first in hints and others in good
        yield row._replace(detail=f"{row.detail}; {hints[first]}") if known and not operator.is_formula else row


def boundary(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    """NaN, infinities, zeros, denormals and large magnitudes; the reference says what is right.

    A formula meets them in one input after the other. A kernel operator meets NaN and infinities in the first and the
    last element of each floating input of its first case, but no NaN where it declares that it ignores it.
    """
    if operator.formula is not None:
        yield from _boundary_of_formula(operator, host)
    else:
        yield from _special_in_kernel(operator, host, seed)


def _boundary_of_formula(operator: Operator, host: Host) -> Iterator[Row]:
    attributes = next((case.attributes for case in cases_of(operator)), {})
    limit = limit_of(operator)
    for types in choices(operator):
        for index, parameter in enumerate(operator.signature.inputs):
            points = _variants.boundary_values(types[parameter.type], limit)
            inputs: list[Array | None] = [np.ones(points.shape, points.dtype) for _ in operator.signature.inputs]
            inputs[index] = points
            name = f"boundary of {parameter.name}"
            row = held(operator, host, Case("boundary", {}, attributes), name, inputs, types, "boundary")
            if not row.passed:
                # Only the largest numbers go wrong: an intermediate result has no room, where float64 has some.
                inputs[index] = _variants.boundary_values(types[parameter.type], _ROOM)
                if held(operator, host, Case("boundary", {}, attributes), name, inputs, types, "boundary").passed:
                    row = row._replace(detail=row.detail + _OVERFLOWS)
            yield row


def _special_in_kernel(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    special = {w: v for w, v in _SPECIAL.items() if w != "NaN" or operator.nan_policy == "propagate"}
    for types in choices(operator):
        case, inputs = _first_with_elements(operator, types, seed)
        if case is None:
            return
        for index, (parameter, value) in enumerate(zip(parameters(operator, inputs), inputs, strict=True)):
            dtype = types.get(parameter.type) or DType.parse(parameter.type)
            if value is None or value.size == 0 or not dtype.is_float:
                continue
            for word, (place, position) in product(special, (("first", 0), ("last", value.size - 1))):
                changed = value.copy()
                changed.reshape(-1)[position] = special[word]
                name = f"{case.name}, {word} {place} in {parameter.name}"
                row = held(
                    operator, host, case, name, [*inputs[:index], changed, *inputs[index + 1 :]], types, "boundary"
                )
                hint = "; comparisons with NaN are false: write them so that NaN arrives, or declare nan='ignore'"
                wrong = not row.passed and word == "NaN" and row.detail.startswith("output ")
                yield row._replace(detail=row.detail + hint) if wrong else row


def _first_with_elements(
    operator: Operator, types: dict[str, DType], seed: int
) -> tuple[Case | None, list[Array | None]]:
    for case in cases_of(operator):
        inputs = arrays(operator, case, types, seed=seed)
        if case.finite and any(value is not None and value.size for value in inputs):
            return case, inputs
    return None, []
