"""x*clip(x+3, 0, 6)/6 and its parts become HardSwish and HardSigmoid."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._match import close, keeps_rank, producer, product, with_constant

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "raise_hard_swish"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _bounds(node: ir.Node) -> tuple[float | None, float | None]:
    given = [_edit.scalar(v) for v in node.inputs[1:3]]
    low, high = (*given, None, None)[:2]
    return low, high


def _ramp(value: ir.Value | None, *, alone: bool = True) -> tuple[ir.Value, float, float, float] | None:
    """Read a value as ``clip(a*x + b, 0, top)``: x, a, b, top."""
    node = producer(value, "Clip", alone=alone)
    if node is None or node.inputs[0] is None:
        return None
    low, high = _bounds(node)
    if low != 0.0 or high is None or high <= 0:
        return None
    shifted = producer(node.inputs[0], "Add")
    plus = with_constant(shifted, "Add")
    x, b = plus if plus is not None else (node.inputs[0], 0.0)
    scaled = producer(x, "Mul", "Div") if plus is not None else None
    if scaled is not None and len((found := product(scaled)).values) == 1:
        return found.values[0], found.factor, b, high
    return x, 1.0, b, high


def _hard_swish(node: ir.Node) -> bool:
    found = product(node)
    if len(found.values) != 2:
        return False
    for x, gate in (found.values, found.values[::-1]):
        hard = producer(gate, "HardSigmoid")
        if hard is not None and hard.inputs[0] is x:
            alpha, beta, top = _edit.attribute(hard, "alpha", 0.2), _edit.attribute(hard, "beta", 0.5), 1.0
        elif (ramp := _ramp(gate)) is not None and ramp[0] is x:
            alpha, beta, top = ramp[1] / ramp[3], ramp[2] / ramp[3], ramp[3]
        else:
            continue
        same = close(alpha, 1 / 6, 1e-4) and close(beta, 0.5, 1e-4) and close(found.factor * top, 1.0, 1e-4)
        if same and keeps_rank(node, x):
            _edit.replace_node(node, "HardSwish", [x], also=found.nodes)
            return True
    return False


def _hard_sigmoid(node: ir.Node) -> bool:
    if _edit.is_op(node, "Clip"):
        ramp, factor, inner = _ramp(node.outputs[0], alone=False), 1.0, [node]
    else:
        found = product(node)
        ramp = _ramp(found.values[0]) if len(found.values) == 1 else None
        factor, inner = found.factor, found.nodes
    if ramp is None or not close(factor * ramp[3], 1.0, 1e-6) or (ramp[1] == 1.0 and ramp[2] == 0.0):
        return False
    x, a, b, top = ramp
    if not keeps_rank(node, x):
        return False
    _edit.replace_node(node, "HardSigmoid", [x], {"alpha": a / top, "beta": b / top}, also=inner)
    return True


def call(model: ir.Model) -> int:
    """HardSwish first, since it holds a HardSigmoid."""
    count = 0
    for rule, names in ((_hard_swish, ("Mul", "Div")), (_hard_sigmoid, ("Mul", "Div", "Clip"))):
        for node in reversed(_edit.nodes(model)):
            if node.graph is not None and _edit.is_op(node, *names):
                count += rule(node)
    return count
