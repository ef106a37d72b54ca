"""From elementwise nodes to one program of bytecode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from opforge.bin.lowering.graph import FLOAT, FLOATS, HALVES, Node, Value
from opforge.expr import Node as Expression
from opforge.expr import ProgramBuilder, ValueType
from opforge.onnx.elementwise import ROWS, VALUE_TYPES

__all__ = ["as_number", "build"]

EXACT = 2.0**53
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
    if (
        root.dtype in FLOATS
        and root.dtype != FLOAT
        and not any(v.dtype in FLOATS for v in inputs)
        and _half(nodes) is None
    ):
        # The type of the calculation shows in tensors only, so its constants stay tensors.
        blob, inputs = _build(nodes, root, first, embed=False)
    return blob, inputs


def _half(nodes: Sequence[Node]) -> int | None:
    """Return the half type that nodes calculate in; f32 values among them stand before or behind a conversion."""
    types = {v.dtype for n in nodes for v in (*n.inputs, *n.outputs) if v is not None}
    return next(iter(types & HALVES), None)


def _build(nodes: Sequence[Node], root: Value, first: Value | None, *, embed: bool) -> tuple[bytes, list[Value]]:
    b = ProgramBuilder()
    known: dict[Value, Expression] = {}
    inputs: list[Value] = []
    inside = {o for n in nodes for o in n.outputs if o is not None}
    outer = [v for n in nodes for v in n.inputs if v is not None and v not in inside]
    whole = root.rank or 0
    tensors = [v.rank for v in outer if as_number(v, whole) is None and v.rank is not None]
    rank = max(tensors, default=whole)  # a number of more dimensions widens the result: it stays a tensor
    half = _half(nodes)

    def type_of(value: Value) -> ValueType:
        return ValueType.F32 if half is not None and value.dtype == FLOAT else VALUE_TYPES[value.dtype]

    def read(value: Value | None) -> Expression | None:
        if value is None:
            return None
        if value not in known:
            number = as_number(value, rank) if embed or value.dtype not in FLOATS else None
            if number is not None and value not in inside:
                known[value] = b.constant(number, type_of(value))
            else:
                inputs.append(value)
                known[value] = b.input(type_of(value))
        return known[value]

    if first is not None:
        read(first)
    for node in nodes:
        known[node.output] = _emit(b, node, [read(v) for v in node.inputs])
    if not inputs:  # a program reads at least one tensor
        constant = max(outer, key=lambda v: v.rank or 0)
        inputs.append(constant)
        b.input(VALUE_TYPES[constant.dtype])
    if half is not None and not any(v.dtype == half for v in inputs):  # inputs tell what T is
        zero = np.zeros((), HALF_TYPES[half])
        inputs.append(Value(f"{root.name}__type", half, [], zero))
        b.input()
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
        if name == "Cast" and node.output.dtype == FLOAT and node.inputs[0] is not None:
            if node.inputs[0].dtype in HALVES and values[0] is not None:
                return b.op("cast", values[0], type=ValueType.F32)
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
