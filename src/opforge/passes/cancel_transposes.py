"""Two transposes in a row become one; reshapes to three axes around a swap of the last two become the swap itself."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "cancel_transposes"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def _perm(node: ir.Node, rank: int) -> list[int]:
    perm: list[int] | None = _edit.attribute(node, "perm")
    return perm if perm is not None else list(range(rank))[::-1]


def _two_in_a_row(node: ir.Node) -> bool:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    dims = dims_of(node.outputs[0])
    if before is None or not _edit.is_op(before, "Transpose") or dims is None:
        return False
    first, second = _perm(before, len(dims)), _perm(node, len(dims))
    joined = [first[k] for k in second]
    if joined == list(range(len(joined))) and before.inputs[0] is not None and not node.outputs[0].is_graph_output():
        _edit.replace_value(node.outputs[0], before.inputs[0])
        _edit.drop_if_unused(node)
    else:
        _edit.replace_node(node, "Transpose", [before.inputs[0]], {"perm": joined}, also=[before])
    return True


def _around_a_swap(node: ir.Node) -> bool:
    """Reshape [..., a, b] -> [n, a, b], Transpose (0, 2, 1), Reshape -> [..., b, a]."""
    swap = node.inputs[0].producer() if node.inputs[0] is not None else None
    if not _edit.is_op(node, "Reshape") or swap is None or not _edit.is_op(swap, "Transpose"):
        return False
    inner = swap.inputs[0].producer() if swap.inputs[0] is not None else None
    if inner is None or not _edit.is_op(inner, "Reshape") or _edit.attribute(swap, "perm") != [0, 2, 1]:
        return False
    source = inner.inputs[0]
    before, middle, after = dims_of(source), dims_of(swap.inputs[0]), dims_of(node.outputs[0])
    if before is None or middle is None or after is None or len(before) != len(after) or len(before) < 3:
        return False
    swapped: list[Dim] = [*before[:-2], before[-1], before[-2]]
    if before[-2:] != middle[-2:] or swapped != after:
        return False
    rank = len(before)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    _edit.replace_node(node, "Transpose", [source], {"perm": perm}, also=[inner, swap])
    return True


def call(model: ir.Model) -> int:
    """Apply the rules to a fixed point."""
    count = 0
    again = True
    while again:
        again = False
        for node in _edit.nodes(model):
            if node.graph is None:
                continue
            rule = {"Transpose": _two_in_a_row, "Reshape": _around_a_swap}.get(node.op_type if not node.domain else "")
            if rule is not None and rule(node):
                count, again = count + 1, True
    return count
