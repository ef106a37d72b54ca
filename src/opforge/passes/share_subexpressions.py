"""Equal computations are done once."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._operators import IMPURE, operator_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "share_subexpressions"
REQUIRES: tuple[str, ...] = ("sorted",)
ENSURES: tuple[str, ...] = ()

SMALL = 1024
"""Bytes up to which equal constants are found by their contents."""


def _pure(node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx"):
        operator = operator_of(node)
        return operator is not None and operator.pure and operator.deterministic
    return node.op_type not in IMPURE


def _key(node: ir.Node) -> tuple[object, ...] | None:
    attributes = []
    for name, attr in sorted(node.attributes.items()):
        if attr.type in (
            ir.AttributeType.GRAPH,
            ir.AttributeType.GRAPHS,
            ir.AttributeType.TENSOR,
            ir.AttributeType.TENSORS,
            ir.AttributeType.TYPE_PROTO,
            ir.AttributeType.TYPE_PROTOS,
        ):
            return None
        value = attr.value
        attributes.append((name, attr.type, tuple(value) if isinstance(value, (list, tuple)) else value))
    inputs = tuple(None if v is None else id(v) for v in node.inputs)
    return (node.domain, node.op_type, inputs, tuple(attributes), len(node.outputs))


def _share_constants(graph: ir.Graph) -> int:
    seen: dict[tuple[object, ...], ir.Value] = {}
    count = 0
    for value in list(graph.initializers.values()):
        data = _edit.array(value)
        if data is None or data.nbytes > SMALL or data.dtype == object or value.is_graph_output():
            continue
        first = seen.setdefault((data.dtype.str, data.shape, data.tobytes(), value.dtype), value)
        if first is not value and value.uses():
            _edit.replace_value(value, first)
            count += 1
    return count


def call(model: ir.Model) -> int:
    """Share within each graph, in schedule order, so that chains collapse in one go."""
    count = 0
    for graph in _edit.graphs(model):
        count += _share_constants(graph)
        seen: dict[tuple[object, ...], ir.Node] = {}
        for node in list(graph):
            key = _key(node) if _pure(node) else None
            if key is None:
                continue
            first = seen.setdefault(key, node)
            if first is node or any(o.is_graph_output() for o in node.outputs):
                continue
            for old, new in zip(node.outputs, first.outputs, strict=True):
                _edit.replace_value(old, new)
            graph.remove(node, safe=True)
            count += 1
    return count
