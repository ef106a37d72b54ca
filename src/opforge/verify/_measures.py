"""How far two arrays are apart: absolute, relative, in ULP, cosine, and whether NaN and infinities lie alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Difference", "Ulps", "explain", "measure", "ulps"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """Differences of ``got`` from ``expected`` over the elements that are finite in both.

    Attributes:
        same_shape: shapes agree; everything else is meaningless otherwise.
        same_pattern: NaN, +inf and -inf stand at the same places.
        max_abs: largest absolute difference.
        mean_abs: mean absolute difference.
        max_rel: largest |difference| / |expected| where expected is not 0.
        cosine: cosine of the angle between the two as vectors; 1 when both are zero.
        worst: index of the largest absolute difference.
        passed: all of |difference| <= atol + rtol*|expected|, same shape, same pattern.
        elements: number of elements compared.
        mean_rel: mean of |difference| / |expected| where expected is not 0.
        margin: largest |difference| over what is allowed there: up to 1 passes.
        misplaced: elements with NaN or an infinity in one of the two only, or another one.
    """

    same_shape: bool
    same_pattern: bool
    max_abs: float
    mean_abs: float
    max_rel: float
    cosine: float
    worst: tuple[int, ...]
    passed: bool
    elements: int
    mean_rel: float = 0.0
    margin: float = 0.0
    misplaced: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return the fields as plain data."""
        return asdict(self)


def measure(got: Array, expected: Array, *, rtol: float, atol: float) -> Difference:
    """Compare element by element in float64. Both may be of any numeric or bool dtype."""
    if got.shape != expected.shape:
        return Difference(
            False, False, np.inf, np.inf, np.inf, 0.0, (), False, expected.size, mean_rel=np.inf, margin=np.inf
        )
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    misplaced = int(np.count_nonzero(_misplaced(a, b)))
    pattern = misplaced == 0
    if not finite.any():
        margin = 0.0 if pattern else np.inf
        return Difference(
            True, pattern, 0.0, 0.0, 0.0, 1.0, (), pattern, expected.size, margin=margin, misplaced=misplaced
        )
    error = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), 0.0)
    x, y = a[finite], b[finite]
    nonzero = y != 0
    relative = np.abs(x - y)[nonzero] / np.abs(y[nonzero])
    allowed = atol + rtol * np.abs(np.where(finite, b, 0.0))
    within = bool(np.all(error <= allowed))
    worst = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape)) if error.size else ()
    return Difference(
        True,
        pattern,
        float(error.max()),
        float(error[finite].mean()),
        float(relative.max()) if relative.size else 0.0,
        _cosine(x, y),
        worst,
        within and pattern,
        expected.size,
        mean_rel=float(relative.mean()) if relative.size else 0.0,
        margin=_margin(error, allowed) if pattern else np.inf,
        misplaced=misplaced,
    )


def _misplaced(a: Array, b: Array) -> Array:
    """Where NaN or an infinity stands in one of the two only, or infinities of two signs."""
    return np.asarray(~((np.isnan(a) & np.isnan(b)) | (a == b) | (np.isfinite(a) & np.isfinite(b))))


def _margin(error: Array, allowed: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(error > 0, error / allowed, 0.0)
    return float(shares.max())


@dataclass(frozen=True)
class Ulps:
    """Differences in units in the last place of the result's dtype: median, 99th percentile, largest."""

    median: float
    p99: float
    largest: float


_UNITS = {"float64": (53, -1074), "float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
"""Bits of the significand, and the exponent of the smallest number."""


def ulps(got: Array, expected: Array) -> Ulps | None:
    """Count units in the last place over the elements that are finite in both; None where the dtype has no such unit.

    The unit is that of the expected value in the dtype of ``got``: near 0 it is the smallest number that there is.
    """
    kind = _UNITS.get(got.dtype.name)
    if kind is None or got.shape != expected.shape or expected.dtype.kind in "iub":
        return None
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return None
    bits, smallest = kind
    _, exponent = np.frexp(b[finite])
    unit = np.ldexp(1.0, np.where(b[finite] == 0, smallest, np.maximum(exponent - bits, smallest)))
    with np.errstate(over="ignore"):
        counts = np.abs(a[finite] - b[finite]) / unit
    median, p99 = (float(v) for v in np.percentile(counts, (50, 99)))
    return Ulps(median, p99, float(counts.max()))


def _cosine(x: Array, y: Array) -> float:
    """Cosine of two finite vectors, scaled so that squares neither overflow nor vanish; 1 when both are zero."""
    large = float(np.abs(x).max()), float(np.abs(y).max())
    if 0.0 in large:
        return 1.0 if large == (0.0, 0.0) else 0.0
    u, v = x / large[0], y / large[1]
    return float(np.dot(u, v) / (np.linalg.norm(u) * np.linalg.norm(v)))


def explain(difference: Difference, got: Array, expected: Array, limit: tuple[float, float] | None = None) -> str:
    """Say in words where two arrays differ most; with `limit` (rtol, atol) also where they differ by more than that."""
    if not difference.same_shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if not difference.same_pattern:
        a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        wrong = _misplaced(a, b)
        index = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
        count = int(np.count_nonzero(wrong))
        place = f"at {list(index)} {a[index]:g}, expected {b[index]:g}"
        return f"NaN or infinity at other places: {count} of {wrong.size}, {place}"
    index = difference.worst
    if len(index) < np.ndim(got):
        return "no element is finite in both" if difference.elements else "no elements"
    values = f"{float(got[index]):.9g}, expected {float(expected[index]):.9g}"
    text = f"max |error| {difference.max_abs:.3g} at {list(index)}: {values}; max relative {difference.max_rel:.3g}"
    return (
        text
        if limit is None
        else text + _beyond(np.asarray(got, np.float64), np.asarray(expected, np.float64), index, *limit)
    )


def _beyond(got: Array, expected: Array, largest: tuple[int, ...], rtol: float, atol: float) -> str:
    """Name the element that is furthest beyond its limit, where the one with the largest error is within its own."""
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(got - expected)
        share = np.where(error > 0, error / (atol + rtol * np.abs(expected)), 0.0)
    share = np.where(np.isfinite(got) & np.isfinite(expected), share, 0.0)
    if share[largest] > 1 or not (share > 1).any():
        return ""
    index = tuple(int(i) for i in np.unravel_index(int(share.argmax()), share.shape))
    text = (
        f", which is allowed; not allowed is |error| {error[index]:.3g} at {list(index)}: {got[index]:.9g}, "
        f"expected {expected[index]:.9g}"
    )
    finite = np.abs(expected[np.isfinite(expected)])
    if error[index] <= atol + rtol * finite.max():
        text += " (small beside the largest element: where terms cancel, digits are lost)"
    return text
