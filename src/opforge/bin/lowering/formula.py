"""From elementwise nodes to one program of bytecode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opforge.bin.lowering.graph import FLOAT, FLOATS, HALVES, Node, Value
from opforge.expr import Node as Expression
from opforge.expr import ProgramBuilder
from opforge.onnx.elementwise import ROWS, VALUE_TYPES

__all__ = ["as_number", "build"]

EXACT = 2.0**53


def as_number(value: Value, rank: int) -> float | None:
    """Return the number that a one-element constant stands for where it does not widen a result of ``rank``."""
    if value.data is None or value.data.size != 1 or value.data.ndim > rank or value.dtype not in VALUE_TYPES:
        return None
    number = float(value.data.reshape(-1)[0])
    return None if value.data.dtype.kind in "iu" and abs(number) > EXACT else number


def build(nodes: Sequence[Node], root: Value, first: Value | None = None) -> tuple[bytes, list[Value]]:
    """Write ``nodes`` (in order) as one program that gives ``root``.

    Args:
        nodes: elementwise nodes.
        root: the one result.
        first: value that must be input 0 (the result of the node whose epilogue this becomes).

    Returns:
        The blob and the values of its inputs in order.
    """
    blob, inputs = _build(nodes, root, first, embed=True)
    if root.dtype in FLOATS and root.dtype != FLOAT and not any(v.dtype in FLOATS for v in inputs):
        # The type of the calculation shows in tensors only, so its constants stay tensors.
        blob, inputs = _build(nodes, root, first, embed=False)
    return blob, inputs


def _build(nodes: Sequence[Node], root: Value, first: Value | None, *, embed: bool) -> tuple[bytes, list[Value]]:
    b = ProgramBuilder()
    known: dict[Value, Expression] = {}
    inputs: list[Value] = []
    inside = {o for n in nodes for o in n.outputs if o is not None}
    rank = root.rank or 0

    def read(value: Value | None) -> Expression | None:
        if value is None:
            return None
        if value not in known:
            number = as_number(value, rank) if embed or value.dtype not in FLOATS else None
            if number is not None and value not in inside:
                known[value] = b.constant(number, VALUE_TYPES[value.dtype])
            else:
                inputs.append(value)
                known[value] = b.input(VALUE_TYPES[value.dtype])
        return known[value]

    if first is not None:
        read(first)
    for node in nodes:
        known[node.output] = _emit(b, node, [read(v) for v in node.inputs])
    if not inputs:  # a program reads at least one tensor
        constant = next(v for n in nodes for v in n.inputs if v is not None)
        inputs.append(constant)
        b.input(VALUE_TYPES[constant.dtype])
    b.output(known[root])
    return b.build().encode(), inputs


def _emit(b: ProgramBuilder, node: Node, values: list[Expression | None]) -> Expression:
    operator = node.attributes.get("operator")
    if operator is not None:
        present = [v for v in values if v is not None]
        result: Expression = b.inline(operator.formula.program(), present, node.attributes["values"])[0]
    else:
        name = node.attributes["row"]
        if name == "Pow":
            values = [values[0], _as_float(b, node.inputs[1], values[1])]
        optional = name == "Clip"
        given = values if optional else [v for v in values if v is not None]
        result = ROWS[name].emit(b, given, node.attributes["attributes"])  # type: ignore[arg-type]
    if node.output.dtype in HALVES:
        result = b.op("round_half", result)
    return result


def _as_float(b: ProgramBuilder, value: Value | None, expression: Expression | None) -> Expression | None:
    """Read an exponent of any type as a number (a tensor of the base's type stays)."""
    if value is not None and value.data is not None and value.data.size == 1:
        return b.constant(float(np.asarray(value.data).reshape(-1)[0]))
    if expression is not None and not expression.type.is_float:
        return b.op("cast", expression, type="T")
    return expression
