"""Rename a model's inputs and outputs without two values ever having one name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opforge.errors import ExportError

if TYPE_CHECKING:
    import onnx

__all__ = ["rename_values"]


def rename_values(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give graph inputs and outputs their names, in place; an inner value of such a name gets another one.

    torch's exporter renames blindly: an output called "embedding" meets the value of the same name that the
    embedding layer left, and the model is invalid.

    Args:
        model: with unique value names.
        inputs: names of the first inputs in order; the rest keep theirs.
        outputs: likewise.

    Raises:
        ExportError: more names than inputs or outputs, or one name twice.
    """
    graph = model.graph
    initializers = {item.name for item in graph.initializer}
    ends = {"input": [i for i in graph.input if i.name not in initializers], "output": list(graph.output)}
    wanted: dict[str, str] = {}
    for kind, names in (("input", inputs), ("output", outputs)):
        if len(names) > len(ends[kind]):
            raise ExportError(
                f"more {kind}_names than the model has {kind}s", expected=len(ends[kind]), got=list(names)
            )
        wanted.update({item.name: name for item, name in zip(ends[kind], names, strict=False)})
    if len(set(wanted.values())) < len(wanted):
        raise ExportError("two inputs or outputs would have one name", got=[*inputs, *outputs])
    taken = {name for name in _names(graph)} | set(wanted.values())
    for name in list(wanted.values()):
        if name not in wanted and name in _names(graph):
            fresh, count = f"{name}_1", 1
            while fresh in taken:
                count += 1
                fresh = f"{name}_{count}"
            taken.add(fresh)
            wanted[name] = fresh
    _apply(graph, {old: new for old, new in wanted.items() if old != new})


def _names(graph: onnx.GraphProto) -> set[str]:
    found = {item.name for item in (*graph.input, *graph.initializer)}
    for inner in _graphs(graph):
        found |= {name for node in inner.node for name in node.output}
    return found


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _graphs(inner)


def _apply(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for inner in _graphs(graph):
        for item in (*inner.input, *inner.output, *inner.value_info, *inner.initializer):
            item.name = names.get(item.name, item.name)
        for node in inner.node:
            for side in (node.input, node.output):
                for index, name in enumerate(side):
                    side[index] = names.get(name, name)
