"""Shapes through If, Loop and Scan: what a body gets, and what holds for every iteration.

A dimension of a carried value is known when the body gives what it got: the search begins with the initial value's
dimensions and drops those that the body changes, until nothing changes. What the model says about a body's inputs is
not believed, since nothing checks it while the loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from opforge.errors import ArgumentError
from opforge.passes import _edit
from opforge.passes._dims import Dim, unknown

__all__ = ["Given", "body_of", "infer"]

MAX_ROUNDS = 8
"""After so many rounds nothing is said about the carried values; two are usual."""
DEEP = 5
"""Of a loop with so many levels of subgraphs inside nothing is said at once: rounds multiply with every level."""

BATCHLESS = 9
"""Opset from which a Scan has no batch; the older form is rewritten before anything is asked about it."""

Dims = list[Dim] | None
Given = Mapping[ir.Value, Dims]
InferGraph = Callable[[ir.Graph, int, Given], int]
DimsOf = Callable[[ir.Value | None], Dims]


def body_of(node: ir.Node) -> ir.Graph:
    """Return the body of a Loop or Scan."""
    return node.attributes["body"].as_graph()


def infer(node: ir.Node, opset: int, graph: InferGraph, dims_of: DimsOf) -> int:
    """Infer inside the subgraphs of a node, and what it gives; return how many values were new.

    Args:
        node: any node with subgraphs; of others than If, Loop and Scan nothing is said about the outputs.
        opset: of the model.
        graph: infers one graph, given the dimensions of its inputs.
        dims_of: dimensions of a value.
    """
    rule = {"If": _if, "Loop": _loop, "Scan": _scan}.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        return sum(graph(inner, opset, {}) for inner in _edit.subgraphs(node))
    return rule(node, opset, graph, dims_of)


def _merged(a: Dims, b: Dims) -> Dims:
    """Return what two shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return [x if x == y else unknown() for x, y in zip(a, b, strict=True)]


def _set(value: ir.Value, like: ir.Value | None, dims: Dims) -> None:
    if value.type is None and like is not None:
        value.type = like.type
    if dims is not None:
        value.meta["dims"] = dims


def _place(node: ir.Node) -> str:
    return f"node {node.name or node.outputs[0].name!r} ({node.op_type})"


def _arity(node: ir.Node, what: str, wanted: int, found: int) -> None:
    if wanted != found:
        raise ArgumentError(
            f"a subgraph has a wrong number of {what}",
            where=_place(node),
            expected=wanted,
            got=found,
        )


def _if(node: ir.Node, opset: int, graph: InferGraph, dims_of: DimsOf) -> int:
    branches = _edit.subgraphs(node)
    missing = [name for name in ("then_branch", "else_branch") if name not in node.attributes]
    if missing:
        raise ArgumentError("a branch is missing", where=_place(node), expected=" and ".join(missing), got="nothing")
    changed = sum(graph(branch, opset, {}) for branch in branches)
    for branch in branches:
        _arity(node, "outputs", len(node.outputs), len(branch.outputs))
    for k, output in enumerate(node.outputs):
        ends = [branch.outputs[k] for branch in branches]
        dtypes = {end.dtype for end in ends if end.dtype is not None}
        if len(dtypes) > 1:
            raise ArgumentError(
                "the branches give values of different types",
                where=f"{_place(node)}, output {output.name!r}",
                expected="one type",
                got=" and ".join(sorted(t.name for t in dtypes)),
            )
        if output.type is None and all(end.type == ends[0].type for end in ends):
            output.type = ends[0].type
        dims = dims_of(ends[0])
        for end in ends[1:]:
            dims = _merged(dims, dims_of(end))
        _set(output, None, dims)
    return changed


def _levels(graph: ir.Graph) -> int:
    """Return how deep subgraphs are nested in a graph."""
    return max((1 + _levels(inner) for node in graph for inner in _edit.subgraphs(node)), default=0)


def _carried(
    node: ir.Node,
    opset: int,
    graph: InferGraph,
    dims_of: DimsOf,
    fixed: dict[ir.Value, Dims],
    first_input: int,
    first_output: int,
    initial: Sequence[ir.Value | None],
) -> tuple[int, list[Dims]]:
    """Find what holds in every iteration; return changes, and dimensions of the carried values afterwards."""
    body = body_of(node)
    inside = body.inputs[first_input : first_input + len(initial)]
    for value, outer in zip(inside, initial, strict=True):
        _set(value, outer, None)
    deep = _levels(body) >= DEEP
    assumed: list[Dims] = [None if deep else dims_of(v) for v in initial]
    for turn in range(MAX_ROUNDS + 1):
        changed = graph(body, opset, {**fixed, **dict(zip(inside, assumed, strict=True))})
        results = [dims_of(v) for v in body.outputs[first_output : first_output + len(initial)]]
        merged = [_merged(a, r) for a, r in zip(assumed, results, strict=True)]
        stable = all(_as_known(m, a) for m, a in zip(merged, assumed, strict=True))
        if stable:
            break
        assumed = merged if turn < MAX_ROUNDS - 1 else [None] * len(initial)
    after = [
        None if a is None or r is None else [x if x == y else unknown() for x, y in zip(a, r, strict=True)]
        for a, r in zip(assumed, results, strict=True)
    ]
    return changed, after


def _as_known(merged: Dims, assumed: Dims) -> bool:
    """Tell whether a round lost nothing: dimensions that were anonymous before may stay so."""
    if merged is None or assumed is None:
        return merged is assumed
    return all(m == a or a.is_anonymous for m, a in zip(merged, assumed, strict=True))


def _outside(dims: Dims) -> Dims:
    """Return dimensions of a body's value as the outer graph sees them: anonymous ones are those of no other value."""
    return None if dims is None else [unknown() if d.is_anonymous else d for d in dims]


def _trips(node: ir.Node) -> Dim:
    """Return how often a Loop runs, where nothing can end it before its count."""
    body = body_of(node)
    keep = body.outputs[0]
    while (producer := keep.producer()) is not None and _edit.is_op(producer, "Identity"):
        source = producer.inputs[0]
        assert source is not None
        keep = source
    always = keep is body.inputs[1] or _is_true(keep)
    begins = len(node.inputs) < 2 or node.inputs[1] is None or _is_true(node.inputs[1])
    count = node.inputs[0] if node.inputs else None
    if count is None or not (always and begins):
        return unknown()
    number = _edit.scalar(count)
    if number is not None:
        return Dim.of(max(0, int(number)))
    known: Dims = count.meta.get("known")
    return known[0] if known is not None and len(known) == 1 else unknown()


def _is_true(value: ir.Value | None) -> bool:
    data = _edit.array(value)
    return data is not None and data.size == 1 and bool(np.all(data))


def _loop(node: ir.Node, opset: int, graph: InferGraph, dims_of: DimsOf) -> int:
    body, initial = body_of(node), list(node.inputs[2:])
    _arity(node, "inputs", 2 + len(initial), len(body.inputs))
    _arity(node, "outputs", 1 + len(node.outputs), len(body.outputs))
    count, keep = body.inputs[0], body.inputs[1]
    count.type = count.type or ir.TensorType(ir.DataType.INT64)
    keep.type = keep.type or ir.TensorType(ir.DataType.BOOL)
    changed, after = _carried(node, opset, graph, dims_of, {count: [], keep: []}, 2, 1, initial)
    for k, output in enumerate(node.outputs):
        inner = body.outputs[1 + k]
        if k < len(initial):
            _set(output, inner if inner.type is not None else initial[k], after[k])
            continue
        dims = _outside(dims_of(inner))
        _set(output, inner, None if dims is None else [_trips(node), *dims])
    return changed


def _scan(node: ir.Node, opset: int, graph: InferGraph, dims_of: DimsOf) -> int:
    body, scanned = body_of(node), int(_edit.attribute(node, "num_scan_inputs", 0))
    if opset < BATCHLESS:
        return graph(body, opset, {})
    states = len(node.inputs) - scanned
    _arity(node, "inputs", len(node.inputs), len(body.inputs))
    _arity(node, "outputs", len(node.outputs), len(body.outputs))
    axes = _edit.attribute(node, "scan_input_axes") or [0] * scanned
    fixed: dict[ir.Value, Dims] = {}
    trips: Dim = unknown()
    for value, outer, axis in zip(body.inputs[states:], node.inputs[states:], axes, strict=True):
        dims = dims_of(outer)
        _set(value, outer, None)
        fixed[value] = None if dims is None else [d for k, d in enumerate(dims) if k != axis % max(len(dims), 1)]
        trips = dims[axis] if dims and trips.is_anonymous else trips
    changed, after = _carried(node, opset, graph, dims_of, fixed, 0, 0, node.inputs[:states])
    out_axes = _edit.attribute(node, "scan_output_axes") or [0] * (len(node.outputs) - states)
    for k, output in enumerate(node.outputs):
        inner = body.outputs[k]
        if k < states:
            _set(output, inner, after[k])
            continue
        inner_dims = _outside(dims_of(inner))
        _set(output, inner, None)
        if inner_dims is not None:
            at = out_axes[k - states] % (len(inner_dims) + 1)
            output.meta["dims"] = [*inner_dims[:at], trips, *inner_dims[at:]]
    return changed
