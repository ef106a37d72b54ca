"""The nodes of an ONNX model by name: where they come from and what they compute, for engines that do not say it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.lowering.places import place_of
from opforge.bin.program import Place
from opforge.errors import OpforgeError
from opforge.onnx._read import read_model
from opforge.profiling._flops import Shape, bytes_of, flops_of

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelNodes"]


class ModelNodes:
    """Nodes of a model for given inputs.

    Args:
        path: the model.
        inputs: their shapes decide the shapes of all values.
    """

    def __init__(self, path: Path, inputs: Mapping[str, Any]) -> None:
        self._model = read_model(path)
        self._inputs = inputs
        self.places: dict[str, Place] = {}
        self._nodes: dict[str, onnx.NodeProto] = {}
        self._types: dict[str, int] = {}
        for node in _all_nodes(self._model.graph):
            name = node.name or (node.output[0] if node.output else "")
            self._nodes[name] = node
            self.places[name] = place_of(name, {item.key: item.value for item in node.metadata_props})

    def named(self, name: str) -> tuple[str, ...]:
        """Return the node that an engine calls by its own name or by that of an output; nothing where there is none."""
        found = name if name in self._nodes else self._makers.get(name)
        return () if found is None else (found,)

    @cached_property
    def _makers(self) -> dict[str, str]:
        return {value: name for name, node in self._nodes.items() for value in node.output if value}

    def completed(self, claims: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Add to what nodes of an engine say they stand for the nodes of the model whose results only they can read.

        An engine may lose the name of a node that it fuses. What nobody claims, and is read by nodes of one claim
        alone, is computed there too.
        """
        owner = {name: k for k, claim in enumerate(claims) for name in claim}
        added: dict[int, list[str]] = defaultdict(list)
        names = {id(node): name for name, node in self._nodes.items()}
        for name, node in reversed(self._nodes.items()):
            readers = {owner.get(names[reader], -1) for value in node.output for reader in self._readers[value]}
            if name in owner or len(readers) != 1 or -1 in readers or self._results & set(node.output):
                continue
            if not any(self._varies(value) for value in node.input):
                continue  # a constant
            (owner[name],) = readers
            added[owner[name]].append(name)
        order = {name: k for k, name in enumerate(self._nodes)}
        return [
            tuple(sorted((*claim, *added[k]), key=lambda name: order.get(name, 0))) if added[k] else claim
            for k, claim in enumerate(claims)
        ]

    def _varies(self, value: str) -> bool:
        """Whether a value depends on an input."""
        return value in self._varying

    @cached_property
    def _varying(self) -> set[str]:
        constants = {item.name for item in self._model.graph.initializer}
        found = {item.name for item in self._model.graph.input} - constants
        for node in self._nodes.values():
            if any(value in found for value in node.input):
                found.update(node.output)
        return found

    def flops(self, names: Sequence[str]) -> int | None:
        """Count the operations of these nodes together; None where one is not known."""
        counts = [self._count(name) for name in names]
        known = [count for count in counts if count is not None]
        return sum(known) if counts and len(known) == len(counts) else None

    def bytes(self, names: Sequence[str]) -> int | None:
        """Count what these nodes read and write, without values between them; None where a size is unknown."""
        nodes = [self._nodes.get(name) for name in names]
        if not nodes or None in nodes:
            return None
        known = [node for node in nodes if node is not None]
        made = {value for node in known for value in node.output if value}
        read = list(dict.fromkeys(value for node in known for value in node.input if value and value not in made))
        kept = [
            value for value in made if self._readers[value] - {id(node) for node in known} or value in self._results
        ]
        sizes = {value: self._size(value) for value in (*read, *kept)}
        if None in sizes.values():
            return None
        inputs, outputs = ([sizes[value] or 0 for value in group] for group in (read, kept))
        return bytes_of(known[0].op_type if len(known) == 1 else "", inputs, outputs)

    def _size(self, value: str) -> int | None:
        shape, dtype = self._shapes.get(value), self._types.get(value, 0)
        if shape is None or dtype not in NUMPY_DTYPES:
            return None
        return math.prod(shape) * NUMPY_DTYPES[dtype].itemsize

    @cached_property
    def _readers(self) -> dict[str, set[int]]:
        """Who reads each value, by identity."""
        found: dict[str, set[int]] = defaultdict(set)
        for node in self._nodes.values():
            for value in node.input:
                found[value].add(id(node))
        return found

    @cached_property
    def _results(self) -> set[str]:
        return {item.name for item in self._model.graph.output}

    def _count(self, name: str) -> int | None:
        from onnx.helper import get_attribute_value

        node = self._nodes.get(name)
        if node is None:
            return None
        attributes = {a.name: get_attribute_value(a) for a in node.attribute}
        plain = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
        shapes = self._shapes
        return flops_of(
            node.domain, node.op_type, [shapes.get(v) for v in node.input], [shapes.get(v) for v in node.output], plain
        )

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        """Shapes of all values that the compiler's shape inference finds for these inputs."""
        from opforge.bin.lowering.load import load
        from opforge.passes import _edit, close_subgraphs, freeze_inputs, infer_shapes, lift_constants

        model, _ = load(self._model)
        for value in model.graph.inputs:
            if value.name is not None and value.name in self._inputs:
                value.shape = ir.Shape(np.shape(self._inputs[value.name]))
        for value in (value for node in _edit.nodes(model) for value in node.outputs):
            value.shape = None  # it holds the names of dimensions
        try:
            for graph_pass in (freeze_inputs, close_subgraphs, lift_constants, infer_shapes):
                graph_pass.call(model)
        except OpforgeError:  # of a model that the compiler refuses no shapes are known
            return {}
        found: dict[str, Shape] = {}
        for node in _edit.nodes(model):
            for used in (*node.inputs, *node.outputs):
                dims = infer_shapes.dims_of(used)
                if used is None or used.name is None or dims is None:
                    continue
                sizes = [dim.constant for dim in dims]
                known = tuple(size for size in sizes if size is not None)
                if len(known) == len(sizes):
                    found[used.name] = known
                    self._types[used.name] = int(used.dtype) if used.dtype is not None else 0
        return found


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)
