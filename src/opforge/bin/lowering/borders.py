"""Conversions at the borders of a layout: each value is converted once, and results of a graph lie plain."""

from __future__ import annotations

from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.bin.program import Layout

__all__ = ["Borders"]


class Borders:
    """The nodes of a graph in their order, with the conversions that they need before them."""

    def __init__(self) -> None:
        """Start with no nodes."""
        self.nodes: list[Node] = []
        self._made: dict[tuple[Value, str], Value] = {}

    def converted(self, value: Value, kind: str) -> Value:
        """Return a value in another layout, converting it here where no earlier node did."""
        key = (value, kind)
        if key not in self._made:
            self._made[key] = Value(f"{value.name}__{kind}", value.dtype, value.dims, layout=Layout(kind))
            self.nodes.append(Node("opforge", "Reorder", 1, [value], [self._made[key]]))
        return self._made[key]

    def finish(self, graph: Graph, *kinds: str) -> None:
        """Convert the results that lie in one of these layouts, under their names, and hand the nodes over."""
        for k, value in enumerate(graph.outputs):
            if value.layout.kind in kinds:
                plain = self.converted(value, "plain")
                plain.name, value.name = value.name, f"{value.name}__{value.layout.kind}"
                plain.is_output, value.is_output = True, False
                graph.outputs[k] = plain
        graph.nodes = self.nodes
