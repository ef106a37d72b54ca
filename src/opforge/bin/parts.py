"""Parts of a model that are worth compiling by themselves, for engines that run the rest.

A part is a matrix product or convolution with the elementwise nodes around it, a formula of ours among them: what the
compiler makes one node of. Its inputs and outputs keep their names, by which an execution provider finds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import onnx

from opforge.bin.compiler import compile as compile_model
from opforge.errors import OpforgeError
from opforge.onnx import infer_shapes
from opforge.onnx._walk import opset_versions
from opforge.onnx.elementwise import ROWS
from opforge.schema import discover, registry

__all__ = ["Part", "compile_parts", "find_parts"]

PRODUCTS: Final = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Part:
    """Nodes that compile to one program: ``nodes`` in the model's order, ``inputs`` and ``outputs`` by name."""

    nodes: tuple[onnx.NodeProto, ...] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        """Name the operators."""
        return " + ".join(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in self.nodes)


class _Graph:
    """The main graph with who makes and who reads each value."""

    def __init__(self, model: onnx.ModelProto) -> None:
        discover()
        self.nodes = list(model.graph.node)
        self.versions = opset_versions(model)
        self.makers = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for name in _reads(node):
                self.readers.setdefault(name, []).append(k)
        self.results = {item.name for item in model.graph.output}
        self.constants = {tensor.name for tensor in model.graph.initializer}
        self.constants |= {n.output[0] for n in self.nodes if n.op_type == "Constant" and not n.domain}

    def is_formula(self, k: int) -> bool:
        """Whether a node is a formula operator of ours."""
        node = self.nodes[k]
        operator = registry.find(node.domain, node.op_type, self.versions.get(node.domain)) if node.domain else None
        return operator is not None and operator.is_formula

    def is_elementwise(self, k: int) -> bool:
        """Whether a node computes each element by itself."""
        node = self.nodes[k]
        return self.is_formula(k) or (node.domain in ("", "ai.onnx") and node.op_type in ROWS)

    def is_product(self, k: int) -> bool:
        """Whether a node is one that elementwise nodes are fused into."""
        return self.nodes[k].domain in ("", "ai.onnx") and self.nodes[k].op_type in PRODUCTS

    def read_only_by(self, k: int, region: Iterable[int]) -> bool:
        """Whether nothing outside the region needs what the node makes."""
        inside = set(region)
        made = [name for name in self.nodes[k].output if name]
        return not self.results & set(made) and all(set(self.readers.get(name, ())) <= inside for name in made)

    def sole_reader(self, k: int) -> int | None:
        """The one node that reads what the node makes, if there is one."""
        made = [name for name in self.nodes[k].output if name]
        readers = {r for name in made for r in self.readers.get(name, ())}
        return readers.pop() if len(readers) == 1 and not self.results & set(made) else None


def find_parts(model: onnx.ModelProto) -> list[Part]:
    """Find the parts of a model's main graph, in order; no node is in two."""
    graph = _Graph(model)
    taken: set[int] = set()
    found: list[Part] = []
    for k in range(len(graph.nodes)):
        if k in taken or not graph.is_formula(k):
            continue
        region = _grow(graph, k, taken)
        if any(graph.is_product(i) for i in region):
            taken |= region
            found.append(_part(graph, region))
    return found


def _grow(graph: _Graph, seed: int, taken: set[int]) -> set[int]:
    region = {seed}
    last = seed
    while (reader := graph.sole_reader(last)) is not None and graph.is_elementwise(reader) and reader not in taken:
        region.add(reader)
        last = reader
    pending = sorted(region)
    while pending:
        node = pending.pop()
        if graph.is_product(node):
            continue  # what comes before it is not fused into it
        for name in graph.nodes[node].input:
            maker = graph.makers.get(name)
            if maker is None or maker in region or maker in taken or name in graph.constants:
                continue
            if (graph.is_elementwise(maker) or graph.is_product(maker)) and graph.read_only_by(maker, region):
                region.add(maker)
                pending.append(maker)
    return region


def _part(graph: _Graph, region: set[int]) -> Part:
    nodes = tuple(graph.nodes[k] for k in sorted(region))
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in node.input if name)
    outputs = [
        name
        for node in nodes
        for name in node.output
        if name and (name in graph.results or set(graph.readers.get(name, ())) - region)
    ]
    return Part(nodes, tuple(n for n in read if n not in made and n not in graph.constants), tuple(outputs))


def compile_parts(model: onnx.ModelProto, folder: Path) -> list[Part]:
    """Compile the parts of a model to files in ``folder``; parts that the compiler refuses are left out.

    Args:
        model: with its tensors.
        folder: where the files go, in the order of the parts.
    """
    parts = find_parts(model)
    if not parts:
        return []
    typed = infer_shapes(model)
    done: list[Part] = []
    for part, extracted in zip(parts, _models(typed, parts), strict=True):
        if extracted is None:
            continue
        try:
            compile_model(extracted, folder / f"part_{len(done):04}.bin")
        except OpforgeError:
            continue
        done.append(part)
    return done


def _models(model: onnx.ModelProto, parts: list[Part]) -> Iterator[onnx.ModelProto | None]:
    """Give each part as a model of its own; None where a value's type is not known."""
    graph = model.graph
    infos = {item.name: item for item in (*graph.input, *graph.value_info, *graph.output)}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    constants = {n.output[0]: n for n in graph.node if n.op_type == "Constant" and not n.domain}
    for part in parts:
        if not all(name in infos for name in (*part.inputs, *part.outputs)):
            yield None
            continue
        read = dict.fromkeys(name for node in part.nodes for name in node.input)
        yield onnx.helper.make_model(
            onnx.helper.make_graph(
                [*(constants[name] for name in read if name in constants), *part.nodes],
                "part",
                [infos[name] for name in part.inputs],
                [infos[name] for name in part.outputs],
                [tensors[name] for name in read if name in tensors],
            ),
            opset_imports=list(model.opset_import),
            ir_version=model.ir_version,
        )


def _reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, by its subgraphs too."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= _reads(inner)
            names |= {item.name for item in graph.output}
    return names
