"""The graph between ONNX and the program: like ``bin.program`` but linked by objects, so that it is easy to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opforge.bin.program import Layout
from opforge.passes._dims import Dim

__all__ = ["FLOAT", "FLOATS", "HALVES", "Graph", "Node", "Value"]

FLOAT = 1
FLOATS = frozenset({1, 10, 11, 16})
"""ONNX numbers of f32, f16, f64, bf16."""
HALVES = frozenset({10, 16})

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Value:
    """One tensor.

    Attributes:
        name: original ONNX name where there is one.
        dtype: ONNX number.
        dims: symbolic dimensions, or None when the rank is unknown.
        data: elements of a constant in its logical shape.
        layout: placement.
        packing: how ``data`` will be stored.
        producer: the node that makes it.
        is_output: whether it leaves its graph.
        kind: "tensor", or "sequence", "optional", "optional_sequence" of tensors with this dtype and these dims.
    """

    name: str
    dtype: int
    dims: list[Dim] | None
    data: Array | None = None
    layout: Layout = field(default_factory=Layout)
    packing: str = ""
    producer: Node | None = None
    is_output: bool = False
    kind: str = "tensor"

    @property
    def rank(self) -> int | None:
        """Number of dimensions."""
        return None if self.dims is None else len(self.dims)

    @property
    def is_blocked(self) -> bool:
        """Whether it lies in blocks of 16 channels."""
        return self.layout.kind == "c16"

    @property
    def is_nhwc(self) -> bool:
        """Whether the channels of a pixel lie side by side."""
        return self.layout.kind in ("nhwc", "nhwc16")


@dataclass(eq=False)
class Node:
    """One operation.

    A node with subgraphs has what they read of the graph around as further inputs, behind its own ``formal`` ones, so
    that whoever looks for readers of a value or changes its layout need not know about subgraphs.
    """

    domain: str
    op: str
    since: int
    inputs: list[Value | None]
    outputs: list[Value | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    origin: list[str] = field(default_factory=list)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    formal: int = -1

    def __post_init__(self) -> None:
        """Link the outputs."""
        for value in self.outputs:
            if value is not None:
                value.producer = self

    @property
    def output(self) -> Value:
        """The first output."""
        value = self.outputs[0]
        assert value is not None
        return value

    @property
    def gives_blocks(self) -> bool:
        """Whether its first output lies in blocks of channels."""
        return bool(self.outputs) and self.outputs[0] is not None and self.outputs[0].is_blocked

    def is_made(self, *names: str) -> bool:
        """Tell whether it is one of the named nodes of domain ``opforge``."""
        return self.domain == "opforge" and self.op in names


@dataclass(eq=False)
class Graph:
    """Nodes in schedule order.

    A subgraph reads an outer value through a value of its own, so that it looks like an input; ``captures`` says which
    input of the holding node that value stands for. Constants are shared between graphs.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    captures: list[tuple[int, Value]] = field(default_factory=list)

    def walk(self) -> Iterator[Graph]:
        """Yield this graph and all graphs inside it, outer ones first."""
        yield self
        for node in self.nodes:
            for inner in node.subgraphs.values():
                yield from inner.walk()

    def readers(self) -> dict[Value, list[Node]]:
        """Return who reads each value (a node once per input)."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value is not None:
                    found.setdefault(value, []).append(node)
        return found

    def values(self) -> Iterator[Value]:
        """Yield every value once: inputs, then in order of first use."""
        seen: set[Value] = set()
        nodes = (v for n in self.nodes for v in (*n.inputs, *n.outputs))
        for value in (*self.inputs, *nodes, *self.outputs):
            if value is not None and value not in seen:
                seen.add(value)
                yield value

    def sort(self) -> None:
        """Bring the nodes into topological order, keeping the present order where it is one."""
        done: set[Node] = set()
        order: list[Node] = []
        for root in self.nodes:
            stack = [root]
            while stack:
                node = stack[-1]
                waiting = [
                    v.producer
                    for v in node.inputs
                    if v is not None and v.producer is not None and v.producer not in done
                ]
                if node in done or not waiting:
                    stack.pop()
                    if node not in done:
                        done.add(node)
                        order.append(node)
                else:
                    stack.extend(waiting)
        self.nodes = order
