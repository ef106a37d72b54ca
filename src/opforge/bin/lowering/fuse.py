"""Fusion: chains of elementwise nodes become one formula, or activation, residual and epilogue of what feeds them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opforge.bin.lowering import formula
from opforge.bin.lowering.graph import FLOAT, FLOATS, HALVES, Graph, Node, Value
from opforge.bin.lowering.select import ELEMENTWISE
from opforge.passes._dims import presumably_equal

__all__ = ["blocked_operand", "fuse", "same_shape"]

MAX_INPUTS, MAX_NODES = 16, 96
"""Size of one formula: kernels take 16 operands, and long programs spill."""

CAST = 13
"""Version of Cast that a conversion becomes when it stays alone."""

HOSTS = {"MatMul": 3, "DequantizeMatMul": 5, "Conv": 4, "ConvTranspose": 3}
"""Nodes that take an epilogue, and their first input for it."""
PLAIN = ("MatMul", "DequantizeMatMul")


def fuse(graph: Graph) -> None:
    """Fuse in place; afterwards no elementwise node is left."""
    readers = graph.readers()
    order = {node: k for k, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    made: dict[Node, Node] = {}
    for root in reversed(graph.nodes):
        if root.is_made(ELEMENTWISE) and root not in taken:
            region = _region(root, readers, taken)
            taken.update(region)
            made[root] = _place(sorted(region, key=order.__getitem__), readers, order, taken)
    graph.nodes = [made.get(n, n) for n in graph.nodes if n in made or n not in taken]
    for node in graph.nodes:
        for value in node.outputs:
            if value is not None:
                value.producer = node
    graph.sort()


def _region(root: Node, readers: dict[Value, list[Node]], taken: set[Node]) -> set[Node]:
    """Collect the nodes above ``root`` that only it and other members read and that have its shape."""
    region = {root}
    types = _float_types(root)
    grown = True
    while grown and len(region) < MAX_NODES:
        grown = False
        for value in [v for n in region for v in n.inputs if v is not None]:
            node = value.producer
            if node is None or node in region or node in taken or not node.is_made(ELEMENTWISE) or value.is_output:
                continue
            if any(reader not in region for reader in readers[value]) or value.dims != root.output.dims:
                continue
            if not _one_program(types | _float_types(node)) or len(_boundary(region | {node})) > MAX_INPUTS:
                continue
            region.add(node)
            types |= _float_types(node)
            grown = True
    return region


def _float_types(node: Node) -> set[int]:
    return {v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype in FLOATS}


def _one_program(types: set[int]) -> bool:
    """Tell whether one program calculates in these types: one, or f32 and a half type, which it rounds to."""
    return len(types) <= 1 or (len(types) == 2 and FLOAT in types and bool(types & HALVES))


def is_conversion(node: Node) -> bool:
    """Tell whether a node is a Cast between f32 and a half type."""
    types = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None}
    return node.attributes["row"] == "Cast" and len(types) > 1 and types <= FLOATS


def _boundary(region: set[Node]) -> set[Value]:
    inside = {n.output for n in region}
    return {v for n in region for v in n.inputs if v is not None and v not in inside}


def _place(region: list[Node], readers: dict[Value, list[Node]], order: dict[Node, int], taken: set[Node]) -> Node:
    """Make the region an epilogue where a node before it can take it, else a formula."""
    root = region[-1].output
    if len(region) == 1 and is_conversion(region[0]):  # nothing to fuse with
        return Node("", "Cast", CAST, region[0].inputs, [root], {"to": root.dtype}, region[0].origin)
    hosts = []
    for value in _boundary(set(region)):
        host = value.producer
        alone = host is not None and not value.is_output and all(r in region for r in readers[value])
        if host is None or host in taken or not alone or not host.is_made(*HOSTS) or "epilogue" in host.attributes:
            continue
        if value.dims is not None and root.dims is not None and _fits(host, value, root, region):
            hosts.append(host)
    if not hosts:
        blob, inputs = formula.build(region, root)
        origin = [o for n in region for o in n.origin]
        node = Node("opforge", "Formula", 1, list(inputs), [root], {"bytecode": blob}, origin)
        node.attributes["rows"] = [n.attributes["row"] for n in region]
        return node
    host = max(hosts, key=order.__getitem__)
    taken.add(host)
    return _absorb(host, region)


def _fits(host: Node, value: Value, root: Value, region: list[Node]) -> bool:
    """Tell whether every other operand may stand in an epilogue over the host's result."""
    if value.dtype != FLOAT or root.dtype != FLOAT or not same_shape(value, root):
        return False
    boundary = _boundary(set(region)) - {value}
    if any(v.dtype != FLOAT and formula.as_number(v, root.rank or 0) is None for v in boundary):
        return False
    if host.op in PLAIN:
        return value.dims == root.dims and all(_broadcasts(v, root) for v in boundary)
    return all(blocked_operand(v, root) for v in boundary)


def same_shape(a: Value, b: Value) -> bool:
    """Tell whether two shapes are equal, or presumed to be; what is built on that checks the sizes when it runs."""
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        return False
    return all(presumably_equal(x, y) for x, y in zip(a.dims, b.dims, strict=True))


def _broadcasts(v: Value, root: Value) -> bool:
    if v.dims is None or root.dims is None or len(v.dims) > len(root.dims):
        return False
    tail = root.dims[len(root.dims) - len(v.dims) :]
    return all(d == 1 or d == r for d, r in zip(v.dims, tail, strict=True))


def blocked_operand(v: Value, root: Value) -> bool:
    """Tell whether ``v`` may stand beside blocked values: a number, one per channel, or a whole tensor."""
    if root.dims is None or v.dims is None or len(root.dims) != 4:
        return False
    if v.data is not None and v.data.size == 1 and v.data.ndim <= 4:
        return True
    dims = v.dims
    if len(dims) > 4 or (len(dims) < 3 and v.data is None):
        return False
    if len(dims) == 3:
        return v.data is not None and dims[0] == root.dims[1] and dims[1] == 1 and dims[2] == 1
    if len(dims) < 3 or dims[1] != root.dims[1]:
        return False
    if dims[2] == 1 and dims[3] == 1:
        return v.data is None or dims[0] == 1
    return v.data is None and same_shape(v, root)


def _absorb(host: Node, region: list[Node]) -> Node:
    """Return ``host`` with the region as bias, activation, residual and epilogue, in this order."""
    current, rest = host.output, list(region)
    for step in _STEPS:
        done = step(host, current, rest)
        if done is not None:
            current, used = done
            rest = [n for n in rest if n not in used]
    root = region[-1].output
    extra: list[Value] = []
    if rest:
        blob, inputs = formula.build(rest, root, first=current)
        host.attributes["epilogue"] = blob
        host.attributes["rows"] = [n.attributes["row"] for n in rest]
        extra = inputs[1:]
    if extra:
        host.inputs += [None] * (HOSTS[host.op] - len(host.inputs))
    host.inputs = [*host.inputs, *extra]
    root.layout = host.output.layout
    host.outputs = [root]
    host.origin += [o for n in region for o in n.origin]
    return host


Step = Callable[[Node, Value, list[Node]], tuple[Value, list[Node]] | None]


def _next(current: Value, rest: list[Node]) -> Node | None:
    """Return the only reader of ``current`` within the region."""
    users = [n for n in rest for v in n.inputs if v is current]
    return users[0] if len(users) == 1 else None


def _other(node: Node, current: Value) -> Value | None:
    a, b = node.inputs[0], node.inputs[1]
    return b if a is current else a


def _bias(host: Node, current: Value, rest: list[Node]) -> tuple[Value, list[Node]] | None:
    node = _next(current, rest)
    if node is None or node.attributes["row"] != "Add" or host.op not in PLAIN or host.inputs[2] is not None:
        return None
    bias = _other(node, current)
    n = host.attributes["N"]
    if bias is None or bias.data is None or bias.data.shape[-1:] != (n,) or bias.data.size != n:
        return None
    host.inputs[2] = Value(bias.name, bias.dtype, [current.dims[-1]] if current.dims else None, bias.data.reshape(n))
    return node.output, [node]


def _activation(host: Node, current: Value, rest: list[Node]) -> tuple[Value, list[Node]] | None:
    node = _next(current, rest)
    if node is None or "activation" in host.attributes:
        return None
    row, given = node.attributes["row"], node.attributes["attributes"]
    if row == "Relu":
        host.attributes["activation"] = "relu"
    elif row == "HardSwish":
        host.attributes["activation"] = "hardswish"
    elif row == "HardSigmoid":
        alpha = given.get("alpha", float(np.float32(0.2)))
        host.attributes.update(activation="hardsigmoid", s=alpha, o=given.get("beta", 0.5))
    elif row == "Clip":
        low, high = (*node.inputs[1:], None, None)[:2]
        if low is None or high is None or low.data is None or high.data is None:
            return None
        host.attributes.update(activation="clip", lo=float(low.data), hi=float(high.data))
    else:
        return None
    return node.output, [node]


def _affine(host: Node, current: Value, rest: list[Node]) -> tuple[Value, list[Node]] | None:
    """``a*hardswish(x)+t``: x becomes a*x in the weights, and the gate divides by a again."""
    if host.attributes.get("activation") != "hardswish" or host.op != "Conv":
        return None
    node = _next(current, rest)
    if node is None or node.attributes["row"] not in ("Mul", "Add"):
        return None
    used, scale, shift = [], 1.0, 0.0
    if node.attributes["row"] == "Mul":
        factor = _other(node, current)
        number = formula.as_number(factor, 4) if factor is not None else None
        if number is None or not 1e-3 < abs(number) < 1e3:
            return None
        scale, current = number, node.output
        used.append(node)
        node = _next(current, rest)
    if node is not None and node.attributes["row"] == "Add":
        term = _other(node, current)
        number = formula.as_number(term, 4) if term is not None else None
        if number is not None:
            shift, current = number, node.output
            used.append(node)
    if not used:
        return None
    for k in (1, 2):
        value = host.inputs[k]
        if value is not None and value.data is not None:
            data = (value.data.astype(np.float64) * scale).astype(np.float32)
            host.inputs[k] = Value(value.name, value.dtype, value.dims, data, value.layout, value.packing)
    host.attributes.update(activation="affine_hardswish", s=1 / (6 * scale), t=shift)
    return current, used


def _residual(host: Node, current: Value, rest: list[Node]) -> tuple[Value, list[Node]] | None:
    node = _next(current, rest)
    if node is None or host.op != "Conv" or node.attributes["row"] not in ("Add", "Sum") or len(node.inputs) != 2:
        return None
    other = _other(node, current)
    if other is None or other.data is not None or other.dims is None or not same_shape(other, current):
        return None
    if other.producer in rest:
        return None  # it is computed in the region, from other values: the whole is an epilogue
    host.inputs += [None] * (4 - len(host.inputs))
    host.inputs[3] = other
    return node.output, [node]


def _activation_on_sum(host: Node, current: Value, rest: list[Node]) -> tuple[Value, list[Node]] | None:
    """Residual networks: the activation follows the sum."""
    if len(host.inputs) < 4 or host.inputs[3] is None or host.op != "Conv":
        return None
    done = _activation(host, current, rest)
    if done is not None:
        host.attributes["activation_on_sum"] = 1
    return done


_STEPS: tuple[Step, ...] = (_bias, _activation, _affine, _residual, _activation_on_sum)
