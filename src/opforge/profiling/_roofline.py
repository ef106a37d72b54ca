"""The roofline of a profile as SVG: operations per byte to the right, operations a second upwards, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from xml.sax.saxutils import escape

from opforge.profiling._machine import Machine
from opforge.profiling._rows import NodeRow, Profile

__all__ = ["roofline"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 1080, 640, 84, 70, 250, 64
_TEXT = 'font-family="sans-serif" fill="#333"'
_COLOURS = ("#3b7dd8", "#d9822b", "#3a9d5d", "#a855b5", "#c0392b", "#7a6a53", "#2aa5a0", "#8d99ae")
_ROOFS = ((1 << 28, "memory"), (1 << 22, "4 MiB"), (1 << 18, "256 KiB"), (1 << 14, "16 KiB"))
"""Working sets whose roofs are drawn."""
_LABELS = 10

Scale = Callable[[float], float]


def roofline(profile: Profile) -> str:
    """Draw the nodes of a profile under the roofs of its machine.

    A circle's area is the node's share of the time, its colour the operator. Nodes without operations (copies) stand
    in the strip at the bottom left, at their bandwidth only.
    """
    machine = profile.machine
    assert machine is not None, "the machine was not measured"
    points = [r for r in profile.rows if r.flops and r.bytes and r.p50_ns and r.intensity and r.gflops_per_s]
    right = 2 ** math.ceil(math.log2(max([64.0, *(2 * (r.intensity or 0) for r in points)])))
    left = 2 ** math.floor(math.log2(min([0.06, *((r.intensity or 1) / 2 for r in points)])))
    high = machine.flops_per_s * 2
    low = min([machine.flops_per_s / 3000, *((r.gflops_per_s or 1) * 1e9 / 2 for r in points)])
    bottom = _HEIGHT - _BOTTOM

    def x(intensity: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(intensity / left) / math.log(right / left)

    def y(rate: float) -> float:
        return bottom - (bottom - _TOP) * math.log(rate / low) / math.log(high / low)

    operators = [row.operator for row in profile.operators if any(p.operator == row.operator for p in points)]
    colours = {name: _COLOURS[min(k, len(_COLOURS) - 1)] for k, name in enumerate(operators)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>roofline of {escape(_name(profile))}</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_heading(profile, machine),
        *_grid(left, right, low, high, x, y),
        *_roofs(machine, left, right, x, y),
    ]
    for row in sorted(points, key=lambda r: -r.share):
        at = (x(row.intensity or 1), y((row.gflops_per_s or 1) * 1e9), _radius(row))
        parts.append(_circle(row, machine, *at, colours[row.operator]))
    parts += _labels(points, x, y)
    parts += _legend(profile, operators, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _name(profile: Profile) -> str:
    return profile.model.rpartition("/")[2]


def _radius(row: NodeRow) -> float:
    return 3 + 30 * math.sqrt(row.share)


def _heading(profile: Profile, machine: Machine) -> Iterator[str]:
    shapes = ", ".join(f"{name} {shape}" for name, shape in list(profile.shapes.items())[:3])
    title = f"{_name(profile)} in {profile.engine}: {shapes}"
    yield f'<text x="{_LEFT}" y="28" font-size="17" {_TEXT}>{escape(title)}</text>'
    figures = (
        f"{machine.identity}; {machine.threads} thread{'s' if machine.threads > 1 else ''}: "
        f"{machine.flops_per_s / 1e9:.0f} GFLOP/s, memory {machine.memory_bytes_per_s / 1e9:.1f} GB/s, as measured"
    )
    yield f'<text x="{_LEFT}" y="50" font-size="12" {_TEXT}>{escape(figures)}</text>'


def _powers(low: float, high: float, base: float) -> Iterator[float]:
    value = base ** math.ceil(math.log(low, base) - 1e-9)
    while value <= high * (1 + 1e-9):
        yield value
        value *= base


def _grid(left: float, right: float, low: float, high: float, x: Scale, y: Scale) -> Iterator[str]:
    top, bottom, edge = _TOP, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<rect x="{_LEFT}" y="{top}" width="{edge - _LEFT}" height="{bottom - top}" fill="#f6f6f4"/>'
    for value in _powers(left, right, 4):
        at = x(value)
        yield f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" stroke="#dddddd"/>'
        label = f"{value:g}" if value >= 1 else f"1/{round(1 / value)}"
        yield f'<text x="{at:.1f}" y="{bottom + 18}" font-size="12" text-anchor="middle" {_TEXT}>{label}</text>'
    for value in _powers(low, high, 10):
        at = y(value)
        yield f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{edge}" y2="{at:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end" {_TEXT}>{value / 1e9:g}</text>'
    middle = (top + bottom) / 2
    yield (
        f'<text x="{(_LEFT + edge) / 2:.0f}" y="{bottom + 42}" font-size="13" text-anchor="middle" {_TEXT}>'
        "operations per byte (inputs, outputs and weights, each once)</text>"
    )
    yield (
        f'<text x="24" y="{middle:.0f}" font-size="13" text-anchor="middle" '
        f'transform="rotate(-90 24 {middle:.0f})" {_TEXT}>GFLOP/s</text>'
    )


def _roofs(machine: Machine, left: float, right: float, x: Scale, y: Scale) -> Iterator[str]:
    peak = machine.flops_per_s
    edge, bottom = x(right), _HEIGHT - _BOTTOM
    drawn: list[float] = []
    for k, (size, label) in enumerate(_ROOFS):
        bandwidth = machine.bytes_per_s(size)
        if any(bandwidth < 1.3 * other for other in drawn):
            continue  # as good as the one below
        drawn.append(bandwidth)
        ridge = peak / bandwidth
        start = left
        while y(start * bandwidth) > bottom:
            start *= 1.05
        dash = "" if k == 0 else ' stroke-dasharray="5 4"'
        yield (
            f'<line x1="{x(start):.1f}" y1="{y(start * bandwidth):.1f}" x2="{x(ridge):.1f}" y2="{y(peak):.1f}" '
            f'stroke="#555555" stroke-width="{1.6 if k == 0 else 1}"{dash}/>'
        )
        at = (x(start) + 10, y(start * bandwidth) - 8)
        angle = -math.degrees(math.atan2(y(start * bandwidth) - y(peak), x(ridge) - x(start)))
        yield (
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" font-size="11" '
            f'transform="rotate({angle:.1f} {at[0]:.1f} {at[1]:.1f})" '
            f"{_TEXT}>{label} {bandwidth / 1e9:.0f} GB/s</text>"
        )
    first = x(peak / max(drawn))
    yield (
        f'<line x1="{first:.1f}" y1="{y(peak):.1f}" x2="{edge:.1f}" y2="{y(peak):.1f}" stroke="#555555" '
        'stroke-width="1.6"/>'
    )
    yield (
        f'<text x="{edge - 4:.1f}" y="{y(peak) - 6:.1f}" font-size="11" text-anchor="end" {_TEXT}>'
        f"multiply-adds {peak / 1e9:.0f} GFLOP/s</text>"
    )


def _circle(row: NodeRow, machine: Machine, x: float, y: float, radius: float, colour: str) -> str:
    part = row.of_roof(machine)
    title = (
        f"{row.operator} {row.name}: {row.share:.1%} of the time, {row.p50_ns / 1e3:.1f} us, "
        f"{row.gflops_per_s:.1f} GFLOP/s, {row.gbytes_per_s:.1f} GB/s, {part or 0:.0%} of the roof"
    )
    return (
        f'<g><title>{escape(title)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" '
        'fill-opacity="0.55" stroke="#ffffff"/></g>'
    )


def _labels(points: list[NodeRow], x: Scale, y: Scale) -> Iterator[str]:
    """Name the largest ones, where no other name stands."""
    taken: list[tuple[float, float]] = []
    for row in sorted(points, key=lambda r: -r.share)[: 3 * _LABELS]:
        at = (x(row.intensity or 1) + _radius(row) + 3, y((row.gflops_per_s or 1) * 1e9) + 4)
        name = row.name if len(row.name) <= 24 else f"{row.name[:23]}…"
        if at[0] + 6 * len(name) > _WIDTH - _RIGHT or any(
            abs(at[1] - b) < 12 and abs(at[0] - a) < 150 for a, b in taken
        ):
            continue
        taken.append(at)
        yield f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" font-size="10" {_TEXT}>{escape(name)}</text>'
        if len(taken) == _LABELS:
            return


def _legend(profile: Profile, operators: list[str], colours: dict[str, str]) -> Iterator[str]:
    left, at = _WIDTH - _RIGHT + 16, _TOP + 6
    shares = {row.operator: row.share for row in profile.operators}
    for name in operators[:18]:
        yield f'<circle cx="{left + 6}" cy="{at}" r="6" fill="{colours[name]}" fill-opacity="0.7"/>'
        short = name if len(name) <= 24 else f"{name[:23]}…"
        yield f'<text x="{left + 18}" y="{at + 4}" font-size="12" {_TEXT}>{escape(short)} {shares[name]:.1%}</text>'
        at += 20
    rest = [row for row in profile.operators if row.operator not in operators]
    if rest:
        share = sum(row.share for row in rest)
        yield f'<text x="{left}" y="{at + 8}" font-size="11" {_TEXT}>not shown: {share:.1%} in nodes without</text>'
        yield f'<text x="{left}" y="{at + 22}" font-size="11" {_TEXT}>operations, or whose count is unknown</text>'
        at += 34
    yield f'<text x="{left}" y="{at + 16}" font-size="11" {_TEXT}>area: share of the time</text>'
