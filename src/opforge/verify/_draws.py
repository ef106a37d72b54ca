"""Values of random inputs: the usual ones, a range, or a class of values that engines like to get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opforge.engines import TensorInfo
from opforge.errors import ArgumentError

__all__ = ["CLASSES", "EVERY", "Draw"]

Array = np.ndarray[Any, Any]
EVERY = "*"
"""Key of what holds for every input that is not named."""


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Smallest normal and largest number of a floating-point dtype."""
    if dtype.name == "bfloat16":
        return 2.0**-126, 3.3895313892515355e38
    found = np.finfo(dtype)
    return float(found.smallest_normal), float(found.max)


def _special(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Every eighth value is NaN, an infinity, a zero of either sign, the largest or a denormal number."""
    small, large = _limits(dtype)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, large, -large, small / 4])
    return np.where(rng.random(shape) < 1 / 8, odd[rng.integers(0, len(odd), shape)], rng.standard_normal(shape))


def _wide(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """All magnitudes alike, down to denormal numbers."""
    low, high = (np.log10(v) for v in _limits(dtype))
    return np.asarray(rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(low - 2, high - 1, shape))


CLASSES: Mapping[str, Callable[[np.random.Generator, tuple[int, ...], np.dtype[Any]], Array]] = {
    "normal": lambda rng, shape, _: rng.standard_normal(shape),
    "uniform": lambda rng, shape, _: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape, _: np.abs(rng.standard_normal(shape)),
    "zeros": lambda _rng, shape, _: np.zeros(shape),
    "ones": lambda _rng, shape, _: np.ones(shape),
    "large": lambda rng, shape, dtype: rng.standard_normal(shape) * np.sqrt(_limits(dtype)[1]) / 16,
    "tiny": lambda rng, shape, dtype: rng.standard_normal(shape) * _limits(dtype)[0],
    "wide": _wide,
    "special": _special,
}
"""Classes of floating-point values; ``large`` ones have squares that are finite, ``tiny`` ones are half denormal."""


class Draw:
    """Draws the values of inputs.

    Args:
        high: integers are drawn below this number where no range is given.
        ranges: input, or ``*`` for the others -> lowest and highest value.
        values: input, or ``*`` -> a class of ``CLASSES``, for floating-point inputs.

    Raises:
        ArgumentError: there is no such class, or a range is empty.
    """

    def __init__(
        self,
        high: int = 100,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        values: Mapping[str, str] | None = None,
    ) -> None:
        self._high = high
        self._ranges = dict(ranges or {})
        self._values = dict(values or {})
        for name, kind in self._values.items():
            if kind not in CLASSES:
                raise ArgumentError(
                    f"there is no class of values {kind!r}", where=name, expected=f"one of {', '.join(CLASSES)}"
                )
        for name, (low, above) in self._ranges.items():
            if not low <= above:
                raise ArgumentError("the range is empty", where=name, got=f"{low:g} to {above:g}")

    def check(self, names: list[str]) -> None:
        """Refuse names that no input has."""
        strange = [name for name in (*self._ranges, *self._values) if name != EVERY and name not in names]
        if strange:
            raise ArgumentError(
                f"there is no input {strange[0]!r} to draw values for", expected=", ".join(names), got=strange[0]
            )

    def __call__(self, rng: np.random.Generator, info: TensorInfo, shape: tuple[int, ...]) -> Array:
        """Draw one array."""
        return np.asarray(self._drawn(rng, info, shape))  # NumPy draws scalars where there are no dimensions

    def _drawn(self, rng: np.random.Generator, info: TensorInfo, shape: tuple[int, ...]) -> Array:
        limits = self._ranges.get(info.name)
        kind = self._values.get(info.name)
        if limits is None and kind is None:
            if "mask" in info.name:
                return np.ones(shape, info.dtype)
            limits, kind = self._ranges.get(EVERY), self._values.get(EVERY)
        if info.dtype == np.bool_:
            return np.asarray(rng.random(shape) < 0.5)
        if info.dtype.kind in "iu":
            return self._integers(rng, info, shape, limits)
        if kind is not None:
            made = CLASSES[kind](rng, shape, info.dtype)
            made = made if limits is None else np.clip(made, *limits)
        elif limits is not None:
            made = rng.uniform(*limits, shape)
        else:
            return np.asarray(rng.standard_normal(shape, np.float32)).astype(info.dtype)
        with np.errstate(over="ignore"):
            return np.asarray(made).astype(info.dtype)

    def _integers(
        self,
        rng: np.random.Generator,
        info: TensorInfo,
        shape: tuple[int, ...],
        limits: tuple[float, float] | None,
    ) -> Array:
        known = np.iinfo(info.dtype)
        if limits is not None:
            low, above = (int(np.clip(v, known.min, known.max)) for v in limits)
            return np.asarray(rng.integers(low, above, shape, dtype=info.dtype, endpoint=True))
        limit = min(self._high, int(known.max))
        return np.asarray(rng.integers(0, 1 if "type" in info.name else limit, shape)).astype(info.dtype)
