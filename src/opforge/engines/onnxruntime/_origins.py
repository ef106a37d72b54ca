"""Which nodes of a model each node of the optimised model stands for.

A value keeps its name through ONNX Runtime's optimiser. So what a node of the optimised model computes is found by a
walk through the model from the node's outputs to its inputs. A node that makes a value in blocks of channels is named
after the plain one with a suffix, and one that only changes the layout stands for nothing. Where it made other values
that the model does not have (halves of a fusion), the nodes around these stand for the same nodes together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["origins_of", "walk"]

_BLOCKED = "_nchwc"
_LAYOUT = ("ReorderInput", "ReorderOutput")


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
    plain = _plain_names(optimised, known)
    constants = {item.name for item in optimised.initializer}
    order = {id(node): k for k, node in enumerate(graph.node)}
    fixed = _constant_values(graph)
    found = {}
    for region in _regions([node for node in optimised.node if node.op_type not in _LAYOUT], plain):
        made = {v for node in region for v in node.output}
        outputs = [plain[v] for v in made if plain.get(v) in producer]
        inputs = {plain.get(v, v) for node in region for v in node.input if v and v not in made and v not in constants}
        nodes: dict[int, onnx.NodeProto] = {}
        pending = list(outputs)
        while pending:
            value = pending.pop()
            node = producer.get(value)
            if node is None or value in inputs or id(node) in nodes or value in fixed:
                continue
            nodes[id(node)] = node
            pending += node.input
        ordered = sorted(nodes.values(), key=lambda node: order[id(node)])
        names = tuple(node.name or node.output[0] for node in ordered)
        found.update(dict.fromkeys((node.name for node in region if node.name), names))
    return found


def _constant_values(graph: onnx.GraphProto) -> set[str]:
    """Return the values that depend on no input: they are computed once, and by nobody who runs."""
    inputs = {item.name for item in graph.input} - {item.name for item in graph.initializer}
    varying = set(inputs)
    for node in graph.node:
        if (
            any(value in varying for value in node.input)
            or node.op_type.startswith("Random")
            or (node.attribute and any(attribute.HasField("g") for attribute in node.attribute))
        ):
            varying.update(node.output)
    return {value for node in graph.node for value in node.output} - varying


def _plain_names(graph: onnx.GraphProto, known: set[str]) -> dict[str, str]:
    """Return the value of the model that each value of the optimised one holds, in whatever layout."""
    names = {name: name for name in known}
    for node in graph.node:
        for value in node.output:
            if node.op_type in _LAYOUT and value not in known and node.input[0] in names:
                names[value] = names[node.input[0]]
            elif node.name.endswith(_BLOCKED) and node.name.removesuffix(_BLOCKED) in known:
                names[value] = node.name.removesuffix(_BLOCKED)
    return names


def _regions(nodes: Sequence[onnx.NodeProto], plain: Mapping[str, str]) -> Iterable[list[onnx.NodeProto]]:
    """Join nodes that are connected by values which the model does not have."""
    parent = list(range(len(nodes)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    maker = {value: k for k, node in enumerate(nodes) for value in node.output if value}
    for k, node in enumerate(nodes):
        for value in node.input:
            if value in maker and value not in plain:
                parent[root(k)] = root(maker[value])
    regions: dict[int, list[onnx.NodeProto]] = {}
    for k, node in enumerate(nodes):
        regions.setdefault(root(k), []).append(node)
    return regions.values()
