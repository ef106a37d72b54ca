"""The memory plan of a .bin as SVG: nodes to the right, the arena upwards, one rectangle per buffer.

The colours stand in the drawing, so that it serves by itself; a page that holds it sets others by the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["mib", "picture"]

_MIB = 1 << 20
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 1200, 620, 72, 64, 24, 92
_COLOURS = {"value": "#7fb2d9", "halo": "#8fc9a8", "written over": "#e6b566", "scratch": "#c9a3cf"}
_TEXT = 'font-family="sans-serif" fill="#333"'


def mib(size: int) -> str:
    """Write bytes for people."""
    return f"{size / _MIB:.2f} MiB" if size >= _MIB // 10 else f"{size / 1024:.1f} KiB"


def _class(kind: str) -> str:
    return f'class="plan-{kind.split()[0]}"'


def picture(content: Mapping[str, Any]) -> str:
    """Draw a plan as SVG: nodes to the right, the arena upwards, one rectangle per buffer.

    Args:
        content: what `memory_plan` returned.
    """
    nodes, peak = max(1, int(content["nodes"])), max(1, int(content["peak_bytes"]))
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    bottom = _TOP + plot_height

    def x(node: float) -> float:
        return _LEFT + plot_width * node / (nodes + 1)

    def y(offset: float) -> float:
        return bottom - plot_height * offset / peak

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fit" role="img" aria-label="Memory plan" '
        f'width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f'<rect class="sheet" width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_heading(content),
        *_axes(nodes, peak, x, y, bottom),
    ]
    for b in content["buffers"]:
        left, right, top = x(b["first"]), x(b["last"] + 1), y(b["offset"] + b["size"])
        width, height = max(right - left, 0.8), max(y(b["offset"]) - top, 0.6)
        title = f"{b['name']} ({b['node']}): {mib(b['size'])} at {mib(b['offset'])}, nodes {b['first']} to {b['last']}"
        parts.append(
            f'<g><title>{escape(title)}</title><rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{_COLOURS[b["kind"]]}" {_class(b["kind"])} stroke="#ffffff" '
            'stroke-width="0.7"/></g>'
        )
        parts += _label(b, left, top, width, height)
    bound = y(content["lower_bound_bytes"])
    parts.append(
        f'<line x1="{_LEFT}" y1="{bound:.1f}" x2="{_WIDTH - _RIGHT}" y2="{bound:.1f}" class="limit" stroke="#c0392b" '
        'stroke-dasharray="6 4"/>'
    )
    return "\n".join([*parts, *_legend(), "</svg>"]) + "\n"


def _heading(content: Mapping[str, Any]) -> list[str]:
    given = ", ".join(f"{name} {list(shape)}" for name, shape in content["inputs"].items())
    figures = (
        f"peak {mib(content['peak_bytes'])}, lower bound {mib(content['lower_bound_bytes'])} "
        f"(x{content['ratio']:.3f}), without reuse {mib(content['no_reuse_bytes'])}; "
        f"{content['views']} views, {content['in_place']} results in place"
    )
    return [
        f'<text x="{_LEFT}" y="26" font-size="17" {_TEXT}>{escape(Path(content["file"]).name)}: {escape(given)}</text>',
        f'<text x="{_LEFT}" y="48" font-size="13" {_TEXT}>{escape(figures)}</text>',
    ]


def _steps(most: float, count: int) -> list[float]:
    """Return about ``count`` round numbers from 0 to ``most``."""
    rough, unit = most / count, 1.0
    while unit * 10 <= rough:
        unit *= 10
    while unit > rough:
        unit /= 10
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    return [step * k for k in range(int(most / step) + 1)]


def _axes(nodes: int, peak: int, x: Callable[[float], float], y: Callable[[float], float], bottom: float) -> list[str]:
    right = _WIDTH - _RIGHT
    parts = [
        f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" class="paper" fill="#f6f6f4"/>'
    ]
    unit, name = (_MIB, "MiB") if peak >= _MIB else (1024, "KiB")
    for value in _steps(peak / unit, 6):
        at = y(value * unit)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" class="grid" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end" {_TEXT}>{value:g}</text>'
        )
    for value in _steps(nodes, 10):
        if value == int(value):
            at = x(value)
            parts.append(f'<line x1="{at:.1f}" y1="{bottom}" x2="{at:.1f}" y2="{bottom + 5}" stroke="#888888"/>')
            parts.append(
                f'<text x="{at:.1f}" y="{bottom + 19}" font-size="12" text-anchor="middle" {_TEXT}>{value:g}</text>'
            )
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 38}" font-size="13" text-anchor="middle" {_TEXT}>'
        "node of the program, in the order of the run</text>"
    )
    parts.append(
        f'<text x="20" y="{middle:.0f}" font-size="13" text-anchor="middle" '
        f'transform="rotate(-90 20 {middle:.0f})" {_TEXT}>arena, {name}</text>'
    )
    return parts


def _label(buffer: Mapping[str, Any], left: float, top: float, width: float, height: float) -> list[str]:
    """Write name and size where the rectangle has room: along it, or upwards in a narrow, high one."""
    size = mib(int(buffer["size"]))
    middle_x, middle_y = left + width / 2, top + height / 2
    for room, across, turn in (
        (width, height, ""),
        (height, width, f' transform="rotate(-90 {middle_x:.1f} {middle_y:.1f})"'),
    ):
        letters = int((room - 6) / 5.6)
        if across < 11 or letters < 6:
            continue
        text = f"{buffer['name']}  {size}"
        if len(text) > letters:
            keep = letters - len(size) - 3
            text = f"{str(buffer['name'])[:keep]}… {size}" if keep >= 4 else size if len(size) <= letters else ""
        return [
            f'<text x="{middle_x:.1f}" y="{middle_y + 3.5:.1f}" font-size="10" text-anchor="middle"{turn} '
            f"{_TEXT}>{escape(text)}</text>"
        ]
    return []


def _legend() -> list[str]:
    texts = {
        "value": "one value",
        "halo": "image with a border of zeros",
        "written over": "several values (views, results in place)",
        "scratch": "scratch of a node",
    }
    parts, at, line = [], float(_LEFT), _HEIGHT - 22
    for kind, text in texts.items():
        parts.append(
            f'<rect x="{at:.0f}" y="{line - 11}" width="14" height="14" fill="{_COLOURS[kind]}" {_class(kind)}/>'
        )
        parts.append(f'<text x="{at + 20:.0f}" y="{line + 1}" font-size="12" {_TEXT}>{text}</text>')
        at += 44 + 6.4 * len(text)
    parts.append(
        f'<line x1="{at:.0f}" y1="{line - 4}" x2="{at + 22:.0f}" y2="{line - 4}" class="limit" stroke="#c0392b" '
        'stroke-dasharray="6 4"/>'
    )
    parts.append(f'<text x="{at + 28:.0f}" y="{line + 1}" font-size="12" {_TEXT}>lower bound</text>')
    return parts
