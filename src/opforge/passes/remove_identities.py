"""Nodes that change nothing go: Identity, Dropout at inference, casts to the own type, empty reshapes and the like.

A CastLike whose type is known becomes a Cast, which constants fold through.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "remove_identities"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _always(node: ir.Node) -> bool:
    return True


def _dropout(node: ir.Node) -> bool:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    mode = _edit.array(training)
    idle = training is None or (mode is not None and not bool(mode))
    return idle and not any(o.uses() or o.is_graph_output() for o in node.outputs[1:])


def _cast(node: ir.Node) -> bool:
    x = node.inputs[0]
    return x is not None and x.dtype is not None and int(x.dtype) == int(_edit.attribute(node, "to"))


def _cast_like(node: ir.Node) -> bool:
    x, like = node.inputs[0], node.inputs[1]
    return x is not None and like is not None and x.dtype is not None and x.dtype == like.dtype


def _plain_cast(node: ir.Node) -> bool:
    """Replace a CastLike by a Cast."""
    like = node.inputs[1] if node.op_type == "CastLike" else None
    if like is None or like.dtype is None:
        return False
    _edit.replace_node(node, "Cast", [node.inputs[0]], {**node.attributes, "to": int(like.dtype)})
    return True


def _same_shape(node: ir.Node) -> bool:
    before, after = dims_of(node.inputs[0]), node.outputs[0].meta.get("dims")
    return before is not None and before == after


def _transpose(node: ir.Node) -> bool:
    perm = _edit.attribute(node, "perm")
    return perm is not None and perm == list(range(len(perm)))


def _one_input(node: ir.Node) -> bool:
    return len(node.inputs) == 1


def _pad(node: ir.Node) -> bool:
    pads = _edit.array(node.inputs[1]) if len(node.inputs) > 1 else None
    return pads is not None and not np.any(pads)


def _slice(node: ir.Node) -> bool:
    steps = _edit.array(node.inputs[4]) if len(node.inputs) > 4 else None
    return _same_shape(node) and (len(node.inputs) <= 4 or (steps is not None and bool(np.all(steps == 1))))


RULES: dict[str, Callable[[ir.Node], bool]] = {
    "Identity": _always,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Reshape": _same_shape,
    "Flatten": _same_shape,
    "Expand": _same_shape,
    "Squeeze": _same_shape,
    "Unsqueeze": _same_shape,
    "Tile": _same_shape,
    "Slice": _slice,
    "Transpose": _transpose,
    "Concat": _one_input,
    "Sum": _one_input,
    "Mean": _one_input,
    "Max": _one_input,
    "Min": _one_input,
    "Pad": _pad,
}
"""Operator -> whether this node does nothing."""


def call(model: ir.Model) -> int:
    """Bypass nodes that do nothing; one that joins a graph input or constant to an output has to stay."""
    count = 0
    for node in _edit.nodes(model):
        rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rule is None or node.graph is None or node.inputs[0] is None:
            continue
        if not rule(node):
            count += _plain_cast(node)
            continue
        x, y = node.inputs[0], node.outputs[0]
        if y.is_graph_output() and (x.producer() is None or x.is_graph_output() or x.graph is not node.graph):
            if node.op_type != "Identity":
                _edit.replace_node(node, "Identity", [x])  # it has to stay, in the plainest form
                count += 1
            continue
        _edit.replace_value(y, x)
        _edit.drop_if_unused(node)
        count += 1
    return count
