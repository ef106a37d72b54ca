"""Steps between quantised layers that run on their bytes: tables of all codes, sums, products, pools and moves.

``DequantizeLinear -> step -> QuantizeLinear`` with one scale on each side becomes one node that reads and writes bytes.
Whatever is elementwise and depends on one tensor is a table, filled by the model's own f32 words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opforge.bin.lowering import quantised_values as q
from opforge.bin.lowering.fuse import same_shape
from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.lowering.quantised_tables import join_operands, join_tables, skip_identities, table_node, table_of
from opforge.bin.lowering.rewriter import Rewriter
from opforge.bin.lowering.select import ELEMENTWISE

__all__ = ["find_steps"]

Array = np.ndarray[Any, Any]

MOVES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "DepthToSpace", "SpaceToDepth", "Expand")
"""Operators that move elements of any type, their data in the first input."""


def find_steps(graph: Graph) -> None:
    """Rewrite in place."""
    _settle_numbers(graph)
    copies = _own_conversions(graph)
    r = Rewriter(graph)
    for node in graph.nodes:
        if q.is_node(node, "MaxPool") and node.output.dtype in q.BYTES:
            window = _window(node)
            if window is not None:
                r.replace([node], Node("opforge", "IntegerPool", 1, node.inputs[:1], node.outputs, window, node.origin))
        codes = q.Codes.of(node) if node.op == "QuantizeLinear" else None
        source = q.operand(node, 0)
        if codes is None or source is None or source.producer is None or r.only_reader(source) is not node:
            continue
        rule = _RULES.get(source.producer.op) if source.producer.domain == "" else _elementwise
        if rule is not None:
            rule(r, node, codes)
    r.settle()
    _share_conversions(graph, copies)
    join_operands(graph)
    skip_identities(graph)
    _drop_unread(graph)
    join_tables(graph)


# -- conversions -----------------------------------------------------------------------------------------------------


def _settle_numbers(graph: Graph) -> None:
    """Constants of one element are numbers, whatever they were quantised to."""
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and not node.output.is_output and node.output.dtype == FLOAT:
            data = q.constant(node.output)
            if data is not None and data.size == 1:
                node.output.data, node.output.producer = np.ascontiguousarray(data), None
    graph.nodes = [n for n in graph.nodes if n.op != "DequantizeLinear" or n.output.data is None]


def _own_conversions(graph: Graph) -> dict[Value, Value]:
    """Give every reader of dequantised bytes a conversion of its own; return copy -> original."""
    readers, kept, copies = graph.readers(), [], {}
    for node in graph.nodes:
        kept.append(node)
        if node.op != "DequantizeLinear" or q.Codes.of(node) is None or node.output.is_output:
            continue
        for reader in readers.get(node.output, [])[1:]:
            own = Value(node.output.name, FLOAT, node.output.dims)
            copies[own] = node.output
            kept.append(Node("", node.op, node.since, list(node.inputs), [own], node.attributes, node.origin))
            reader.inputs[_last(reader.inputs, node.output)] = own
    graph.nodes = kept
    return copies


def _last(values: list[Value | None], value: Value) -> int:
    return max(k for k, v in enumerate(values) if v is value)


def _share_conversions(graph: Graph, copies: dict[Value, Value]) -> None:
    """Undo the copies that nothing fuses with: those that another node than an elementwise one still reads."""
    readers = graph.readers()
    shared = {
        own
        for own in copies
        if any(not n.is_made(ELEMENTWISE) and n.op != "QuantizeLinear" for n in readers.get(own, []))
    }
    standing = {n.output for n in graph.nodes if n.op == "DequantizeLinear"}
    for node in graph.nodes:
        node.inputs = [copies[v] if v in shared and copies[v] in standing else v for v in node.inputs]


def _source(value: Value | None) -> tuple[Value, q.Codes] | None:
    """Return the bytes behind a dequantised value and what they stand for."""
    node = value.producer if value is not None else None
    codes = q.Codes.of(node) if node is not None and node.op == "DequantizeLinear" else None
    x = node.inputs[0] if node is not None and codes is not None else None
    return None if x is None or codes is None or x.data is not None else (x, codes)


# -- elementwise -----------------------------------------------------------------------------------------------------


def _elementwise(r: Rewriter, last: Node, codes: q.Codes) -> None:
    """A function of one tensor is a table; a sum or product of two has a node of its own."""
    found = _region(r, last)
    if found is None:
        return
    region, leaves = found
    sources = {s[0] for leaf in leaves if (s := _source(leaf)) is not None}
    if len(sources) == 1:
        x = next(iter(sources))
        table = table_of(x, leaves, region, last) if same_shape(x, last.output) else None
        if table is not None:
            r.replace([*region, last], table_node(x, last.output, table, _origin([*region, last])))
    elif len(sources) == 2:
        made = _pair(region, last, codes)
        if made is not None:
            r.replace([*region, last], made)


def _region(r: Rewriter, last: Node) -> tuple[list[Node], list[Value]] | None:
    """Collect the elementwise nodes above a QuantizeLinear, in order, and the dequantised values that they read."""
    nodes: set[Node] = set()
    leaves: dict[Value, None] = {}
    stack = [v for v in last.inputs[:1] if v is not None]
    while stack:
        value = stack.pop()
        node = value.producer
        if value.data is not None or node in nodes:
            continue
        if _source(value) is not None:
            leaves[value] = None
            continue
        if node is None or node in r.gone or not node.is_made(ELEMENTWISE) or value.is_output:
            return None
        if len(nodes) > 32 or not same_shape(value, last.output):
            return None
        nodes.add(node)
        stack += [v for v in node.inputs if v is not None]
    if any(reader not in nodes and reader is not last for n in nodes for reader in r.readers.get(n.output, [])):
        return None
    return [n for n in r.graph.nodes if n in nodes], list(leaves)


def _pair(region: list[Node], last: Node, codes: q.Codes) -> Node | None:
    """``Add or Mul [-> Relu or Clip] -> QuantizeLinear`` of two tensors, of which one may be a number per channel."""
    y, value = last.output, last.inputs[0]
    ends = (-np.inf, np.inf)
    node = value.producer if value is not None else None
    if len(region) == 2 and node is not None and node.attributes["row"] in ("Relu", "Clip") and node.inputs[0]:
        given = q.bounds(node)
        if given is None:
            return None
        ends, node = given, node.inputs[0].producer
    if node is None or node.attributes["row"] not in ("Add", "Sum", "Mul") or len(node.inputs) != 2 or len(region) > 2:
        return None
    sources = [_source(v) for v in node.inputs]
    if sources[0] is None or sources[1] is None:
        return None
    if not same_shape(sources[0][0], y):
        sources.reverse()
    (a, a_codes), (b, b_codes) = sources  # type: ignore[misc]
    if not same_shape(a, y) or not (same_shape(b, y) or _per_channel(b, y)):
        return None
    least, most = (int(c) for c in codes.codes(np.array(ends, np.float32)))
    attributes: dict[str, Any] = {"least": least, "most": most}
    for name, what in (("a", a_codes), ("b", b_codes), ("y", codes)):
        attributes |= {f"{name}_scale": float(what.scale), f"{name}_zero": what.zero}
    op = "IntegerMul" if node.attributes["row"] == "Mul" else "IntegerAdd"
    return Node("opforge", op, 1, [a, b], [y], attributes, _origin([*region, last]))


def _per_channel(value: Value, y: Value) -> bool:
    if value.dims is None or y.dims is None or len(y.dims) != 4 or len(value.dims) != 4:
        return False
    return value.dims[:2] == y.dims[:2] and value.dims[2] == 1 and value.dims[3] == 1


# -- pools and moves -------------------------------------------------------------------------------------------------


def _requantised(x: Value, given: q.Codes, y: Value, wanted: q.Codes, origin: list[str]) -> tuple[list[Node], Value]:
    """Return nodes that bring bytes from one quantisation to another, and their result; none where both are equal."""
    if given == wanted:
        return [], x
    out = Value(f"{y.name}__codes", wanted.dtype, x.dims)
    return [table_node(x, out, given.table_to(wanted), origin)], out


def _moved(r: Rewriter, last: Node, codes: q.Codes) -> None:
    """The elements move as bytes, and change their quantisation before."""
    node = last.inputs[0].producer if last.inputs[0] is not None else None
    found = _source(node.inputs[0]) if node is not None else None
    if node is None or found is None or len([o for o in node.outputs if o is not None]) != 1:
        return
    before, x = _requantised(*found, last.output, codes, last.origin)
    made = Node("", node.op, node.since, [x, *node.inputs[1:]], [last.output], node.attributes, _origin([node, last]))
    r.replace([node, last], *before, made)


def _concat(r: Rewriter, last: Node, codes: q.Codes) -> None:
    node = last.inputs[0].producer if last.inputs[0] is not None else None
    found = [_source(v) for v in node.inputs] if node is not None else []
    if node is None or not found or any(f is None for f in found):
        return
    made: list[Node] = []
    parts: list[Value | None] = []
    for source in found:
        assert source is not None
        before, x = _requantised(*source, last.output, codes, last.origin)
        made += before
        parts.append(x)
    made.append(Node("", "Concat", node.since, parts, [last.output], node.attributes, _origin([node, last])))
    r.replace([node, last], *made)


def _pool(r: Rewriter, last: Node, codes: q.Codes) -> None:
    """MaxPool, AveragePool, GlobalAveragePool and the ReduceMean that is one, of images."""
    node = last.inputs[0].producer if last.inputs[0] is not None else None
    found = _source(node.inputs[0]) if node is not None else None
    if node is None or found is None:
        return
    (x, given), attributes = found, _window(node)
    if attributes is None:
        return
    if node.op == "MaxPool":
        between = Value(f"{last.output.name}__codes", x.dtype, last.output.dims)
        after, _ = _requantised(between, given, last.output, codes, last.origin)
        if after:
            after[0].outputs = [last.output]
        pool = Node("opforge", "IntegerPool", 1, [x], [between if after else last.output], attributes, _origin([node]))
        r.replace([node, last], pool, *after)
        return
    for name, what in (("x", given), ("y", codes)):
        attributes |= {f"{name}_scale": float(what.scale), f"{name}_zero": what.zero}
    made = Node("opforge", "IntegerPool", 1, [x], [last.output], attributes, _origin([node, last]))
    r.replace([node, last], made)


def _window(node: Node) -> dict[str, Any] | None:
    """Return the attributes of the pool of bytes that does what a pool of images does; None where there is none."""
    x, a = node.inputs[0], node.attributes
    if x is None or x.rank != 4 or a.get("auto_pad", "NOTSET") != "NOTSET" or a.get("storage_order", 0):
        return None
    if len([o for o in node.outputs if o is not None]) != 1:
        return None
    found: dict[str, Any] = {"mode": "max" if node.op == "MaxPool" else "average"}
    if node.op == "ReduceMean":
        axes = q.operand(node, 1)
        if axes is None or axes.data is None or not a.get("keepdims", 1):
            return None
        if sorted(int(k) % 4 for k in axes.data.reshape(-1)) != [2, 3]:
            return None
    elif node.op != "GlobalAveragePool":
        names = ("kernel_shape", "strides", "pads", "dilations", "ceil_mode", "count_include_pad")
        found |= {k: a[k] for k in names if k in a}
    return found


_RULES: dict[str, Callable[[Rewriter, Node, q.Codes], None]] = {
    "AveragePool": _pool,
    "Concat": _concat,
    "DequantizeLinear": _elementwise,
    "GlobalAveragePool": _pool,
    "MaxPool": _pool,
    "ReduceMean": _pool,
    **dict.fromkeys(MOVES, _moved),
}


# -- tables ----------------------------------------------------------------------------------------------------------


def _drop_unread(graph: Graph) -> None:
    """Remove tables that have become part of others, and conversions that nothing reads any more."""
    while True:
        readers = graph.readers()
        idle = {n for n in graph.nodes if n.is_made("IntegerTable") or n.op == "DequantizeLinear"}
        dead = {n for n in idle if not readers.get(n.output) and not n.output.is_output}
        if not dead:
            return
        graph.nodes = [n for n in graph.nodes if n not in dead]


def _origin(nodes: list[Node]) -> list[str]:
    return list(dict.fromkeys(o for n in nodes for o in n.origin))
