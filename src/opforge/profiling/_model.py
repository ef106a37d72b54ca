"""The nodes of an ONNX model by name: where they come from and what they compute, for engines that do not say it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.lowering.places import place_of
from opforge.bin.program import Place
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
        """Shapes of all values that ONNX's shape inference finds for these inputs."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        for item in model.graph.input:
            if item.name in self._inputs:
                dims = item.type.tensor_type.shape.dim
                for dim, size in zip(dims, np.shape(self._inputs[item.name]), strict=False):
                    dim.dim_value = size
        del model.graph.value_info[:]  # they hold the names of dimensions
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except Exception:
            return {}
        found: dict[str, Shape] = {item.name: tuple(item.dims) for item in inferred.initializer}
        self._types.update({item.name: item.data_type for item in inferred.initializer})
        for item in (*inferred.input, *inferred.value_info, *inferred.output):
            held = item.type.tensor_type
            self._types[item.name] = held.elem_type
            if held.HasField("shape") and all(d.HasField("dim_value") for d in held.shape.dim):
                found[item.name] = tuple(d.dim_value for d in held.shape.dim)
        return found


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)
