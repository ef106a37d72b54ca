"""Replaces groups of nodes in a graph, one rule after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from opforge.bin.lowering.graph import Graph, Node, Value

__all__ = ["Rewriter"]


@dataclass
class Rewriter:
    """Collects replacements and applies them at once.

    Attributes:
        graph: changed by `settle`.
        gone: nodes that a replacement stands for.
        made: last of the replaced nodes -> what stands in its place.
        readers: of each value, as the graph was when `settle` was called last.
    """

    graph: Graph
    gone: set[Node] = field(default_factory=set)
    made: dict[Node, list[Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look up who reads what."""
        self.readers = self.graph.readers()

    def only_reader(self, value: Value) -> Node | None:
        """Return the node that alone reads a value, where it still stands."""
        found = self.readers.get(value, [])
        return found[0] if len(found) == 1 and not value.is_output and found[0] not in self.gone else None

    def replace(self, nodes: list[Node], *made: Node) -> None:
        """Put ``made`` where the last of ``nodes`` stands."""
        self.gone.update(nodes)
        self.made[nodes[-1]] = list(made)

    def settle(self) -> None:
        """Apply the replacements."""
        kept: list[Node] = []
        for node in self.graph.nodes:
            kept += self.made.get(node, [] if node in self.gone else [node])
        self.graph.nodes = kept
        for node in kept:
            for value in node.outputs:
                if value is not None:
                    value.producer = node
        self.gone, self.made = set(), {}
        self.readers = self.graph.readers()
