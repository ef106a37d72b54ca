"""Quantised models: products between DequantizeLinear and QuantizeLinear, and ONNX's own, run on packed bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opforge.bin.lowering import quantised_steps
from opforge.bin.lowering import quantised_values as q
from opforge.bin.lowering.codes import coded_product
from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.lowering.quantised_tables import table_node
from opforge.bin.lowering.rewriter import Rewriter
from opforge.bin.lowering.select import ELEMENTWISE, pack_product
from opforge.passes._dims import Dim

__all__ = ["quantise"]

Array = np.ndarray[Any, Any]
I32, I64 = 6, 7
MOST_GROUPS = 64
"""Groups of an integer convolution up to which it is written as one without."""


def quantise(graph: Graph) -> None:
    """Rewrite in place."""
    rewriter = Rewriter(graph)
    for rule in (_integer, _floating, _coded):
        for node in list(graph.nodes):
            if node not in rewriter.gone:
                rule(rewriter, node)
        rewriter.settle()
    _drop_dead(graph)
    quantised_steps.find_steps(graph)
    _drop_dead(graph)
    _settle_constants(graph)
    _drop_dead(graph)


@dataclass
class _Terms:
    """Inputs of an integer product behind the weights."""

    a_zero: Value | None = None
    bias: Array | None = None
    scale: Value | None = None
    shift: Array | None = None
    y_zero: Value | None = None
    relu: bool = False


def _row(node: Node | None, *names: str) -> bool:
    return node is not None and node.is_made(ELEMENTWISE) and node.attributes["row"] in names


def _product(
    op: str,
    packing: str,
    x: Value,
    w: q.Weights,
    terms: _Terms,
    out: Value,
    attributes: dict[str, Any],
    origin: list[str],
) -> Node:
    """Make an IntegerMatMul or IntegerConv."""
    name, axes = w.value.name, (0,) if op == "IntegerMatMul" else (1, 2, 3)
    sums = w.stored.astype(np.int64).sum(axis=axes).astype(np.int32)
    packed = Value(name, 3, [Dim.of(d) for d in w.stored.shape], w.stored, packing=packing)
    inputs: list[Value | None] = [x, packed, q.vector(f"{name}__sums", sums, I32), terms.a_zero]
    inputs.append(None if w.is_symmetric else q.vector(f"{name}__zero", w.zero.astype(np.int32), I32))
    inputs.append(None if terms.bias is None else q.vector(f"{name}__bias", terms.bias.astype(np.int32), I32))
    inputs.append(terms.scale)
    shift = None if terms.shift is None else terms.shift.astype(np.float32).reshape(-1)
    inputs.append(None if shift is None else q.vector(f"{name}__shift", shift, FLOAT))
    inputs.append(terms.y_zero)
    if terms.relu:
        attributes = {**attributes, "relu": 1}
    return Node("opforge", op, 1, inputs, [out], attributes, list(dict.fromkeys(origin)))


# -- ONNX's integer operators with constant weights ----------------------------------------------------------------


def _integer(r: Rewriter, node: Node) -> None:
    if not q.is_node(node, "MatMulInteger", "QLinearMatMul", "ConvInteger", "QLinearConv"):
        return
    linear, conv = node.op.startswith("QLinear"), "Conv" in node.op
    places = (0, 2, 3, 5) if linear else (0, 2, 1, 3)
    x, x_zero, weight, w_zero = (q.operand(node, k) for k in places)
    if x is None or weight is None or weight.data is None or not weight.data.size:
        return
    if (w_zero is not None and w_zero.data is None) or not _one(x_zero):
        return
    terms = _Terms(a_zero=x_zero)
    scale = np.ones(1, np.float32)
    if linear:
        ends = [q.number(q.operand(node, k)) for k in (1, 6)]
        w_scale, y_zero = q.operand(node, 4), q.operand(node, 7)
        if None in ends or w_scale is None or w_scale.data is None or w_scale.dtype != FLOAT or not _one(y_zero):
            return
        scale = np.asarray(ends[0] * w_scale.data / ends[1], np.float32).reshape(-1)  # type: ignore[operator]
        terms.scale, terms.y_zero = q.vector(f"{node.output.name}__scale", scale, FLOAT), y_zero
    w = q.Weights.of(weight, None if w_zero is None else w_zero.data, scale)
    if w is None:
        return
    if conv:
        bias = q.operand(node, 8) if linear else None
        if bias is not None and bias.data is None:
            return
        terms.bias = None if bias is None else bias.data
        if not _sizes_fit(w, weight.data.shape[0]):
            return
        attributes, out = node.attributes, node.output
        views: list[list[Node]] = [[], []]
        if weight.data.ndim == x.rank == 3:
            w, attributes = replace(w, stored=w.stored[:, :, None]), _of_images(attributes)
            views = [[_view("Unsqueeze", x, None, node)], [_view("Squeeze", None, out, node)]]
            x, out = views[0][0].output, views[1][0].inputs[0] or out
        group = int(attributes.get("group", 1))
        if _worth_whole(w.stored.shape, group):
            w, attributes = w.whole(group), {**attributes, "group": 1}
        _convolution(r, [node], x, w, terms, out, attributes, *views)
    elif weight.data.ndim == 2 and _sizes_fit(w, weight.data.shape[1]) and x.rank is not None and x.rank >= 1:
        w, made, out, nodes = w.centred(1), terms, node.output, [node]
        if not linear:
            out, nodes = _scaled(r, node, made, weight.data.shape[1])
        r.replace(nodes, _product("IntegerMatMul", "integer16", x, w, made, out, {}, _origin(nodes)))


def _of_images(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a convolution along a line as those of one over images of one row."""
    steps = {name: [1, *(attributes.get(name) or [1])] for name in ("strides", "dilations")}
    before, after = attributes.get("pads") or [0, 0]
    return {**attributes, **steps, "pads": [0, before, 0, after]}


def _view(op: str, line: Value | None, out: Value | None, node: Node) -> Node:
    """Make the Unsqueeze of lines to images or the Squeeze back; the image is a new value."""
    known = line or out
    assert known is not None
    dims = None if known.dims is None else [*known.dims[:2], Dim.of(1), *known.dims[2:]]
    image = Value(f"{node.output.name}__{op.lower()}", known.dtype, dims)
    axes = q.vector(f"{image.name}__axes", np.array([2], np.int64), I64)
    return Node("", op, 13, [line or image, axes], [out or image], {}, node.origin)


def _scaled(r: Rewriter, node: Node, terms: _Terms, n: int) -> tuple[Value, list[Node]]:
    """Take up Cast, Mul by a scale and Add of a bias, as dynamic quantisation writes them."""
    cast = r.only_reader(node.output)
    scaled = (
        r.only_reader(cast.output) if _row(cast, "Cast") and cast is not None and cast.output.dtype == FLOAT else None
    )
    if not _row(scaled, "Mul") or scaled is None or cast is None:
        return node.output, [node]
    scale = _other(scaled, cast.output)
    if scale is None or scale.dtype != FLOAT or scale.dims is None:
        return node.output, [node]
    sizes = [d.constant for d in scale.dims]
    wide = any(d != 1 for d in sizes[:-1]) or (bool(sizes) and sizes[-1] not in (1, n))
    if wide or len(sizes) > (node.output.rank or 0):
        return node.output, [node]
    terms.scale = scale
    nodes, out = [node, cast, scaled], scaled.output
    add = r.only_reader(out)
    if _row(add, "Add") and add is not None:
        bias = q.constant(_other(add, out))
        if bias is not None and bias.size == n and bias.shape[-1:] == (n,) and bias.ndim <= (out.rank or 0):
            terms.shift = bias
            nodes, out = [*nodes, add], add.output
    return out, nodes


# -- products between DequantizeLinear and QuantizeLinear ----------------------------------------------------------


def _floating(r: Rewriter, node: Node) -> None:
    """Find ``DequantizeLinear -> MatMul or Conv [-> Add] [-> Relu] [-> QuantizeLinear]``."""
    if not q.is_node(node, "MatMul", "Conv") or node.output.dtype != FLOAT:
        return
    source = node.inputs[0].producer if node.inputs[0] is not None else None
    if not q.is_node(source, "DequantizeLinear") or source is None:
        return
    x, x_scale, x_zero = source.inputs[0], q.number(q.operand(source, 1)), q.operand(source, 2)
    if x is None or x.data is not None or x.dtype not in q.BYTES or x_scale is None or not _one(x_zero):
        return
    conv = node.op == "Conv"
    w = q.conv_weights(node) if conv else q.matrix_weights(node)
    if w is None or (not conv and (x.rank is None or x.rank < 2)):
        return
    n = w.stored.shape[0 if conv else 1]
    product_scale = np.broadcast_to(x_scale * w.scale, (n,)).astype(np.float32)
    terms = _Terms(a_zero=x_zero)
    if conv and q.operand(node, 2) is not None and not _conv_bias(node, product_scale, terms):
        return
    nodes, out, real = [node], node.output, True
    following = r.only_reader(out)
    if not conv and _row(following, "Add") and following is not None:
        bias = q.constant(_other(following, out))
        if bias is not None and bias.size == n and bias.shape[-1:] == (n,) and bias.ndim <= (out.rank or 0):
            terms.shift = bias
            nodes, out = [*nodes, following], following.output
            following = r.only_reader(out)
    tail = list(nodes)
    relu, clip = _row(following, "Relu"), _row(following, "Clip")
    bounds = q.bounds(following) if clip and following is not None else None
    if (relu or bounds is not None) and following is not None:
        tail.append(following)
        following = r.only_reader(following.output)
    clipped: list[Node] = []
    if q.is_node(following, "QuantizeLinear") and following is not None:
        y_scale, y_zero = q.number(q.operand(following, 1)), q.operand(following, 2)
        if y_scale is not None and _one(y_zero) and following.output.dtype in q.BYTES:
            known = q.Codes.of(following)
            if bounds is not None and known is None:
                return
            nodes, out, real = [*tail, following], following.output, False
            terms.relu, terms.y_zero = relu, y_zero
            product_scale = product_scale / y_scale
            terms.shift = None if terms.shift is None else terms.shift / y_scale
            if bounds is not None and known is not None:  # rounding keeps the order, so codes are clipped
                whole = Value(f"{out.name}__whole", out.dtype, out.dims)
                clipped = [table_node(whole, out, known.clipped(*bounds), following.origin)]
                out = whole
    if real and conv and not _becomes_codes(r, out):
        return  # a convolution that gives f32 stays one of the blocked kernels
    terms.scale = q.vector(f"{out.name}__scale", product_scale, FLOAT)
    if conv:
        _convolution(r, nodes, x, w, terms, out, node.attributes, after=clipped)
    else:
        w = w.centred(1)
        r.replace(nodes, _product("IntegerMatMul", "integer16", x, w, terms, out, {}, _origin(nodes)), *clipped)


def _becomes_codes(r: Rewriter, value: Value) -> bool:
    """Tell whether a chain of elementwise nodes that alone read each other ends in a QuantizeLinear."""
    node = r.only_reader(value)
    for _ in range(16):
        if node is None or q.is_node(node, "QuantizeLinear"):
            return q.Codes.of(node) is not None
        if not node.is_made(ELEMENTWISE):
            return False
        node = r.only_reader(node.output)
    return False


def _coded(r: Rewriter, node: Node) -> None:
    """Leave the weights of other products by dequantised constants as they are."""
    made = coded_product(node)
    if made is not None:
        r.replace([node], made)


def _conv_bias(node: Node, scale: Array, terms: _Terms) -> bool:
    """Take the bias as integers where it is quantised with the product's scale, else as reals."""
    value = node.inputs[2]
    real = q.constant(value)
    if real is None:
        return False
    source = value.producer if value is not None and value.data is None else None
    whole = source.inputs[0] if source is not None else None
    given = q.operand(source, 1) if source is not None else None
    zero = q.operand(source, 2) if source is not None else None
    same = (
        given is not None and given.data is not None and np.allclose(given.data.reshape(-1), scale, rtol=1e-6, atol=0)
    )
    if whole is not None and whole.dtype == I32 and whole.data is not None and same:
        if zero is None or (zero.data is not None and not zero.data.any()):
            terms.bias = whole.data.reshape(-1)
            return True
    terms.shift = real
    return True


def _convolution(
    r: Rewriter,
    nodes: list[Node],
    x: Value,
    w: q.Weights,
    terms: _Terms,
    out: Value,
    a: dict[str, Any],
    before: Sequence[Node] = (),
    after: Sequence[Node] = (),
) -> None:
    """Replace a convolution that the packed kernels serve; others keep their form."""
    group, shape = int(a.get("group", 1)), w.stored.shape
    dilations = list(a.get("dilations") or [1, 1])
    depthwise = group > 1 and shape[1] == 1 and shape[0] == group
    fits = w.stored.ndim == 4 and x.rank == 4 and a.get("auto_pad", "NOTSET") == "NOTSET"
    pads = list(a.get("pads") or [0, 0, 0, 0])
    if not fits or not (group == 1 or depthwise) or any(not 0 <= p <= 65535 for p in pads):
        return
    if not _sizes_fit(w, shape[0]):
        return
    w = w.centred(0)
    if depthwise:
        w = w.stacked()  # sums of windows, which zero points need, would be those of each channel
    packing = "integer_depthwise16" if depthwise else "integer_taps16" if dilations[1] != 1 else "integer16"
    attributes = {
        "kernel_shape": list(shape[2:]),
        "strides": list(a.get("strides") or [1, 1]),
        "dilations": dilations,
        "pads": pads,
    }
    made = _product("IntegerConv", packing, x, w, terms, out, attributes, _origin(nodes))
    r.replace(nodes, *before, made, *after)


def _worth_whole(shape: Sequence[int], group: int) -> bool:
    """Tell whether products with nothing cost less than the plain loop, which groups would run in."""
    few = 1 < group <= MOST_GROUPS and len(shape) == 4 and shape[0] % group == 0
    return few and (shape[1], shape[0]) != (1, group) and math.prod(shape) * group <= q.LIMIT


def _one(value: Value | None) -> bool:
    """Tell whether a zero point is absent or one number for the whole tensor, perhaps one of the run."""
    if value is None:
        return True
    if value.data is not None:
        return bool(value.data.size == 1)
    return value.dims is not None and all(d == 1 for d in value.dims)


def _sizes_fit(w: q.Weights, n: int) -> bool:
    return w.zero.size in (1, n) and w.scale.size in (1, n)


def _other(node: Node, value: Value) -> Value | None:
    a, b = node.inputs[0], node.inputs[1]
    return b if a is value else a


def _origin(nodes: list[Node]) -> list[str]:
    return [o for n in nodes for o in n.origin]


# -- what is left --------------------------------------------------------------------------------------------------


def _settle_constants(graph: Graph) -> None:
    """Constants that nothing takes as integers become f32, where that is not too large; the rest is elementwise."""
    nodes: list[Node] = []
    wide_codes: dict[Value, Value] = {}
    for node in graph.nodes:
        data = q.settled(node) if q.is_node(node, "DequantizeLinear") and not node.output.is_output else None
        if data is not None:
            node.output.data = np.ascontiguousarray(data)
            node.output.dims = [Dim.of(d) for d in data.shape]
            node.output.producer = None
            continue
        if q.is_node(node, "Transpose") and node.inputs[0] is not None and node.inputs[0].data is not None:
            source, data = node.inputs[0], node.inputs[0].data
            if data is not None and source.dtype == FLOAT and not node.output.is_output and not source.packing:
                node.output.data = np.transpose(data, node.attributes.get("perm"))
                node.output.producer = None
                continue
        made = q.elementwise(node, wide_codes) if _fuses(node) else None
        packed = pack_product(node) if q.is_node(node, "MatMul") else None
        nodes += made or ([packed] if packed is not None else [node])
    graph.nodes = nodes


def _fuses(node: Node) -> bool:
    """Tell whether a conversion is written as elementwise nodes; one of a finished tensor has a faster kernel."""
    source = node.inputs[0].producer if node.inputs and node.inputs[0] is not None else None
    if q.is_node(node, "QuantizeLinear"):
        return source is not None and (source.is_made(ELEMENTWISE) or q.is_node(source, "DequantizeLinear"))
    return q.is_node(node, "DequantizeLinear")


def _drop_dead(graph: Graph) -> None:
    """Remove what nobody reads any more."""
    while True:
        readers = graph.readers()
        dead = [
            n
            for n in graph.nodes
            if (q.is_node(n, "DequantizeLinear", "Transpose") or n.is_made("IntegerTable") or _row(n, "Cast"))
            and not readers.get(n.output)
            and not n.output.is_output
        ]
        if not dead:
            return
        graph.nodes = [n for n in graph.nodes if n not in dead]
