"""A flame view of a profile as SVG: modules, then lines, then nodes; the width is the time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from opforge.profiling._rows import Profile
from opforge.profiling._trace import stack_of

__all__ = ["flame"]

_WIDTH, _ROW, _TOP, _SIDE = 1200, 19, 54, 12
_LETTER = 6.3
_TEXT = 'font-family="sans-serif" fill="#222"'


@dataclass
class _Frame:
    name: str
    time: float = 0.0
    inner: dict[str, _Frame] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((frame.depth() for frame in self.inner.values()), default=0)


def flame(profile: Profile) -> str:
    """Draw the time of all nodes by where they come from; the model is at the top, nodes hang below."""
    root = _Frame(profile.model.rpartition("/")[2])
    for row in profile.rows:
        root.time += row.run_ns
        frame = root
        for name in stack_of(row):
            frame = frame.inner.setdefault(name, _Frame(name))
            frame.time += row.run_ns
    height = _TOP + _ROW * root.depth() + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img"><title>time of {escape(root.name)} by module</title>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_SIDE}" y="26" font-size="17" {_TEXT}>{escape(root.name)} in {profile.engine}: '
        "where the time goes</text>",
        f'<text x="{_SIDE}" y="44" font-size="12" {_TEXT}>{root.time / 1e3:.1f} us in nodes per run; '
        "modules, lines of the model, nodes</text>",
    ]
    _draw(root, _SIDE, _TOP, (_WIDTH - 2 * _SIDE) / max(1, root.time), root.time, parts)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw(frame: _Frame, left: float, top: float, scale: float, whole: float, parts: list[str]) -> None:
    width = frame.time * scale
    if width < 0.4:
        return
    title = f"{frame.name}: {frame.time / 1e3:.2f} us a run, {frame.time / max(1, whole):.1%}"
    letters = int((width - 6) / _LETTER)
    name = frame.name if len(frame.name) <= letters else f"{frame.name[: letters - 1]}…" if letters >= 3 else ""
    parts.append(
        f'<g><title>{escape(title)}</title><rect x="{left:.2f}" y="{top}" width="{max(width - 0.5, 0.3):.2f}" '
        f'height="{_ROW - 1}" fill="{_colour(frame)}"/>'
        + (f'<text x="{left + 3:.1f}" y="{top + 13}" font-size="11" {_TEXT}>{escape(name)}</text>' if name else "")
        + "</g>"
    )
    for inner in sorted(frame.inner.values(), key=lambda f: -f.time):
        _draw(inner, left, top + _ROW, scale, whole, parts)
        left += inner.time * scale


def _colour(frame: _Frame) -> str:
    """Warm for modules, another hue per operator; the same name always has the same colour."""
    if frame.inner:
        return f"hsl({28 + zlib.crc32(frame.name.encode()) % 22},78%,{70 + zlib.crc32(frame.name.encode()) % 9}%)"
    operator = frame.name.partition(" ")[0]
    return f"hsl({160 + zlib.crc32(operator.encode()) % 130},45%,74%)"
