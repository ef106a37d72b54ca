"""A program's graph as SVG: nodes in layers by their distance from the inputs, custom and fused ones marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["MOST_NODES", "graph_picture", "is_custom", "node_kinds", "operator_name"]

MOST_NODES = 400
"""Nodes that are drawn; a larger picture shows nothing that its table does not."""
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _EDGE = 176, 40, 18, 26, 16
_LETTERS = 25


def node_kinds(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what is special about a node: "custom" (of a domain of its own), "fused" (made from several nodes)."""
    names = [operator_name(node), *node.get("origin_operators", ())]
    found = ["custom"] if any(is_custom(name) for name in names) else []
    if len(node.get("origin", ())) > 1:
        found.append("fused")
    return tuple(found)


def operator_name(node: Mapping[str, Any]) -> str:
    """Return ``domain::Name``, or the name alone in ONNX's domain."""
    return f"{node['domain']}::{node['op']}" if node.get("domain") else str(node["op"])


def is_custom(operator: str) -> bool:
    """Whether an operator is of a domain of its own: neither ONNX's nor the compiler's."""
    domain, _, name = operator.rpartition("::")
    return bool(name) and domain not in _COMMON


_COMMON = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "opforge")


def graph_picture(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Draw up to ``MOST_NODES`` nodes; each has op, domain, inputs, outputs and origin."""
    drawn = nodes[:MOST_NODES]
    maker = {name: k for k, node in enumerate(drawn) for name in node["outputs"] if name}
    sources = [
        sorted({maker[name] for name in node["inputs"] if maker.get(name, k) < k}) for k, node in enumerate(drawn)
    ]
    layer: list[int] = []
    for before in sources:
        layer.append(1 + max((layer[s] for s in before), default=-1))
    place = _places(layer, sources)
    widest = max((column for column, _ in place), default=0) + 1
    width = _EDGE * 2 + widest * _BOX_WIDTH + (widest - 1) * _GAP_X
    height = _EDGE * 2 + (max(layer, default=0) + 1) * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Graph of {len(drawn)} nodes; the table of nodes says the same">'
    ]
    for k, before in enumerate(sources):
        parts += [_edge(place[s], place[k]) for s in before]
    for k, node in enumerate(drawn):
        parts.append(_box(node, *place[k]))
    return "".join([*parts, "</svg>"])


def _places(layer: Sequence[int], sources: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Give each node a column: as near as may be below those that it reads."""
    place: list[tuple[int, int]] = [(0, 0)] * len(layer)
    members = defaultdict(list)
    for k, depth in enumerate(layer):
        members[depth].append(k)
    for depth in sorted(members):
        taken: set[int] = set()
        wishes = {k: _wish([place[s][0] for s in sources[k]]) for k in members[depth]}
        for k in sorted(members[depth], key=lambda n: (wishes[n], n)):
            column = wishes[k]
            while column in taken:
                column += 1
            taken.add(column)
            place[k] = (column, depth)
    return place


def _wish(columns: Sequence[int]) -> int:
    return round(sum(columns) / len(columns)) if columns else 0


def _corner(column: int, depth: int) -> tuple[int, int]:
    return _EDGE + column * (_BOX_WIDTH + _GAP_X), _EDGE + depth * (_BOX_HEIGHT + _GAP_Y)


def _edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    (x0, y0), (x1, y1) = _corner(*source), _corner(*target)
    x0, x1, y0 = x0 + _BOX_WIDTH // 2, x1 + _BOX_WIDTH // 2, y0 + _BOX_HEIGHT
    # An edge over several layers leaves beside the boxes between.
    if target[1] - source[1] > 1:
        side = max(x0, x1) + _BOX_WIDTH // 2 + _GAP_X // 2
        return f'<path class="line-soft" d="M{x0} {y0}C{side} {y0 + 24} {side} {y1 - 24} {x1} {y1}"/>'
    middle = (y0 + y1) // 2
    return f'<path class="line-soft" d="M{x0} {y0}C{x0} {middle} {x1} {middle} {x1} {y1}"/>'


def _box(node: Mapping[str, Any], column: int, depth: int) -> str:
    x, y = _corner(column, depth)
    kinds = node_kinds(node)
    marks = "".join({"custom": "◆ ", "fused": "⊕ "}[kind] for kind in kinds)
    name = operator_name(node).removeprefix("opforge::")
    made = node.get("origin_operators") or node.get("origin", ())
    title = operator_name(node) + (f", made from {', '.join(map(str, made))}" if made else "")
    style = "custom" if "custom" in kinds else "fused" if kinds else ""
    below = _below(node, kinds)
    middle = x + _BOX_WIDTH // 2
    parts = [
        f'<g><title>{escape(title)}</title><rect class="box {style}" x="{x}" y="{y}" width="{_BOX_WIDTH}" '
        f'height="{_BOX_HEIGHT}" rx="4"/><text x="{middle}" y="{y + (17 if below else 24)}" font-size="12" '
        f'text-anchor="middle">{marks}{escape(_cut(name.rpartition("::")[2]))}</text>'
    ]
    if below:
        parts.append(
            f'<text class="soft" x="{middle}" y="{y + 32}" font-size="10.5" text-anchor="middle">'
            f"{escape(_cut(below))}</text>"
        )
    return "".join([*parts, "</g>"])


def _below(node: Mapping[str, Any], kinds: Sequence[str]) -> str:
    """What the second line of a box says: the operator of a user's in it, or how many nodes it was made from."""
    custom = [name for name in node.get("origin_operators", ()) if is_custom(name)]
    if custom:
        return "with " + ", ".join(dict.fromkeys(name.rpartition("::")[2] for name in custom))
    if "fused" in kinds:
        return f"from {len(node['origin'])} nodes"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
