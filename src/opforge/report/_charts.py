"""Curves and clouds as SVG whose colours the page sets, so that one drawing serves light and dark.

A drawing library that runs in the page would weigh one to five megabytes and need its script to show anything; these
weigh a few kilobytes, and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "Line", "Point", "chart"]

_WIDTH, _HEIGHT = 760, 360
_LEFT, _TOP, _RIGHT, _BOTTOM = 72, 34, 20, 52


@dataclass(frozen=True)
class Axis:
    """A name with its unit, the range (None = that of the data), and whether it is logarithmic."""

    name: str
    logarithmic: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """Points joined by lines; ``style`` is "ours", "second" or "soft"."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "ours"


@dataclass(frozen=True)
class Point:
    """One mark with a label that pointing at it shows."""

    x: float
    y: float
    label: str
    style: str = "ours"
    size: float = 4.0


def chart(x: Axis, y: Axis, lines: Sequence[Line] = (), points: Sequence[Point] = ()) -> str:
    """Draw lines and points over two axes; what is not finite, or not above 0 on a logarithmic axis, is left out."""
    kept = [Line(line.name, [p for p in line.points if _fits(p, x, y)], line.style) for line in lines]
    marks = [p for p in points if _fits((p.x, p.y), x, y)]
    every = [p for line in kept for p in line.points] + [(p.x, p.y) for p in marks]
    if not every:
        return ""
    low_x, high_x = _range([p[0] for p in every], x)
    low_y, high_y = _range([p[1] for p in every], y)
    across = _scale(low_x, high_x, _LEFT, _WIDTH - _RIGHT, x.logarithmic)
    upwards = _scale(low_y, high_y, _HEIGHT - _BOTTOM, _TOP, y.logarithmic)
    parts = [
        f'<svg class="fit" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y.name)} over '
        f'{escape(x.name)}">',
        f'<rect class="paper" x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}"/>',
        *_axis_x(x, low_x, high_x, across),
        *_axis_y(y, low_y, high_y, upwards),
    ]
    for line in kept:
        if line.points:
            path = " ".join(f"{across(a):.1f},{upwards(b):.1f}" for a, b in line.points)
            parts.append(f'<polyline class="line-{line.style}" points="{path}"/>')
    for mark in marks:
        parts.append(
            f'<circle class="{mark.style}" cx="{across(mark.x):.1f}" cy="{upwards(mark.y):.1f}" r="{mark.size:.1f}">'
            f"<title>{escape(mark.label)}</title></circle>"
        )
    return "".join([*parts, *_legend([line for line in kept if line.points]), "</svg>"])


def _fits(point: tuple[float, float], x: Axis, y: Axis) -> bool:
    return all(
        math.isfinite(value) and (value > 0 or not axis.logarithmic) for value, axis in zip(point, (x, y), strict=True)
    )


def _range(values: Sequence[float], axis: Axis) -> tuple[float, float]:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if axis.logarithmic:
        low, high = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
        return low, high if high > low else low * 10
    return low, high if high > low else low + (abs(low) or 1.0)


def _scale(low: float, high: float, start: float, end: float, logarithmic: bool) -> Callable[[float], float]:
    if logarithmic:
        low, high = math.log10(low), math.log10(high)
        return lambda v: start + (end - start) * (math.log10(v) - low) / (high - low)
    return lambda v: start + (end - start) * (v - low) / (high - low)


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if logarithmic:
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**k for k in range(first, last + 1, max(1, (last - first) // 6))]
    rough = (high - low) / 5
    unit: float = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _axis_x(axis: Axis, low: float, high: float, across: Callable[[float], float]) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for value in _ticks(low, high, axis.logarithmic):
        at = across(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="soft" x="{at:.1f}" y="{bottom + 18}" font-size="12" text-anchor="middle">{value:g}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" font-size="13" text-anchor="middle">{escape(axis.name)}</text>'
    )
    return parts


def _axis_y(axis: Axis, low: float, high: float, upwards: Callable[[float], float]) -> list[str]:
    parts = []
    for value in _ticks(low, high, axis.logarithmic):
        at = upwards(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="soft" x="{_LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end">{value:g}</text>'
        )
    parts.append(f'<text x="8" y="18" font-size="13">{escape(axis.name)}</text>')
    return parts


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, at = [], float(_WIDTH - _RIGHT)
    for line in reversed(lines):
        at -= 7.0 * len(line.name) + 8
        parts.append(f'<text x="{at:.0f}" y="18" font-size="12">{escape(line.name)}</text>')
        parts.append(f'<line class="line-{line.style}" x1="{at - 30:.0f}" y1="14" x2="{at - 6:.0f}" y2="14"/>')
        at -= 44
    return parts
