"""Dropout that drops nothing (at inference, or with a ratio of 0) gives its input, and a mask that is all true."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "lower_dropout"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _is_idle(node: ir.Node) -> bool:
    ratio, training = (node.inputs[k] if len(node.inputs) > k else None for k in (1, 2))
    if training is None or _edit.scalar(ratio) == 0:
        return True
    mode = _edit.scalar(training)
    return mode is not None and not mode


def call(model: ir.Model) -> int:
    """Replace by Identity, and the mask by an expanded constant."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "Dropout") or not _is_idle(node):
            continue
        graph, x = node.graph, node.inputs[0]
        assert isinstance(graph, ir.Graph)
        if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
            size = _edit.insert_before(node, ir.Node("", "Shape", [x], num_outputs=1, name=node.name))
            true = _edit.add_constant(graph, np.array(True), f"{node.outputs[1].name}__true")
            mask = ir.Node("", "Expand", [true, size.outputs[0]], num_outputs=1, name=node.name)
            _edit.insert_before(node, mask)
            _edit.set_meta(mask.outputs[0], node.outputs[1])
            _edit.replace_value(node.outputs[1], mask.outputs[0])
        _edit.replace_node(node, "Identity", [x])
        count += 1
    return count
