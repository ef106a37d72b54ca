"""Which nodes of a model each node of the optimised model stands for.

A value keeps its name through ONNX Runtime's optimiser. So what a node of the optimised model computes is found by a
walk through the model from the node's outputs to its inputs. Where the optimiser made values that the model does not
have (blocked layouts, halves of a fusion), the nodes around these stand for the same nodes of the model together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["origins_of"]


def origins_of(model: Path, optimised: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each name of a node in the optimised model, names of the model's nodes (or first outputs).

    Nodes inside of subgraphs are left out: a profile does not tell apart whose they are.
    """
    import onnx

    return walk(
        onnx.load(str(model), load_external_data=False).graph, onnx.load(str(optimised), load_external_data=False).graph
    )


def walk(graph: onnx.GraphProto, optimised: onnx.GraphProto) -> dict[str, tuple[str, ...]]:
    """See `origins_of`."""
    producer = {value: node for node in graph.node for value in node.output if value}
    known = {*producer, *(item.name for item in graph.input), *(item.name for item in graph.initializer)}
    constants = {item.name for item in optimised.initializer}
    order = {id(node): k for k, node in enumerate(graph.node)}
    found = {}
    for region in _regions(optimised, known):
        outputs = [v for node in region for v in node.output if v in producer]
        inner = {v for node in region for v in node.output}
        inputs = {v for node in region for v in node.input if v and v not in inner and v not in constants}
        nodes: dict[int, onnx.NodeProto] = {}
        pending = list(outputs)
        while pending:
            value = pending.pop()
            node = producer.get(value)
            if node is None or value in inputs or id(node) in nodes:
                continue
            nodes[id(node)] = node
            pending += node.input
        ordered = sorted(nodes.values(), key=lambda node: order[id(node)])
        names = tuple(node.name or node.output[0] for node in ordered)
        found.update(dict.fromkeys((node.name for node in region if node.name), names))
    return found


def _regions(graph: onnx.GraphProto, known: set[str]) -> Iterable[list[onnx.NodeProto]]:
    """Join nodes that are connected by values which the model does not have."""
    parent: dict[int, int] = {}

    def root(k: int) -> int:
        while parent.setdefault(k, k) != k:
            k = parent[k]
        return k

    maker: Mapping[str, int] = {v: k for k, node in enumerate(graph.node) for v in node.output if v}
    for k, node in enumerate(graph.node):
        for value in node.input:
            if value in maker and value not in known:
                parent[root(k)] = root(maker[value])
    regions: dict[int, list[onnx.NodeProto]] = {}
    for k, node in enumerate(graph.node):
        regions.setdefault(root(k), []).append(node)
    return regions.values()
