"""The compiled program in memory: what the compiler makes and the writer stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opforge.bin.packing import Late

__all__ = ["Dim", "Graph", "GraphRef", "Layout", "Node", "Place", "Program", "RequiredOperator", "Value"]

Dim = int | str | None
"""A dimension: a number, an expression over symbols ("N", "2*N+1", "N//2"), or None when known at run time only."""


@dataclass(frozen=True)
class Layout:
    """Placement of a value: ``plain``, ``c16``, ``nhwc`` or ``nhwc16``; halo (top, left, bottom, right) in pixels."""

    kind: str = "plain"
    halo: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass
class Value:
    """One tensor of a graph, or a sequence or optional of tensors.

    Attributes:
        name: unique within the program; original ONNX name where there is one.
        dtype: ONNX ``TensorProto.DataType`` number.
        shape: logical dimensions, or None when even the rank is unknown.
        layout: placement in memory.
        data: packed bytes of a constant (any array, stored as it lies, or one that is packed late), else None. Of
            strings their numbers in ``Program.texts``, as u32.
        packing: how ``data`` is packed ("" = dense row-major), e.g. "matmul16", "conv16", "winograd16".
        kind: "tensor", "sequence", "optional" or "optional_sequence"; of the latter three, ``dtype`` and ``shape`` are
            those of the tensors inside.
    """

    name: str
    dtype: int
    shape: list[Dim] | None
    layout: Layout = field(default_factory=Layout)
    data: np.ndarray[Any, Any] | Late | None = None
    packing: str = ""
    kind: str = "tensor"


@dataclass(frozen=True)
class GraphRef:
    """Attribute value that names a subgraph by its index in ``Program.graphs``."""

    index: int


@dataclass
class Node:
    """One operation.

    Attributes:
        domain: "" for ONNX operators (newest opset), "opforge" for those of the compiler, else the operator's own.
        op: operator name.
        since_version: the since_version of the operator that this node means.
        inputs: value indices, -1 for an absent optional input.
        outputs: value indices, -1 for an output that nobody reads.
        attributes: int, float, str, bytes (formula bytecode), list of int, float, str, or GraphRef.
        origin: names of the original nodes, for the debug section.
        optional: a reader that does not know the operator may leave the node out when nobody reads its outputs.
    """

    domain: str
    op: str
    since_version: int
    inputs: list[int]
    outputs: list[int]
    attributes: dict[str, Any] = field(default_factory=dict)
    origin: list[str] = field(default_factory=list)
    optional: bool = False


@dataclass
class Graph:
    """Nodes in schedule order; ``inputs``, ``outputs``, ``captures`` (from the outer graph) are value indices."""

    name: str
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class RequiredOperator:
    """A kernel operator that the program needs from a library."""

    domain: str
    name: str
    version: int
    library: str
    schema_hash: str
    content_hash: str
    signature: str
    types: str


@dataclass(frozen=True)
class Place:
    """Where a node of the model comes from, as far as the exporter said.

    Attributes:
        scope: path of the module, e.g. ``encoder.layer.0.attention``; "" where unknown.
        source: file and line, e.g. ``models/net.py:12``; "" where unknown.
    """

    scope: str = ""
    source: str = ""


@dataclass
class Program:
    """A whole model. ``graphs[0]`` is the main graph; ``values`` is shared by all graphs.

    ``places`` says where nodes of the model come from, by the names that ``Node.origin`` has. ``texts`` are what the
    elements of constants of strings are numbers of; the first one is empty, and they differ.
    """

    values: list[Value] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    required: list[RequiredOperator] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    target: str = "cpu"
    cpu_features: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    texts: list[str] = field(default_factory=lambda: [""])
