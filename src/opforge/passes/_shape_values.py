"""Symbolic elements of small integer tensors: what Shape, Gather, Concat and the like say about dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._dims import Dim

__all__ = ["LIMIT", "RULES"]

LIMIT = 64
"""Tensors with more elements are data, not shapes."""

Known = list[Dim] | None
Shape = list[Dim] | None
Rule = Callable[[ir.Node, Sequence[Shape], Sequence[Known]], Known]


def _shape(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    if shapes[0] is None:
        return None
    return shapes[0][_edit.attribute(node, "start", 0) : _edit.attribute(node, "end", None)]


def _size(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    if shapes[0] is None:
        return None
    total = Dim.of(1)
    for dim in shapes[0]:
        total = total * dim
    return [total]


def _keep(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    return known[0]


def _cast(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    return known[0] if _edit.attribute(node, "to") in (ir.DataType.INT32, ir.DataType.INT64, 6, 7) else None


def _gather(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    data, index = known[0], _edit.array(node.inputs[1])
    if data is None or index is None or shapes[0] is None or len(shapes[0]) != 1 or index.ndim > 1:
        return None
    picks = [int(i) for i in index.reshape(-1)]
    return [data[i] for i in picks] if all(-len(data) <= i < len(data) for i in picks) else None


def _concat(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    out: list[Dim] = []
    for part in known:
        if part is None:
            return None
        out += part
    return out


def _slice(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    data = known[0]
    if data is None or shapes[0] is None or len(shapes[0]) != 1 or len(known) < 3:
        return None
    bounds = [k[0].constant if k else None for k in known[1:3]]
    step = known[4][0].constant if len(known) > 4 and known[4] else 1
    if any(b is None for b in bounds) or not step:
        return None
    start, end = int(bounds[0] or 0), int(bounds[1] or 0)
    stop = None if step < 0 and end < -len(data) else end
    return data[slice(start, stop, step)]


def _squeeze(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
    return known[0] if known[0] is not None and shapes[0] is not None and len(shapes[0]) <= 1 else None


def _arithmetic(function: Callable[[Dim, Dim], Dim | None]) -> Rule:
    def rule(node: ir.Node, shapes: Sequence[Shape], known: Sequence[Known]) -> Known:
        a, b = known[0], known[1]
        if a is None or b is None or (len(a) != len(b) and 1 not in (len(a), len(b))):
            return None
        n = max(len(a), len(b))
        out = [function(a[k % len(a)], b[k % len(b)]) for k in range(n)]
        return None if any(o is None for o in out) else [o for o in out if o is not None]

    return rule


def _divide(a: Dim, b: Dim) -> Dim | None:
    # ONNX truncates; sizes are not negative, so this is the floor.
    if a.constant is not None and b.constant:
        return Dim.of(int(a.constant / b.constant))
    return a // b if b.constant is None or b.constant > 0 else None


RULES: dict[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _keep,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Reshape": _squeeze,
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_divide),
}
"""Operator -> elements of its first output."""
