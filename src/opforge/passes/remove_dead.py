"""Nodes and initializers that no output needs are removed."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "remove_dead"
REQUIRES: tuple[str, ...] = ("sorted",)
ENSURES: tuple[str, ...] = ()


def call(model: ir.Model) -> int:
    """Remove dead nodes bottom up, then initializers without readers."""
    count = 0
    for graph in _edit.graphs(model):
        for node in reversed(list(graph)):
            if node.graph is not None and not any(o.uses() or o.is_graph_output() for o in node.outputs):
                graph.remove(node, safe=True)
                count += 1
    for graph in _edit.graphs(model):
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del graph.initializers[name]
                count += 1
    return count
