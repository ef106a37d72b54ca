"""Gradients against finite differences: directional, extrapolated, in float64, away from kinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opforge.errors import CheckFailure
from opforge.schema import Operator, f64, i64
from opforge.verify._announced import announce
from opforge.verify._executed import executed, output_list
from opforge.verify.cases import differentiable_cases, parameters, surrogate

__all__ = ["GradientResult", "backward", "check_gradient", "differentiated", "grad_check", "require_shapes"]

Array = np.ndarray[Any, Any]
_STEPS = (2.0**-10, 2.0**-11, 2.0**-12)


@dataclass(frozen=True)
class GradientResult:
    """One directional derivative: by the gradient operators, and by finite differences.

    Attributes:
        input: name of the input that was moved.
        analytic: sum of gradient times direction.
        numeric: extrapolated central difference.
        error: |analytic - numeric| / max(1, |numeric|).
        masked: share of the output left out because a kink lies within the step.
        order: 1, or 2 for a derivative of a gradient operator.
    """

    input: str
    analytic: float
    numeric: float
    error: float
    masked: float
    order: int = 1


def backward(
    operator: Operator,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    grads: Sequence[Array],
    attributes: Mapping[str, Any],
) -> list[Array | None]:
    """Run the operator's gradient program on NumPy arrays; one gradient per input tensor, None where there is none.

    Raises:
        UnsupportedError: the operator is not differentiable.
        CheckFailure: a gradient has another shape than its input.
    """
    found, _ = executed(operator, inputs, outputs, grads, attributes)
    require_shapes(operator, found, inputs)
    return found


def require_shapes(operator: Operator, found: Sequence[Array | None], inputs: Sequence[Array | None]) -> None:
    """Raise CheckFailure unless each gradient has the shape of its input, before anything can hide it."""
    for parameter, value, source in zip(parameters(operator, inputs), found, inputs, strict=True):
        if value is not None and source is not None and value.shape != source.shape:
            raise CheckFailure(
                f"the gradient of {parameter.name!r} has the wrong shape",
                where=operator.qualified_name,
                expected=source.shape,
                got=value.shape,
                hint="sum it over the broadcast dimensions",
            )


def check_gradient(
    forward: Callable[..., Sequence[Array]],
    gradient: Callable[[Sequence[Array | None], Sequence[Array], Sequence[Array]], Sequence[Array | None]],
    names: Sequence[str],
    inputs: Sequence[Array | None],
    *,
    seed: int = 0,
) -> list[GradientResult]:
    """Compare ``gradient`` with differences of ``forward`` along one random direction per floating input.

    The step is 2^-10 of each element's size; central differences at h and h/2 are extrapolated, which leaves an
    error of order h^4. Output elements with a kink within the step do not count.

    Args:
        forward: float64 arrays to the list of outputs.
        gradient: (inputs, outputs, output gradients) to one gradient per input, None where there is none.
        names: of the inputs.
        inputs: float64 arrays, integer arrays, None.
        seed: of the directions.
    """
    rng = np.random.default_rng([seed, 7])
    base = forward(*inputs)
    results = []
    for index, value in enumerate(inputs):
        if value is None or value.dtype != np.float64 or value.size == 0:
            continue
        direction = rng.uniform(0.5, 1.0, value.shape) * rng.choice([-1.0, 1.0], value.shape)
        scale = np.maximum(np.abs(value), 1.0) * direction

        def moved(h: float, index: int = index, value: Array = value, scale: Array = scale) -> Sequence[Array]:
            changed = list(inputs)
            changed[index] = value + h * scale
            return forward(*changed)

        pairs = [(moved(h), moved(-h)) for h in _STEPS]
        weights: list[Array] = []
        numeric, left_out, count = 0.0, 0, 0
        for k, out in enumerate(base):
            if out.dtype.kind != "f":  # indices and masks: piecewise constant, without gradient
                weights.append(np.zeros(out.shape))
                continue
            around = [(up[k], down[k]) for up, down in pairs]
            slope, smooth = _slope(out, around)
            weight = np.where(smooth, rng.standard_normal(out.shape), 0.0)
            weights.append(weight)
            numeric += float(np.sum(np.where(smooth, weight * slope, 0.0)))
            left_out += int(out.size - np.count_nonzero(smooth))
            count += out.size
        found = gradient(inputs, base, weights)[index]
        analytic = 0.0 if found is None else float(np.sum(found * scale))
        error = abs(analytic - numeric) / max(1.0, abs(numeric)) if np.isfinite(analytic) else np.inf
        results.append(GradientResult(names[index], analytic, numeric, error, left_out / count if count else 0.0))
    return results


def _slope(center: Array, around: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Give the derivative from values at +-h, +-h/2 and +-h/4, and say where the function is smooth in between.

    For a smooth function the gap of the one-sided differences is f''*h, so it halves with the step, and slopes
    extrapolated from (h, h/2) and from (h/2, h/4) agree. A kink at the point itself keeps the gap as it is; one
    beside it moves the slopes apart.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        central = [(up - down) / (2 * h) for (up, down), h in zip(around, _STEPS, strict=True)]
        gaps = [np.abs(up + down - 2 * center) / h for (up, down), h in zip(around[:2], _STEPS, strict=False)]
        slope = (4 * central[1] - central[0]) / 3
        nearer = (4 * central[2] - central[1]) / 3
        size = np.maximum(np.abs(central[0]), 1.0)
        finite = np.isfinite(center) & np.isfinite(slope) & np.isfinite(nearer)
        halves = (gaps[1] <= 0.75 * gaps[0] + 1e-9 * size) & (gaps[0] <= 3.0 * gaps[1] + 1e-6 * size)
        agrees = np.abs(slope - nearer) <= 1e-7 * size
    return slope, np.asarray(finite & halves & agrees)


def grad_check(
    operator: Operator,
    *inputs: Any,  # noqa: ANN401 - arrays
    seed: int = 0,
    tolerance: float = 1e-6,
    order: int = 2,
    **attributes: Any,  # noqa: ANN401
) -> list[GradientResult]:
    """Check first (and second) derivatives of an operator at given inputs, or at its finite cases.

    Args:
        operator: what to check.
        *inputs: arrays, computed in float64; none = the operator's own cases.
        seed: of directions and drawn inputs.
        tolerance: largest relative error of a directional derivative.
        order: 1 or 2.
        **attributes: attributes for given inputs.

    Raises:
        CheckFailure: a derivative is wrong; the message names the input, both values and the seed.
    """
    if inputs:
        points = [("given inputs", [_wide(value) for value in inputs], dict(attributes))]
    else:
        types = {
            name: f64 if f64 in allowed else i64 if i64 in allowed else allowed[0]
            for name, allowed in operator.types.items()
        }
        points = [(c.name, given, dict(c.attributes)) for c, given in differentiable_cases(operator, types, seed)]
    results: list[GradientResult] = []
    for title, values, given in points:
        announce("second derivative" if order == 2 else "gradient", title, "numpy", "f64")
        for level, current, point, own in _orders(operator, values, given, order, seed):
            for row in _differences(current, point, own, level, seed):
                results.append(row)
                if row.masked == 1.0:
                    raise CheckFailure(
                        f"the derivative of order {level} by {row.input!r} cannot be checked at these inputs",
                        where=f"{operator.qualified_name}, case {title}, seed {seed}",
                        got="every output element has a kink, or grows too fast, within a step of 2^-10",
                        hint="give inputs at which the function is smooth, or of smaller magnitude",
                    )
                if row.error > tolerance:
                    where = f"{operator.qualified_name}, case {title}, seed {seed}"
                    declared = current.qualified_name
                    raise CheckFailure(
                        f"the derivative of order {level} by {row.input!r} is wrong",
                        where=where if level == 1 else f"{where}, gradient operator {declared}",
                        expected=f"{row.numeric:.12g} (finite differences along a random direction)",
                        got=f"{row.analytic:.12g}",
                        hint=None if current.is_formula else f"correct the gradient= that {declared} declares",
                    )
    return results


def differentiated(operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    """Compute what the operator's gradient is the derivative of: its reference, or the surrogate in its cases.py."""
    other = surrogate(operator)
    with np.errstate(all="ignore"):
        if other is not None:
            return output_list(other(*inputs, **operator.coerce(attributes)))
        return output_list(operator.reference(*inputs, **attributes))


def _wide(value: Any) -> Array | None:  # noqa: ANN401
    if value is None:
        return None
    array = np.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


_Point = tuple[int, Operator, list[Array | None], dict[str, Any]]


def _orders(
    operator: Operator, values: list[Array | None], attributes: Mapping[str, Any], order: int, seed: int
) -> list[_Point]:
    """Give the operator itself, and for order 2 each operator that its gradient program calls: point, attributes."""
    rows: list[_Point] = [(1, operator, values, dict(attributes))]
    if order < 2 or operator.gradient is None:
        return rows
    rng = np.random.default_rng([seed, 11])
    outputs = output_list(operator(*values, **attributes))
    grads: list[Array] = [np.asarray(rng.standard_normal(out.shape)) for out in outputs]
    _, calls = executed(operator, values, outputs, grads, attributes)
    return rows + [(2, c.operator, c.inputs, c.attributes) for c in calls if c.operator.gradient is not None]


def _differences(
    operator: Operator, point: list[Array | None], attributes: Mapping[str, Any], level: int, seed: int
) -> list[GradientResult]:
    def forward(*values: Array | None) -> list[Array]:
        # The first derivative is held against the float64 reference; the second against the first, checked one.
        if level == 1 and operator.reference_function is not None:
            return differentiated(operator, values, attributes)
        return output_list(operator(*values, **attributes))

    def gradient(
        values: Sequence[Array | None], outputs: Sequence[Array], grads: Sequence[Array]
    ) -> list[Array | None]:
        return backward(operator, values, outputs, grads, attributes)

    names = [p.name for p in parameters(operator, point)]
    found = check_gradient(forward, gradient, names, point, seed=seed)
    return [replace(row, order=level) for row in found]
