"""What the rules of ``_opset_rules`` are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes.infer_shapes import dims_of

__all__ = [
    "TARGET",
    "Rule",
    "Writer",
    "constant",
    "drop",
    "rank_of",
    "refuse",
    "rename_output",
    "set_input",
    "take_attribute",
]

TARGET = 24
"""The opset in which everything behind the upgrade is written, and so are the nodes that rules add."""

Rule = Callable[[ir.Node], "list[ir.Node] | None"]
"""Rewrites a node in place; returns the nodes that stand for it in schedule order, None where it is still that node."""


def refuse(node: ir.Node, reason: str) -> UnsupportedError:
    """Return the error of a node that has no equal in newer opsets."""
    return UnsupportedError(reason, where=f"node {node.name or node.outputs[0].name!r} ({node.op_type})")


def drop(node: ir.Node, *names: str) -> None:
    """Remove attributes."""
    for name in names:
        node.attributes.pop(name, None)


def constant(node: ir.Node, data: Any, name: str) -> ir.Value:  # noqa: ANN401 - anything NumPy takes
    """Add a constant beside a node."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    return _edit.add_constant(graph, np.asarray(data), f"{node.outputs[0].name}__{name}")


def set_input(node: ir.Node, index: int, data: Any) -> None:  # noqa: ANN401 - anything NumPy takes
    """Let an input be a new constant."""
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    node.replace_input_with(index, constant(node, data, str(index)))


def take_attribute(node: ir.Node, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as many types as ONNX has
    """Return the value of an attribute and remove it."""
    value = _edit.attribute(node, name, default)
    drop(node, name)
    return value


def dims(node: ir.Node, index: int = 0) -> list[Dim] | None:
    """Return the dimensions of an input, None where it is absent or of unknown rank."""
    return dims_of(node.inputs[index]) if index < len(node.inputs) else None


def rank_of(node: ir.Node, index: int = 0) -> int:
    """Return the rank of an input.

    Raises:
        UnsupportedError: it is not known.
    """
    found = dims(node, index)
    if found is None:
        raise refuse(node, f"the rank of input {index} must be known to upgrade it")
    return len(found)


def rename_output(node: ir.Node, index: int, new: ir.Value) -> None:
    """Let everybody who reads an output read ``new``, which is computed from it; a graph output keeps its name."""
    old = node.outputs[index]
    new.type = old.type
    maker = new.producer()
    for user, position in list(old.uses()):
        if user is not maker:
            user.replace_input_with(position, new)
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    for k, output in enumerate(graph.outputs):
        if output is old:
            new.name, old.name = old.name, f"{old.name}__before"
            graph.outputs[k] = new


class Writer:
    """Writes nodes of the newest form before or after an old one, and remembers them in order."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.before: list[ir.Node] = []
        self.after: list[ir.Node] = []

    def op(self, op_type: str, *inputs: ir.Value | None, after: bool = False, **attributes: Any) -> ir.Value:  # noqa: ANN401
        """Append a node with one output."""
        made = ir.Node(
            "", op_type, inputs, ir.convenience.convert_attributes(attributes), num_outputs=1, name=self.node.name
        )
        made.version = TARGET
        graph = self.node.graph
        assert graph is not None
        if after:
            graph.insert_after(self.after[-1] if self.after else self.node, made)
            self.after.append(made)
        else:
            graph.insert_before(self.node, made)
            self.before.append(made)
        made.outputs[0].name = f"{self.node.outputs[0].name}__{op_type}{len(self.before) + len(self.after)}"
        return made.outputs[0]

    def nodes(self) -> list[ir.Node]:
        """Return the written nodes with the old one between them."""
        return [*self.before, self.node, *self.after]

    def replaced_by(self, value: ir.Value) -> list[ir.Node]:
        """Put a written value in the place of the old node's output, and the old node away."""
        old, graph = self.node, self.node.graph
        assert graph is not None
        value.type = old.outputs[0].type
        _edit.replace_value(old.outputs[0], value)
        graph.remove(old, safe=True)
        return self.before
