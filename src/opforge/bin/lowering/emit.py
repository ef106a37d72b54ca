"""From the compiler's graph to ``bin.program.Program``: numbers for values, packed weights, names of dimensions."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from opforge.bin import program
from opforge.bin.encode import STRING, SUB_BYTE, pack_bits
from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.bin.packing import ELEMENTS, PACKERS, Late
from opforge.errors import ArgumentError
from opforge.passes._dims import Dim

__all__ = ["emit"]

_HIDDEN = ("rows", "key")
"""Attributes that only the compiler reads."""


class _Names:
    """Names of dimensions as Python identifiers, which dimension expressions need."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def text(self, dim: Dim) -> program.Dim:
        """Write a dimension for the program: a number, an expression, or None."""
        if dim.constant is not None:
            return dim.constant
        if dim.is_anonymous:
            return None
        text = str(dim)
        for name in sorted(dim.names, key=len, reverse=True):
            text = text.replace(name, self._identifier(name))
        return None if text.startswith("-") else text

    def _identifier(self, name: str) -> str:
        if name not in self._seen:
            plain = re.sub(r"\W", "_", name)
            plain = f"d_{plain}" if not plain.isidentifier() or keyword.iskeyword(plain) else plain
            while plain in self._seen.values():
                plain += "_"
            self._seen[name] = plain
        return self._seen[name]


def _unique(name: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken; `taken` holds the number that each name was last continued with."""
    free, k = name or "value", taken.get(name, 0)
    while free in taken:
        k += 1
        free = f"{name}_{k}"
    taken[name] = k
    taken[free] = 0
    return free


LATE = 1 << 20
"""Bytes of weights from which on they are packed when the file is written."""


def _data(value: Value) -> np.ndarray[Any, Any] | Late | None:
    if value.data is None:
        return None
    if value.dtype in SUB_BYTE and not value.packing:
        return pack_bits(value.data, SUB_BYTE[value.dtype])
    if value.data.nbytes >= LATE and (value.packing in ELEMENTS or not value.packing):
        return value.data if not value.packing and value.data.flags.c_contiguous else Late(value.data, value.packing)
    return PACKERS[value.packing](value.data) if value.packing else np.asarray(value.data, order="C")


class _Emitter:
    """Numbers values and graphs; a value inside a subgraph that stands for an outer one has the outer one's number."""

    def __init__(self, main: Graph, tick: Callable[[], None]) -> None:
        self.made = program.Program()
        self.index: dict[Value, int] = {}
        self.names = _Names()
        self.taken: dict[str, int] = {v.name: 0 for v in (*main.inputs, *main.outputs)}
        self.fixed = {*main.inputs, *main.outputs}
        self.tick = tick
        self.texts: dict[str, int] = {"": 0}

    def number(self, value: Value | None) -> int:
        if value is None:
            return -1
        if value not in self.index:
            name = value.name if value in self.fixed else _unique(value.name, self.taken)
            shape = None if value.dims is None else [self.names.text(d) for d in value.dims]
            self.index[value] = len(self.made.values)
            data = self.strings(value) if value.dtype == STRING else _data(value)
            self.made.values.append(
                program.Value(name, value.dtype, shape, value.layout, data, value.packing, value.kind)
            )
            self.tick()
        return self.index[value]

    def strings(self, value: Value) -> np.ndarray[Any, Any] | None:
        """Return the numbers of a constant's texts."""
        if value.data is None:
            return None
        try:
            texts = [item.decode() if isinstance(item, bytes) else str(item) for item in value.data.reshape(-1)]
        except UnicodeDecodeError as error:
            raise ArgumentError(
                "a constant of strings is not valid UTF-8", where=f"value {value.name!r}", got=str(error)
            ) from error
        if any("\0" in text for text in texts):
            raise ArgumentError("a constant of strings holds a zero byte", where=f"value {value.name!r}")
        numbers = [self.texts.setdefault(text, len(self.texts)) for text in texts]
        return np.array(numbers, "<u4").reshape(value.data.shape)

    def graph(self, graph: Graph) -> int:
        """Emit a graph and those inside it; return its index."""
        index = len(self.made.graphs)
        made = program.Graph(graph.name, inputs=[self.number(v) for v in graph.inputs])
        made.captures = list(dict.fromkeys(self.index[inside] for _, inside in graph.captures))
        self.made.graphs.append(made)
        for node in graph.nodes:
            made.nodes.append(self.node(node))
        made.outputs = [self.number(v) for v in graph.outputs]
        return index

    def node(self, node: Node) -> program.Node:
        inputs = [self.number(v) for v in node.inputs]
        if node.subgraphs:
            own = inputs[: node.formal]
        else:
            own = inputs
            while own and own[-1] == -1:
                own.pop()
        attributes = {k: v for k, v in node.attributes.items() if k not in _HIDDEN}
        for name, inner in node.subgraphs.items():
            for place, inside in inner.captures:
                self.index[inside] = inputs[place]
            attributes[name] = program.GraphRef(self.graph(inner))
        origin = list(dict.fromkeys(node.origin))
        outputs = [self.number(o) for o in node.outputs]
        return program.Node(node.domain, node.op, node.since, own, outputs, attributes, origin)


def emit(graph: Graph, tick: Callable[[], None] = lambda: None) -> program.Program:
    """Make the program of a graph and all graphs inside it."""
    emitter = _Emitter(graph, tick)
    emitter.graph(graph)
    emitter.made.texts = list(emitter.texts)
    return emitter.made
