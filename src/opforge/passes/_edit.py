"""Small edits and questions on onnx-ir graphs that every pass needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = [
    "add_constant",
    "array",
    "attribute",
    "drop_if_unused",
    "graphs",
    "insert_before",
    "is_op",
    "nodes",
    "only_consumer",
    "replace_node",
    "replace_value",
    "scalar",
    "set_meta",
    "subgraphs",
    "texts",
]

Array = np.ndarray[Any, Any]


def graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph, then every subgraph."""
    yield model.graph
    yield from model.graph.subgraphs()


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """Return the graphs that a node holds, outermost only."""
    found: list[ir.Graph] = []
    for attr in node.attributes.values():
        if attr.type is ir.AttributeType.GRAPH:
            found.append(attr.as_graph())
        elif attr.type is ir.AttributeType.GRAPHS:
            found.extend(attr.as_graphs())
    return found


def nodes(model: ir.Model) -> list[ir.Node]:
    """Return all nodes of all graphs (a copy, so that the graphs may change meanwhile)."""
    return [n for g in graphs(model) for n in g]


def is_op(node: ir.Node | None, *names: str, domain: str = "") -> bool:
    """Tell whether a node is one of the named operators of ``domain``."""
    return node is not None and node.op_type in names and (node.domain or "").replace("ai.onnx", "") == domain


def array(value: ir.Value | None) -> Array | None:
    """Return the elements of a constant (strings as an array of objects: str, or bytes that are none), else None."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    tensor = value.const_value
    return texts(tensor) if tensor.dtype is ir.DataType.STRING else tensor.numpy()


def texts(tensor: ir.TensorProtocol) -> Array:
    """Return the elements of a tensor of strings as an array of objects: str, or bytes where they are no UTF-8."""
    if isinstance(tensor, ir.StringTensor):
        listed = list(tensor.string_data())  # NumPy's bytes would lose zeros at the end
    else:
        listed = np.asarray(tensor.numpy(), object).reshape(-1).tolist()
    made = np.empty(len(listed), object)
    for k, item in enumerate(listed):
        try:
            made[k] = item.decode() if isinstance(item, bytes) else str(item)
        except UnicodeDecodeError:
            made[k] = item
    return made.reshape(tensor.shape.numpy())


def scalar(value: ir.Value | None) -> float | None:
    """Return the number that a one-element constant holds, else None."""
    data = array(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as many types as ONNX has
    """Return the value of an attribute or ``default``; strings as str, lists as lists."""
    found = node.attributes.get(name)
    if found is None:
        return default
    value = found.value
    return list(value) if isinstance(value, (tuple, list)) else value


def only_consumer(value: ir.Value) -> ir.Node | None:
    """Return the one node that reads ``value`` (once), unless it is also a graph output or stands in another graph.

    What a subgraph reads of the graph around it stays where it is: a loop would compute it again and again.
    """
    uses = list(value.uses())
    alone = len(uses) == 1 and not value.is_graph_output() and uses[0].node.graph is value.graph
    return uses[0].node if alone else None


def add_constant(graph: ir.Graph, data: Array | float | int, name: str = "constant") -> ir.Value:
    """Add an initializer under a free name that begins with ``name``."""
    data = np.asarray(data)
    taken, free, k = graph.initializers, name, 0
    while free in taken:
        k += 1
        free = f"{name}_{k}"
    value = ir.Value(name=free, shape=ir.Shape(data.shape), type=ir.TensorType(ir.tensor(data).dtype))
    value.const_value = ir.tensor(data, name=free)
    graph.register_initializer(value)
    return value


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of ``old`` read ``new``; a graph output keeps its name."""
    for user, index in list(old.uses()):
        user.replace_input_with(index, new)
    if not old.is_graph_output():
        return
    graph = old.graph
    assert isinstance(graph, ir.Graph)
    positions = [k for k, v in enumerate(graph.outputs) if v is old]
    movable = new.producer() is not None and new.graph is graph and not new.is_graph_output()
    if movable:
        name, old.name = old.name, None
        new.name = name
        if new.shape is None:
            new.shape = old.shape
    else:
        anchor = old.producer()
        assert anchor is not None
        identity = ir.Node("", "Identity", [new], num_outputs=1)
        graph.insert_after(anchor, identity)
        name, old.name = old.name, None
        copy = identity.outputs[0]
        copy.name, copy.type, copy.shape = name, old.type, old.shape
        copy.meta.update(old.meta)
        new = copy
    for k in positions:
        graph.outputs[k] = new


def insert_before(anchor: ir.Node, node: ir.Node) -> ir.Node:
    """Insert a node and hand it back."""
    graph = anchor.graph
    assert graph is not None
    graph.insert_before(anchor, node)
    return node


def set_meta(value: ir.Value, like: ir.Value) -> None:
    """Give ``value`` type, shape and symbolic dimensions of ``like``."""
    value.type, value.shape = like.type, like.shape
    for key in ("dims", "known"):
        if key in like.meta:
            value.meta[key] = like.meta[key]


def replace_node(
    old: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = "",
    also: Sequence[ir.Node] = (),
) -> ir.Node:
    """Put a one-output node in the place of ``old`` (whose first output it gives) and drop what became unused.

    ``also`` names further nodes whose origin the new node stands for.
    """
    given = dict(attributes or {})
    attrs = [v for v in given.values() if isinstance(v, ir.Attr)]
    attrs += ir.convenience.convert_attributes({k: v for k, v in given.items() if not isinstance(v, ir.Attr)})
    node = ir.Node(domain, op_type, inputs, attrs, num_outputs=1, name=old.name)
    insert_before(old, node)
    set_meta(node.outputs[0], old.outputs[0])
    node.outputs[0].name = f"{old.outputs[0].name}__{op_type}"
    names = [n.name for n in (*also, old) if n.name]
    node.metadata_props["opforge.origin"] = ",".join(dict.fromkeys(names))
    replace_value(old.outputs[0], node.outputs[0])
    drop_if_unused(old)
    return node


def drop_if_unused(node: ir.Node) -> int:
    """Remove a node whose outputs nobody reads, then its producers likewise; return how many went."""
    graph = node.graph
    if graph is None or any(o.uses() or o.is_graph_output() for o in node.outputs):
        return 0
    producers = [p for v in node.inputs if v is not None and (p := v.producer()) is not None]
    graph.remove(node, safe=True)
    return 1 + sum(drop_if_unused(p) for p in dict.fromkeys(producers))
