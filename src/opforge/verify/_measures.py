"""How far two arrays are apart: absolute, relative, cosine, and whether NaN and infinities lie at the same places."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Difference", "explain", "measure"]

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

    def as_dict(self) -> dict[str, object]:
        """Return the fields as plain data."""
        return asdict(self)


def measure(got: Array, expected: Array, *, rtol: float, atol: float) -> Difference:
    """Compare element by element in float64. Both may be of any numeric or bool dtype."""
    if got.shape != expected.shape:
        return Difference(False, False, np.inf, np.inf, np.inf, 0.0, (), False, expected.size)
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    pattern = bool(
        np.all(np.isnan(a) == np.isnan(b))
        and np.all((a == np.inf) == (b == np.inf))
        and np.all((a == -np.inf) == (b == -np.inf))
    )
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return Difference(True, pattern, 0.0, 0.0, 0.0, 1.0, (), pattern, expected.size)
    error = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), 0.0)
    x, y = a[finite], b[finite]
    nonzero = y != 0
    relative = float((np.abs(x - y)[nonzero] / np.abs(y[nonzero])).max()) if nonzero.any() else 0.0
    cosine = _cosine(x, y)
    within = bool(np.all(error <= atol + rtol * np.abs(np.where(finite, b, 0.0))))
    worst = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape)) if error.size else ()
    return Difference(
        True,
        pattern,
        float(error.max()),
        float(error[finite].mean()),
        relative,
        cosine,
        worst,
        within and pattern,
        expected.size,
    )


def _cosine(x: Array, y: Array) -> float:
    """Cosine of two finite vectors, scaled so that squares neither overflow nor vanish; 1 when both are zero."""
    large = float(np.abs(x).max()), float(np.abs(y).max())
    if 0.0 in large:
        return 1.0 if large == (0.0, 0.0) else 0.0
    u, v = x / large[0], y / large[1]
    return float(np.dot(u, v) / (np.linalg.norm(u) * np.linalg.norm(v)))


def explain(difference: Difference, got: Array, expected: Array) -> str:
    """Say in words where two arrays differ most."""
    if not difference.same_shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if not difference.same_pattern:
        a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        wrong = ~((np.isnan(a) & np.isnan(b)) | (a == b) | (np.isfinite(a) & np.isfinite(b)))
        index = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
        count = int(np.count_nonzero(wrong))
        place = f"at {list(index)} {a[index]:g}, expected {b[index]:g}"
        return f"NaN or infinity at other places: {count} of {wrong.size}, {place}"
    index = difference.worst
    values = f"{float(got[index]):.9g}, expected {float(expected[index]):.9g}"
    return f"max |error| {difference.max_abs:.3g} at {list(index)}: {values}; max relative {difference.max_rel:.3g}"
