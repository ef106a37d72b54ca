"""Questions that patterns ask: operands beside a constant, factors of a product, a value seen through one consumer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["Product", "close", "keeps_rank", "power", "producer", "product", "with_constant"]


def close(value: float | None, target: float, tolerance: float = 1e-3) -> bool:
    """Tell whether a constant of a model is the rounded form of ``target``."""
    return value is not None and math.isclose(value, target, rel_tol=tolerance)


def producer(value: ir.Value | None, *names: str, alone: bool = True) -> ir.Node | None:
    """Return the producer of ``value`` when it is one of the named operators (and, with ``alone``, has one reader)."""
    node = value.producer() if value is not None else None
    if node is None or not _edit.is_op(node, *names):
        return None
    if alone and value is not None and _edit.only_consumer(value) is None:
        return None
    return node


def with_constant(node: ir.Node | None, name: str) -> tuple[ir.Value, float] | None:
    """Read ``node`` as ``name(value, number)`` for a commutative operator."""
    if node is None or not _edit.is_op(node, name) or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    for value, other in ((a, b), (b, a)):
        number = _edit.scalar(other)
        if number is not None and value is not None:
            return value, number
    return None


@dataclass
class Product:
    """``factor * values[0] * values[1] * ...`` and the nodes between."""

    factor: float = 1.0
    values: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)


def product(root: ir.Node) -> Product:
    """Flatten multiplications and divisions by numbers below ``root``, through values with one reader."""
    found = Product()

    def visit(value: ir.Value | None, *, top: bool = False) -> None:
        if value is None:
            return
        number = _edit.scalar(value)
        if number is not None:
            found.factor *= number
            return
        node = value.producer()
        inner = node is not None and (top or _edit.only_consumer(value) is not None)
        if inner and _edit.is_op(node, "Mul") and node is not None:
            found.nodes.append(node)
            visit(node.inputs[0])
            visit(node.inputs[1])
        elif inner and _edit.is_op(node, "Div") and node is not None and (d := _edit.scalar(node.inputs[1])):
            found.nodes.append(node)
            found.factor /= d
            visit(node.inputs[0])
        else:
            found.values.append(value)

    visit(root.outputs[0], top=True)
    return found


def keeps_rank(node: ir.Node, x: ir.Value) -> bool:
    """Tell whether a node's result has as many dimensions as ``x``: numbers of shape [1, 1, 1] may add some."""
    result, own = dims_of(node.outputs[0]), dims_of(x)
    return result is None or own is None or len(result) == len(own)


def power(value: ir.Value, base: ir.Value, exponent: int) -> bool:
    """Tell whether ``value`` is ``base`` to a small integer power, as Pow or as products."""
    node = value.producer()
    if exponent == 1:
        return value is base
    if node is None:
        return False
    if _edit.is_op(node, "Pow"):
        return node.inputs[0] is base and _edit.scalar(node.inputs[1]) == exponent
    if _edit.is_op(node, "Mul"):
        a, b = node.inputs
        if a is None or b is None:
            return False
        return any(power(a, base, k) and power(b, base, exponent - k) for k in range(1, exponent))
    return False
