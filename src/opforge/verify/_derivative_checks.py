"""Checks of first and second derivatives, against finite differences of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opforge.errors import CheckFailure, OpforgeError
from opforge.schema import DType, GradientProgram, Operator, Parameter, f64, registry
from opforge.verify._announced import announce
from opforge.verify._gradient_checks import roomy
from opforge.verify._rows import Array, Row, label, widest
from opforge.verify.cases import Case, differentiable_cases, parameters
from opforge.verify.gradients import GradientResult, check_gradient, differentiated, grad_check, require_shapes
from opforge.verify.hosts import Host

__all__ = [
    "gradient",
    "second_derivative",
    "second_in_host",
    "twice_differentiable",
]

# Finite differences in float64 leave 1e-9 or so; a gradient computed in a narrower type has its own rounding.
_TOLERANCES = {"f64": 1e-6, "f32": 1e-3, "f16": 3e-2, "bf16": 1e-1}


def gradient(operator: Operator, host: Host, seed: int, count: int | None = None) -> Iterator[Row]:
    """First derivatives of the host against finite differences of the reference, in f64 where it is declared.

    Only the first ``count`` cases are tried, where it is given.
    """
    types = widest(operator)
    names = [dtype.name for dtype in types.values() if dtype.is_float]
    limit = max((_TOLERANCES[name] for name in names), default=_TOLERANCES["f64"])
    compared = 0
    for case, inputs in differentiable_cases(operator, types, seed)[:count]:
        try:
            rows = _rows(operator, host, case, inputs, types, seed, limit)
        except OpforgeError as problem:
            yield Row("gradient", case.name, host.name, label(types), False, str(problem))
            compared += 1
            continue
        compared += len(rows)
        yield from rows
    if not compared and any(dtype.is_float for dtype in types.values()):
        detail = "no case can be differentiated: give one with finite values and at least one element"
        yield Row("gradient", "", host.name, label(types), False, detail)


def _rows(
    operator: Operator,
    host: Host,
    case: Case,
    given: Sequence[Array | None],
    types: dict[str, DType],
    seed: int,
    limit: float,
) -> list[Row]:
    # Points move in float64; the host computes in the declared dtype.
    points = [v if v is None or v.dtype.kind in "biu" else v.astype(np.float64) for v in given]

    def forward(*values: Array | None) -> list[Array]:
        return differentiated(operator, values, case.attributes)

    def backward(
        values: Sequence[Array | None], _outputs: Sequence[Array], grads: Sequence[Array]
    ) -> list[Array | None]:
        own = [v if v is None or g is None else v.astype(g.dtype) for v, g in zip(values, given, strict=True)]
        out = [p.type for p in _output_parameters(operator, len(grads))]
        typed = [g.astype((types.get(t) or DType.parse(t)).numpy) for g, t in zip(grads, out, strict=True)]
        found = host.gradients(operator, own, typed, case.attributes)
        require_shapes(operator, found, own)
        return [None if v is None else v.astype(np.float64) for v in found]

    names = [parameter.name for parameter in parameters(operator, points)]
    announce("gradient", case.name, host.name, label(types))
    rows = []
    for result in check_gradient(forward, backward, names, points, seed=seed):
        good = result.error <= limit and result.masked < 1.0
        detail = ""
        if result.masked == 1.0:
            detail = "every output lies at a kink or is not finite here: choose other values in cases.py"
        elif not good:
            detail = (
                f"the derivative by {result.input} along a random direction is {result.analytic:.9g}, finite "
                f"differences of the reference give {result.numeric:.9g}{_guess(result.analytic, result.numeric)}"
            )
        rows.append(Row("gradient", f"{case.name}, {result.input}", host.name, label(types), good, detail))
    return rows


def _output_parameters(operator: Operator, count: int) -> list[Parameter]:
    """Return the parameter of each output tensor; the last one may be variadic."""
    declared = list(operator.signature.outputs)
    return declared[:count] + declared[-1:] * (count - len(declared))


def _guess(analytic: float, numeric: float) -> str:
    """Name the mistake behind simple ratios."""
    if analytic == 0.0 and abs(numeric) > 1e-6:
        return "; the gradient is missing or zero"
    if numeric and abs(analytic / numeric + 1.0) < 1e-6:
        return "; the sign is wrong"
    for factor in (2.0, 0.5, 4.0, 0.25):
        if numeric and abs(analytic / numeric - factor) < 1e-6:
            return f"; it is {factor:g} times what it should be"
    return ""


def second_derivative(operator: Operator, seed: int) -> Iterator[Row]:
    """Derivatives of the gradient operators against finite differences of the (checked) first derivatives."""
    if f64 not in widest(operator).values():
        return  # second differences drown in the rounding of narrower types
    try:
        rows = grad_check(operator, seed=seed, order=2)
    except CheckFailure as problem:
        yield Row("second derivative", "", "numpy", "f64", False, str(problem))
        return
    second = [row for row in rows if row.order == 2]
    yield Row("second derivative", f"{len(second)} directions", "numpy", "f64", True)


def second_in_host(operator: Operator, host: Host, seed: int, count: int) -> Iterator[Row]:
    """Second derivatives of a framework against finite differences of its first ones, in f64."""
    types = widest(operator)
    if host.second is None or f64 not in types.values():
        return
    for case, inputs in [p for p in differentiable_cases(operator, types, seed) if roomy(p[1])][:count]:
        announce("second derivative", case.name, host.name, label(types))
        try:
            results = _second_results(operator, host, case, inputs, seed)
        except OpforgeError as problem:
            # What says that it is differentiable once raises in the second pass, as it should.
            once = "once_differentiable" in str(problem)
            text = "declared once differentiable" if once else str(problem)
            yield Row("second derivative", case.name, host.name, label(types), once, text)
            return
        for result in results:
            good = result.error <= _TOLERANCES["f64"]
            detail = (
                f"the second derivative by {result.input} along a random direction is {result.analytic:.9g}, finite "
                f"differences of the first derivative give {result.numeric:.9g}"
                f"{_guess(result.analytic, result.numeric)}"
            )
            yield Row(
                "second derivative",
                f"{case.name}, {result.input}",
                host.name,
                label(types),
                good,
                "" if good else detail,
            )


def _second_results(
    operator: Operator, host: Host, case: Case, inputs: Sequence[Array | None], seed: int
) -> list[GradientResult]:
    second = host.second
    assert second is not None
    rng = np.random.default_rng([seed, 37])
    outputs = host.compute(operator, inputs, case.attributes)
    grads = [np.asarray(rng.standard_normal(out.shape)) for out in outputs]
    first = host.gradients(operator, inputs, grads, case.attributes)
    moved = [k for k, gradient in enumerate(first) if gradient is not None]

    def forward(*values: Array | None) -> list[Array]:
        found = host.gradients(operator, values, grads, case.attributes)
        return [np.asarray(found[k]) for k in moved]

    def gradient(
        values: Sequence[Array | None], _outputs: Sequence[Array], weights: Sequence[Array]
    ) -> list[Array | None]:
        placed: list[Array | None] = [None] * len(values)
        for k, weight in zip(moved, weights, strict=True):
            placed[k] = weight
        return second(operator, values, grads, placed, case.attributes)

    names = [parameter.name for parameter in parameters(operator, inputs)]
    return check_gradient(forward, gradient, names, inputs, seed=seed)


def twice_differentiable(operator: Operator) -> bool:
    """Whether every operator that the gradient program calls has a gradient itself."""
    if operator.gradient is None:
        return False
    program = GradientProgram.parse(operator.gradient, where=operator.qualified_name)
    return all(registry.get(s.domain, s.name, s.version).gradient is not None for s in program.steps)
