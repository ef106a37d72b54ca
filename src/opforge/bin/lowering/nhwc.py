"""Models with channels last: transposes become part of conversions, 1x1 convolutions between them matrix products."""

from __future__ import annotations

import numpy as np

from opforge.bin.lowering import formula
from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.lowering.select import ELEMENTWISE, pack_product
from opforge.passes._dims import Dim

__all__ = ["absorb_transposes", "pointwise_products"]

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def absorb_transposes(graph: Graph) -> None:
    """Let Reorder and the first convolution read, and Reorder write, [N, H, W, C].

    A transpose that others read as well stays for them.
    """
    for k, node in enumerate(graph.nodes):
        if node.is_made("Reorder") and node.gives_blocks:
            source = _behind(node.inputs[0], TO_NCHW)
            if source is not None:
                node.inputs[0], node.attributes["plain"] = source, "nhwc"
        elif node.is_made("Conv") and node.attributes["algorithm"] == "first":
            source = _behind(node.inputs[0], TO_NCHW)
            if source is not None:
                node.inputs[0], node.attributes["input_layout"] = source, "nhwc"
        elif _swaps(node, TO_NHWC) and node.inputs[0] is not None:
            before = node.inputs[0].producer
            x = before.inputs[0] if before is not None and before.is_made("Reorder") else None
            if x is not None and x.is_blocked:
                graph.nodes[k] = Node("opforge", "Reorder", 1, [x], node.outputs, {"plain": "nhwc"}, node.origin)


def pointwise_products(graph: Graph) -> None:
    """Make 1x1 convolutions between transposes of channels-last images, with steps of one pixel behind them, products.

    So neither transpose is left, and no conversion to or from blocks takes their place.
    """
    readers = graph.readers()
    for conv in list(graph.nodes):
        x = _behind(conv.inputs[0], TO_NCHW) if conv.domain == "" and conv.op == "Conv" else None
        if x is None or not _is_pointwise(conv):
            continue
        chain, value = [conv], conv.output
        while (node := _alone(value, readers)) is not None and _keeps_pixels(node, value):
            chain.append(node)
            value = node.output
        if node is not None and _swaps(node, TO_NHWC) and all(n.output.dims is not None for n in chain):
            _as_products(graph, x, chain, node)


def _is_pointwise(conv: Node) -> bool:
    w, a = conv.inputs[1], conv.attributes
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if w is None or w.data is None or w.dtype != FLOAT or w.data.ndim != 4 or not w.data.size:
        return False
    plain = a.get("group", 1) == 1 and not any(a.get("pads") or [0])
    strides = all(s == 1 for s in a.get("strides") or [1])
    return w.data.shape[2:] == (1, 1) and plain and strides and (bias is None or bias.data is not None)


def _alone(value: Value, readers: dict[Value, list[Node]]) -> Node | None:
    found = readers.get(value, [])
    return found[0] if len(found) == 1 and not value.is_output else None


def _keeps_pixels(node: Node, value: Value) -> bool:
    """Tell whether a node reads pixels one by one: a 1x1 convolution, or an elementwise one with numbers beside."""
    if node.domain == "" and node.op == "Conv":
        return node.inputs[0] is value and _is_pointwise(node)
    others = [v for v in node.inputs if v is not None and v is not value]
    known = node.is_made(ELEMENTWISE) and node.output.dims == value.dims and node.output.dtype == FLOAT
    return known and all(formula.as_number(v, 4) is not None for v in others)


def _as_products(graph: Graph, x: Value, chain: list[Node], last: Node) -> None:
    made: dict[Node, Node] = {}
    old, new = chain[0].inputs[0], x
    for node in chain:
        before, dims = new, node.output.dims
        assert dims is not None
        new = last.output if node is chain[-1] else Value(node.output.name, FLOAT, [dims[k] for k in TO_NHWC])
        if node.op == "Conv":
            made[node] = _product(before, node, new)
        else:
            node.inputs = [before if v is old else v for v in node.inputs]
            old, node.outputs, new.producer = node.output, [new], node
            continue
        old = node.output
    chain[-1].origin += last.origin
    graph.nodes = [made.get(n, n) for n in graph.nodes if n is not last]


def _product(x: Value, conv: Node, y: Value) -> Node:
    w, bias = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 else None
    assert w is not None
    assert w.data is not None
    outputs, inputs = w.data.shape[:2]
    matrix = np.ascontiguousarray(w.data.reshape(outputs, inputs).T)
    weights = Value(w.name, FLOAT, [Dim.of(inputs), Dim.of(outputs)], matrix)
    made = pack_product(Node("", "MatMul", 13, [x, weights], [y], {}, conv.origin))
    assert made is not None
    made.inputs[2] = bias
    return made


def _swaps(node: Node, order: list[int]) -> bool:
    return node.domain == "" and node.op == "Transpose" and list(node.attributes.get("perm") or []) == order


def _behind(value: Value | None, order: list[int]) -> Value | None:
    """Return what a transpose in this order was made of."""
    node = value.producer if value is not None else None
    return node.inputs[0] if node is not None and _swaps(node, order) else None
