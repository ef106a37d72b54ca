"""The checks of one operator; each yields rows (check, case, host, dtype, passed, detail)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from opforge.errors import CheckFailure, OpforgeError
from opforge.schema import DType, Operator, Signature, f64, i64
from opforge.schema.gradient import GradientProgram
from opforge.verify import _variants
from opforge.verify._measures import measure
from opforge.verify.cases import Case, arrays, cases_of, tolerance
from opforge.verify.gradients import check_gradient, grad_check
from opforge.verify.hosts import Host

__all__ = ["boundary", "gradient", "schema", "second_derivative", "values"]

Row = tuple[str, str, str, str, bool, str]
Array = np.ndarray[Any, Any]
_GRADIENT_TOLERANCE = 1e-6


def schema(operator: Operator) -> Iterator[Row]:
    """Signature, reference, gradient program."""
    text = str(operator.signature)
    same = str(Signature.parse(text)) == text
    yield "schema", "signature", "", "", same, "" if same else f"{text} does not read back"
    has = operator.reference_function is not None
    yield "schema", "reference", "", "", has, "" if has else "no reference: declare reference="
    if operator.gradient is not None:
        program = GradientProgram.parse(operator.gradient, where=operator.qualified_name)
        program.check(operator.signature, where=operator.qualified_name)
        yield "schema", "gradient program", "", "", True, ""
    elif operator.differentiable:
        yield "schema", "gradient program", "", "", False, "declared differentiable, but there is no gradient"


def _choices(operator: Operator) -> Iterator[dict[str, DType]]:
    names = list(operator.types)
    for choice in product(*operator.types.values()):
        yield dict(zip(names, choice, strict=True))


def _label(types: Mapping[str, DType]) -> str:
    return " ".join(dtype.name for dtype in types.values())


def values(operator: Operator, host: Host, level: str, seed: int) -> Iterator[Row]:
    """Every case in every declared dtype and in other layouts, against the float64 reference of the same inputs."""
    cases = cases_of(operator)
    for types in _choices(operator):
        for case in cases:
            inputs = arrays(operator, case, types, seed=seed)
            yield _held(operator, host, case, case.name, inputs, types)
            if level == "quick":
                continue
            for index, value in enumerate(inputs):
                if value is None:
                    continue
                for layout, other in _variants.layouts(value):
                    changed = [*inputs[:index], other, *inputs[index + 1 :]]
                    name = f"{case.name}, {operator.signature.inputs[index].name} {layout}"
                    yield _held(operator, host, case, name, changed, types)


def _held(
    operator: Operator,
    host: Host,
    case: Case,
    name: str,
    inputs: list[Array | None],
    types: Mapping[str, DType],
    check: str = "values",
) -> Row:
    try:
        with np.errstate(all="ignore"):
            reference = operator.reference(*inputs, **case.attributes)
        expected = list(reference) if isinstance(reference, tuple) else [reference]
        got = host.compute(operator, inputs, case.attributes)
    except OpforgeError as problem:
        return check, name, host.name, _label(types), False, str(problem)
    worst = ""
    passed = len(got) == len(expected)
    for result, right in zip(got, expected, strict=False):
        limit = tolerance(operator, DType.parse(result.dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            # What overflows in the result's dtype is right as an infinity.
            rounded = np.where(
                np.isfinite(np.asarray(right).astype(result.dtype).astype(np.float64)),
                right,
                np.asarray(right).astype(result.dtype),
            )
        d = measure(result, np.asarray(rounded, np.float64), rtol=limit.rtol, atol=limit.atol)
        if not d.passed:
            passed = False
            worst = (
                f"shape {result.shape}, expected {np.shape(right)}"
                if not d.same_shape
                else "NaN or infinity at other places than the reference"
                if not d.same_pattern
                else f"max |error| {d.max_abs:.3g} at {d.worst}, allowed {limit.atol:g} + {limit.rtol:g}*|expected| ({limit.reason})"
            )
    return check, name, host.name, _label(types), passed, worst


def boundary(operator: Operator, host: Host) -> Iterator[Row]:
    """Formulas at NaN, infinities, zeros, denormals and large magnitudes, one input after the other."""
    if operator.formula is None:
        return
    for types in _choices(operator):
        for index, parameter in enumerate(operator.signature.inputs):
            points = _variants.boundary_values(types[parameter.type])
            inputs: list[Array | None] = [np.ones(points.shape, points.dtype) for _ in operator.signature.inputs]
            inputs[index] = points
            yield _held(
                operator, host, Case("boundary", {}), f"boundary of {parameter.name}", inputs, types, "boundary"
            )


def _f64_types(operator: Operator) -> dict[str, DType]:
    return {
        n: f64 if f64 in allowed else i64 if i64 in allowed else allowed[0] for n, allowed in operator.types.items()
    }


def gradient(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    """First derivatives of the host in float64 against finite differences of the reference."""
    types = _f64_types(operator)
    for case in cases_of(operator):
        if not case.finite:
            continue
        inputs = arrays(operator, case, types, seed=seed)

        def forward(*points: Array | None, case: Case = case) -> list[Array]:
            with np.errstate(all="ignore"):
                result = operator.reference(*points, **case.attributes)
            return list(result) if isinstance(result, tuple) else [result]

        try:
            rows = check_gradient(
                forward,
                lambda points, _outputs, grads, case=case: host.gradients(operator, points, grads, case.attributes),  # type: ignore[misc]
                [p.name for p in operator.signature.inputs],
                inputs,
                seed=seed,
            )
        except OpforgeError as problem:
            yield "gradient", case.name, host.name, _label(types), False, str(problem)
            continue
        for row in rows:
            good = row.error <= _GRADIENT_TOLERANCE
            detail = "" if good else f"by {row.input}: {row.analytic:.10g}, finite differences {row.numeric:.10g}"
            yield "gradient", f"{case.name}, {row.input}", host.name, _label(types), good, detail


def second_derivative(operator: Operator, seed: int) -> Iterator[Row]:
    """Derivatives of the gradient operators against finite differences of the (checked) first derivatives."""
    try:
        rows = grad_check(operator, seed=seed, order=2)
    except CheckFailure as problem:
        yield "second derivative", "", "numpy", "f64", False, str(problem)
        return
    yield "second derivative", f"{len(rows)} directions", "numpy", "f64", True, ""
