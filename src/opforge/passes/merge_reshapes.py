"""A reshape of a reshape reads the first one's input; what gives back an earlier shape falls away."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "merge_reshapes"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def _absolute(node: ir.Node) -> bool:
    """Tell whether a Reshape's target means the same on any input of as many elements (no 0 that copies)."""
    dims = dims_of(node.outputs[0])
    known = node.inputs[1].meta.get("known") if node.inputs[1] is not None else None
    if dims is None or known is None:
        return False
    return bool(_edit.attribute(node, "allowzero", 0)) or not any(d == 0 for d in known)


def call(model: ir.Model) -> int:
    """Bypass, then drop pairs that give back the first input."""
    count = 0
    for node in _edit.nodes(model):
        if node.graph is None or node.domain or node.op_type not in VIEWS or node.inputs[0] is None:
            continue
        before = node.inputs[0].producer()
        if before is None or before.domain or before.op_type not in VIEWS or before.inputs[0] is None:
            continue
        source = before.inputs[0]
        if source.graph is not node.graph and source.producer() is not None:
            continue
        same = dims_of(source) is not None and dims_of(source) == dims_of(node.outputs[0])
        if same and not node.outputs[0].is_graph_output():
            _edit.replace_value(node.outputs[0], source)
            _edit.drop_if_unused(node)
        elif node.op_type == "Reshape" and _absolute(node):
            _edit.replace_node(node, "Reshape", [source, node.inputs[1]], node.attributes, also=[before])
        else:
            continue
        count += 1
    return count
