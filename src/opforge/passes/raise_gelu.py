"""GELU written out, by erf or by tanh, becomes one Gelu node."""

from __future__ import annotations

import math

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._match import close, keeps_rank, power, producer, product, with_constant

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "raise_gelu"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _scaled(value: ir.Value) -> tuple[float, list[ir.Value]]:
    """Read a value as a number times further values."""
    node = value.producer()
    if node is None or not _edit.is_op(node, "Mul", "Div"):
        return 1.0, [value]
    found = product(node)
    return found.factor, found.values


def _is_erf(inner: ir.Value, x: ir.Value) -> bool:
    node = producer(inner, "Erf")
    if node is None or node.inputs[0] is None:
        return False
    factor, values = _scaled(node.inputs[0])
    return values == [x] and close(factor, math.sqrt(0.5))


def _is_tanh(inner: ir.Value, x: ir.Value) -> bool:
    """``tanh(sqrt(2/pi) * (x + 0.044715 x^3))``, also with x taken out of the bracket."""
    node = producer(inner, "Tanh")
    if node is None or node.inputs[0] is None:
        return False
    factor, values = _scaled(node.inputs[0])
    if not close(factor, math.sqrt(2 / math.pi)):
        return False
    outside = [v for v in values if v is not x]
    if len(outside) != 1 or len(values) > 2:
        return False
    bracket = producer(outside[0], "Add")
    if bracket is None:
        return False
    taken = len(values) == 2
    for plain, cubic in (bracket.inputs, tuple(reversed(bracket.inputs))):
        first = _edit.scalar(plain) == 1.0 if taken else plain is x
        if not first or cubic is None:
            continue
        c, rest = _scaled(cubic)
        degree = 2 if taken else 3
        whole = len(rest) == degree and all(r is x for r in rest)
        if close(c, 0.044715) and (whole or (len(rest) == 1 and power(rest[0], x, degree))):
            return True
    return False


def _match(node: ir.Node) -> tuple[ir.Value, str, list[ir.Node]] | None:
    found = product(node)
    if len(found.values) != 2 or not close(found.factor, 0.5):
        return None
    for x, sum_ in (found.values, found.values[::-1]):
        plus_one = with_constant(producer(sum_, "Add"), "Add")
        if plus_one is None or plus_one[1] != 1.0:
            continue
        if _is_erf(plus_one[0], x):
            return x, "none", found.nodes
        if _is_tanh(plus_one[0], x):
            return x, "tanh", found.nodes
    return None


def call(model: ir.Model) -> int:
    """Replace; the approximation (erf or tanh) is kept."""
    count = 0
    for node in reversed(_edit.nodes(model)):
        if node.graph is None or not _edit.is_op(node, "Mul", "Div"):
            continue
        found = _match(node)
        if found is not None and keeps_rank(node, found[0]):
            x, approximate, inner = found
            _edit.replace_node(node, "Gelu", [x], {"approximate": approximate}, also=inner)
            count += 1
    return count
