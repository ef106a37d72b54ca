"""From elementwise nodes to one program of bytecode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from opforge.bin.lowering.graph import FLOAT, FLOATS, HALVES, Node, Value
from opforge.bin.lowering.widen import KEEPS_HALF
from opforge.expr import Node as Expression
from opforge.expr import ProgramBuilder, ValueType
from opforge.onnx.elementwise import ROWS, VALUE_TYPES

__all__ = ["as_number", "build"]

EXACT = 2.0**53
ROUND = {10: "round_f16", 16: "round_bf16"}
HALF_TYPES: dict[int, Any] = {10: np.float16, 16: ml_dtypes.bfloat16}


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
    if root.dtype in FLOATS - HALVES - {FLOAT} and not any(v.dtype in FLOATS for v in inputs):
        # The type of the calculation shows in tensors only, so its constants stay tensors.
        blob, inputs = _build(nodes, root, first, embed=False)
    return blob, inputs


def _half(tensors: Sequence[Value]) -> int | None:
    """Return the half type of a program's tensors, which is its T; inside it f32 and half types are both T."""
    return next((v.dtype for v in tensors if v.dtype in HALVES), None)


def _build(nodes: Sequence[Node], root: Value, first: Value | None, *, embed: bool) -> tuple[bytes, list[Value]]:
    b = ProgramBuilder()
    known: dict[Value, Expression] = {}
    inputs: list[Value] = []
    inside = {o for n in nodes for o in n.outputs if o is not None}
    outer = [v for n in nodes for v in n.inputs if v is not None and v not in inside]
    whole = root.rank or 0
    tensors = [v.rank for v in outer if as_number(v, whole) is None and v.rank is not None]
    rank = max(tensors, default=whole)  # a number of more dimensions widens the result: it stays a tensor
    half = _half([*(v for v in outer if not embed or as_number(v, rank) is None), root])

    def as_input(value: Value) -> Expression:
        inputs.append(value)
        if half is None or value.dtype != FLOAT:
            return b.input(VALUE_TYPES[value.dtype])
        return b.op("cast", b.input(ValueType.F32), type=ValueType.T)

    def read(value: Value | None) -> Expression | None:
        if value is None:
            return None
        if value not in known:
            number = as_number(value, rank) if embed or value.dtype not in FLOATS else None
            if number is not None and value not in inside:
                known[value] = b.constant(number, VALUE_TYPES[value.dtype])
            else:
                known[value] = as_input(value)
        return known[value]

    if first is not None:
        read(first)
    rounded = {v for v in outer if v.dtype in HALVES}
    for node in nodes:
        result = _emit(b, node, [read(v) for v in node.inputs])
        if _holds_half(node, rounded):
            rounded.add(node.output)
        elif node.output.dtype in ROUND and not (node.output is root and root.dtype == half):  # the store rounds, too
            result = b.op(ROUND[node.output.dtype], result)
            rounded.add(node.output)
        known[node.output] = result
    if not inputs:  # a program reads at least one tensor
        constant = max(outer, key=lambda v: v.rank or 0)
        as_input(constant)
    if half is not None and not any(v.dtype == half for v in inputs):  # inputs tell what T is
        zero = np.zeros((), HALF_TYPES[half])
        inputs.append(Value(f"{root.name}__type", half, [], zero))
        b.input()
    result = known[root]
    b.output(b.op("cast", result, type=ValueType.F32) if half is not None and root.dtype == FLOAT else result)
    return b.build().encode(), inputs


def _holds_half(node: Node, rounded: set[Value]) -> bool:
    """Tell whether a node's result is of a half type without a rounding."""
    row = node.attributes["row"]
    given = [v for v in node.inputs if v is not None]
    if row == "Cast":
        return given[0] in rounded and node.output.dtype in FLOATS
    return row in KEEPS_HALF and all(v in rounded for v in given if v.dtype in FLOATS)


def _emit(b: ProgramBuilder, node: Node, values: list[Expression | None]) -> Expression:
    operator = node.attributes.get("operator")
    if operator is not None:
        present = [v for v in values if v is not None]
        result: Expression = b.inline(operator.formula.program(), present, node.attributes["values"])[0]
        return result
    name = node.attributes["row"]
    if name == "Pow":
        values = [values[0], _as_float(b, node.inputs[1], values[1])]
    optional = name == "Clip"
    given = values if optional else [v for v in values if v is not None]
    return ROWS[name].emit(b, given, node.attributes["attributes"])  # type: ignore[arg-type]


def _as_float(b: ProgramBuilder, value: Value | None, expression: Expression | None) -> Expression | None:
    """Read an exponent of any type as a number (a tensor of the base's type stays)."""
    if value is not None and value.data is not None and value.data.size == 1:
        return b.constant(float(np.asarray(value.data).reshape(-1)[0]))
    if expression is not None and not expression.type.is_float:
        return b.op("cast", expression, type="T")
    return expression
