"""From the compiler's graph to ``bin.program.Program``: numbers for values, packed weights, names of dimensions."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from opforge.bin import program
from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.bin.packing import PACKERS
from opforge.passes._dims import Dim

__all__ = ["emit"]

_HIDDEN = ("rows",)
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


def _unique(name: str, taken: set[str]) -> str:
    free, k = name or "value", 0
    while free in taken:
        k += 1
        free = f"{name}_{k}"
    taken.add(free)
    return free


def _data(value: Value) -> np.ndarray[Any, Any] | None:
    if value.data is None:
        return None
    return PACKERS[value.packing](value.data) if value.packing else np.asarray(value.data, order="C")


def emit(graph: Graph, tick: Callable[[], None] = lambda: None) -> program.Program:
    """Make the program of one graph."""
    made = program.Program()
    index: dict[Value, int] = {}
    names = _Names()
    taken: set[str] = {v.name for v in (*graph.inputs, *graph.outputs)}
    fixed = {*graph.inputs, *graph.outputs}

    def number(value: Value | None) -> int:
        if value is None:
            return -1
        if value not in index:
            name = value.name if value in fixed else _unique(value.name, taken)
            shape = None if value.dims is None else [names.text(d) for d in value.dims]
            index[value] = len(made.values)
            made.values.append(program.Value(name, value.dtype, shape, value.layout, _data(value), value.packing))
            tick()
        return index[value]

    main = program.Graph(graph.name, inputs=[number(v) for v in graph.inputs])
    for node in graph.nodes:
        main.nodes.append(_node(node, number))
    main.outputs = [number(v) for v in graph.outputs]
    made.graphs.append(main)
    return made


def _node(node: Node, number: Callable[[Value | None], int]) -> program.Node:
    inputs = [number(v) for v in node.inputs]
    while inputs and inputs[-1] == -1:
        inputs.pop()
    attributes = {k: v for k, v in node.attributes.items() if k not in _HIDDEN}
    origin = list(dict.fromkeys(node.origin))
    return program.Node(node.domain, node.op, node.since, inputs, [number(o) for o in node.outputs], attributes, origin)
