"""Dimensions of the further outputs of Attention: onnx's own rule makes 0 of lengths that have names."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._dims import Dim

__all__ = ["attention_outputs"]

Shape = list[Dim]


def attention_outputs(node: ir.Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    """Return the dimensions of present_key, present_value and qk_matmul_output, None where they are not known."""
    q, k, v, _, past, _ = (*shapes, *[None] * 6)[:6]
    if q is None or k is None or v is None or not len(q) == len(k) == len(v):
        return [None, None, None]
    had_past = len(node.inputs) > 4 and node.inputs[4] is not None
    if had_past and (past is None or len(past) != 4):
        return [None, None, None]
    length = k[-2] + (past[2] if had_past and past is not None else 0)
    if len(q) == 4:
        heads, kv_heads, size, size_v = q[1], k[1], k[3], v[3]
    else:
        given = [_edit.attribute(node, f"{name}_num_heads") for name in ("q", "kv")]
        widths = [k[2].constant, v[2].constant]
        if any(n is None for n in (*given, *widths)):
            return [None, None, None]
        heads, kv_heads = (Dim.of(n) for n in given)
        size, size_v = (Dim.of((w or 0) // given[1]) for w in widths)
    return [[q[0], kv_heads, length, size], [q[0], kv_heads, length, size_v], [q[0], heads, q[-2], length]]
