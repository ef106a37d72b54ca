"""Tables of all 256 codes of a quantised tensor: filled by evaluating elementwise nodes, joined with what is beside."""

from __future__ import annotations

from typing import Any

import numpy as np

from opforge.bin.lowering import formula
from opforge.bin.lowering import quantised_values as q
from opforge.bin.lowering.fuse import same_shape
from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.expr import ValueType, semantics
from opforge.expr.blob import decode
from opforge.passes._dims import Dim

__all__ = ["TABLE_SLOT", "join_operands", "join_tables", "skip_identities", "table_node", "table_of"]

Array = np.ndarray[Any, Any]

TABLE_SLOT = {"IntegerConv": 9, "IntegerAdd": 2, "IntegerMul": 2, "IntegerTable": 1}
"""Input that is a table of codes, which the node's result goes through."""

_TYPES: dict[ValueType, Any] = {
    ValueType.BOOL: np.bool_,
    ValueType.I32: np.int32,
    ValueType.I64: np.int64,
    ValueType.U8: np.uint8,
    ValueType.I8: np.int8,
}
_HALVES = {name: formula.HALF_TYPES[dtype] for dtype, name in formula.ROUND.items()}
"""Instruction -> half type that it rounds to; in float64, which `semantics` evaluates in, it rounds to nothing."""


def table_node(x: Value, y: Value, table: Array, origin: list[str]) -> Node:
    """Make the node that looks every byte of ``x`` up; the table is in the order of the bits."""
    data = Value(f"{y.name}__table", y.dtype, [Dim.of(256)], np.ascontiguousarray(table))
    return Node("opforge", "IntegerTable", 1, [x, data], [y], {}, list(origin))


def table_of(x: Value, leaves: list[Value], region: list[Node], last: Node) -> Array | None:
    """Evaluate the nodes from one tensor's codes to the codes of the result, rounding to f32 after each step."""
    ends = [leaf.producer for leaf in leaves if leaf.producer is not None] + [last]
    steps = [q.elementwise(node, {}) for node in ends]
    for node in ends:  # the nodes written for them are not part of the graph
        node.output.producer = node
    if any(step is None for step in steps):
        return None
    nodes = [n for step in steps[:-1] for n in step or []] + region + (steps[-1] or [])
    numbers = [v for n in region for v in n.inputs if v is not None and v.data is not None]
    if any(formula.as_number(v, x.rank or 0) is None for v in numbers):
        return None
    blob, inputs = formula.build(nodes, last.output)
    return _evaluate(blob, x.dtype) if inputs == [x] else None


def _evaluate(blob: bytes, dtype: int) -> Array | None:
    """Run a program on all 256 codes."""
    program = decode(blob)
    codes = np.arange(256, dtype=np.uint8)
    values: list[Array] = [codes.view(np.int8) if dtype == 3 else codes]

    def held(value: Any, type_: ValueType) -> Array:  # noqa: ANN401 - an array or a number
        return np.asarray(value).astype(_TYPES.get(type_, np.float32))

    if program.attributes or any(t.is_float and t not in (ValueType.T, ValueType.F32) for t in program.value_types()):
        return None
    values += [held(np.float64(c.value), c.type) for c in program.constants]
    with np.errstate(all="ignore"):
        for step in program.instructions:
            given = [values[a].astype(np.float64) if values[a].dtype == np.float32 else values[a] for a in step.args]
            half = _HALVES.get(step.op)
            result = semantics.evaluate(step.op, given, step.type) if half is None else given[0].astype(half)
            values.append(held(result, step.type))
    return np.ascontiguousarray(np.broadcast_to(values[program.outputs[0].value], (256,)))


def _function_of(value: Value) -> tuple[Value, Array]:
    """Return what a value is a table of (itself, without one), and the table in bytes."""
    node = value.producer
    if node is not None and node.is_made("IntegerTable") and node.inputs[0] is not None:
        x, table = node.inputs[0], node.inputs[1]
        assert table is not None
        assert table.data is not None
        return x, table.data
    return value, np.arange(256, dtype=np.uint8).view(np.uint8 if value.dtype == 2 else np.int8)


def join_operands(graph: Graph) -> None:
    """A sum or product of two functions of one tensor is a table (``x * gate(x)``)."""
    for k, node in enumerate(graph.nodes):
        if not node.is_made("IntegerAdd", "IntegerMul") or node.inputs[0] is None or node.inputs[1] is None:
            continue
        (x, a), (z, b) = (_function_of(v) for v in node.inputs[:2] if v is not None)
        if x is not z or not same_shape(x, node.output):
            continue
        a_codes, b_codes, y_codes = (
            q.Codes(v.dtype, np.float32(node.attributes[f"{name}_scale"]), node.attributes[f"{name}_zero"])
            for name, v in (("a", node.inputs[0]), ("b", node.inputs[1]), ("y", node.output))
        )
        operation = np.multiply if node.op == "IntegerMul" else np.add
        codes = y_codes.codes(operation(a_codes.numbers(a), b_codes.numbers(b)))
        codes = np.clip(codes, node.attributes["least"], node.attributes["most"])
        graph.nodes[k] = table_node(x, node.output, codes, node.origin)


def skip_identities(graph: Graph) -> None:
    """Let readers of a table that changes nothing read what is behind it."""
    same: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = [same.get(v, v) if v is not None else None for v in node.inputs]
        if not node.is_made("IntegerTable"):
            continue
        x, table = node.inputs[0], node.inputs[1]
        assert x is not None
        assert table is not None
        assert table.data is not None
        if x.dtype == table.dtype and np.array_equal(table.data.view(np.uint8), np.arange(256)):
            same[node.output] = x


def join_tables(graph: Graph) -> None:
    """Let what makes bytes look them up where nothing else reads them; a table of a table is one."""
    readers, kept = graph.readers(), []
    for node in graph.nodes:
        before = node.inputs[0].producer if node.is_made("IntegerTable") and node.inputs[0] is not None else None
        x = node.inputs[0] if node.inputs else None
        alone = x is not None and not x.is_output and readers.get(x) == [node]
        slot = TABLE_SLOT.get(before.op) if before is not None and before.domain == "opforge" else None
        if before is None or x is None or slot is None or not alone or x.dtype != node.output.dtype:
            kept.append(node)
            continue
        table, earlier = node.inputs[1], q.operand(before, slot)
        assert table is not None
        assert table.data is not None
        if earlier is not None and earlier.data is not None:
            data = table.data[earlier.data.view(np.uint8)]
            table = Value(table.name, table.dtype, table.dims, np.ascontiguousarray(data))
        before.inputs += [None] * (slot + 1 - len(before.inputs))
        before.inputs[slot] = table
        before.outputs = [node.output]
        before.origin += node.origin
        node.output.producer = before
    graph.nodes = kept
