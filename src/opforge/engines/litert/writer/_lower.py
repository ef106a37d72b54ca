"""From a prepared ONNX graph to a graph of the file: rows for standard operators, custom nodes for ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir

from opforge.engines.litert.writer import _arrangement, _elementwise, _images, _products
from opforge.engines.litert.writer._file import File
from opforge.engines.litert.writer._options import encode
from opforge.engines.litert.writer._scope import OpenShapeError, Row, Scope, refuse
from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes._operators import attributes_of, operator_of
from opforge.schema import ABSENT, DType, Operator

__all__ = ["ROWS", "lower"]


def lower(file: File, model: ir.Model) -> tuple[dict[str, int], dict[str, int]]:
    """Write the main graph; return the tensors of its inputs and outputs by name.

    Raises:
        UnsupportedError: nodes that LiteRT has no operators for; all are listed.
        OpenShapeError: the same, and for known shapes there would be fewer.
    """
    scope = Scope(file, file.graph("main"))
    inputs = {}
    for value in model.graph.inputs:
        if value.name:
            inputs[value.name] = scope.define(value)
    problems: list[UnsupportedError] = []
    _nodes(scope, model.graph, problems)
    if problems:
        raise _all(problems)
    outputs = {value.name or "": _result(scope, value) for value in model.graph.outputs}
    scope.graph.tree.inputs, scope.graph.tree.outputs = list(inputs.values()), list(outputs.values())
    return inputs, outputs


def _all(problems: Sequence[UnsupportedError]) -> UnsupportedError:
    if len(problems) == 1:
        return problems[0]
    rows = "".join(f"\n    {str(p).splitlines()[0]}" + (f" ({p.got})" if p.got is not None else "") for p in problems)
    kind = OpenShapeError if all(isinstance(p, OpenShapeError) for p in problems) else UnsupportedError
    return kind("nodes cannot be written for LiteRT", got=rows, hint=problems[0].hint)


def _nodes(scope: Scope, graph: ir.Graph, problems: list[UnsupportedError]) -> None:
    """Write the nodes of a graph; what cannot be written is noted, and its outputs are there all the same."""
    for node in graph:
        try:
            _node(scope, node)
        except UnsupportedError as problem:
            if problem.where is None or not problem.where.startswith("node "):
                kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
                where = f"node {node.name or node.outputs[0].name!r} ({kind})"
                problem = type(problem)(problem.what, where=where, got=problem.got, hint=problem.hint)
            problems.append(problem)
            for value in node.outputs:
                if value.name:
                    scope.alias(value, 0)


def _node(scope: Scope, node: ir.Node) -> None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    operator = operator_of(node) if domain else None
    row = ROWS.get(node.op_type)
    if domain and operator is None:
        raise refuse(node, "nobody registered this operator")
    if operator is None and row is None:
        raise refuse(node, "LiteRT has no such operator, or opforge no way to write it")
    if operator is None and node.op_type not in _MOVES:
        small = [v for v in (*node.inputs, *node.outputs) if v is not None and v.dtype in _QUANTISED]
        if small:
            raise refuse(node, "LiteRT computes with 8 and 16 bits as quantised numbers only", scope.dtype(small[0]))
    for value in node.outputs:
        if value.name and 0 in scope.dims(value):
            raise refuse(node, "LiteRT has no tensors without elements", f"shape {scope.dims(value)}")
    if operator is not None:
        return _custom(scope, node, operator)
    assert row is not None
    return row(scope, node)


def _result(scope: Scope, value: ir.Value) -> int:
    """Return the tensor of an output of a graph, one of its own where the value is an input or a constant too."""
    found = scope.tensor(value)
    if value.producer() is not None:
        return found
    copy = scope.new(scope.dtype(value), scope.dims(value))
    scope.reshape(found, copy, scope.dims(value), value)
    return copy


# ---- nodes of ours


def _custom(scope: Scope, node: ir.Node, operator: Operator) -> None:
    signature = operator.signature
    given = [v for v in node.inputs if v is not None]
    counts = []
    for k, parameter in enumerate(signature.inputs):
        here = node.inputs[k:] if parameter.variadic else node.inputs[k : k + 1]
        counts.append(sum(v is not None for v in here))
    attributes = operator.coerce(attributes_of(node, operator))
    outputs = [scope.define(v) for v in node.outputs if v.name]
    missing = _unnamed(scope, node, operator, attributes)
    if missing:
        named = iter(outputs)
        outputs = [next(named) if place is None else scope.new(*place) for place in missing]
    scope.graph.custom(operator.key, encode(signature, attributes, counts), [scope.tensor(v) for v in given], outputs)


def _unnamed(
    scope: Scope, node: ir.Node, operator: Operator, attributes: dict[str, Any]
) -> list[tuple[str, list[int | None]] | None]:
    """Return a place per output tensor, with dtype and dimensions where the node has no name for it; [] = all have."""
    if all(v.name for v in node.outputs) and len(node.outputs) >= len(operator.signature.outputs):
        return []
    shapes = [ABSENT if v is None else scope.dims(v) for v in node.inputs]
    dtypes = [None if v is None else DType.parse(scope.dtype(v)) for v in node.inputs]
    binding = operator.signature.bind(shapes, dtypes, attributes, where=operator.qualified_name)
    places: list[tuple[str, list[int | None]] | None] = []
    made = iter(zip(binding.output_shapes, binding.output_dtypes, strict=True))
    position = 0
    for count in binding.output_counts:
        for k in range(count):
            shape, dtype = next(made)
            index = position + k
            if index < len(node.outputs) and node.outputs[index].name:
                places.append(None)
            else:
                dims = [d if isinstance(d, int) else None for d in shape or ()]
                places.append((dtype.name if dtype is not None else "f32", dims))
        position += max(count, 1)
    return places


# ---- branches


def _if(scope: Scope, node: ir.Node) -> None:
    branches = [_edit.attribute(node, name) for name in ("then_branch", "else_branch")]
    captured: dict[ir.Value, None] = {}
    for branch in branches:
        captured |= dict.fromkeys(_captures(branch))
    outside = [v for v in captured if _edit.array(v) is None]
    places = []
    for branch in branches:
        inner = Scope(scope.file, scope.file.graph(branch.name or "branch"), scope)
        inputs = [inner.define(value) for value in outside]
        problems: list[UnsupportedError] = []
        _nodes(inner, branch, problems)
        if problems:
            raise _all(problems)
        outputs = [_result(inner, value) for value in branch.outputs]
        inner.graph.tree.inputs, inner.graph.tree.outputs = inputs, outputs
        places.append(inner.graph.place)
    condition = scope.tensor(node.inputs[0])
    scope.node(
        "IF",
        [condition, *(scope.tensor(v) for v in outside)],
        [scope.define(v) for v in node.outputs],
        "IfOptions",
        thenSubgraphIndex=places[0],
        elseSubgraphIndex=places[1],
    )


def _captures(graph: ir.Graph) -> list[ir.Value]:
    """Return the values of outer graphs that a graph, or one inside it, reads."""
    found: dict[ir.Value, None] = {}
    own = {v for node in graph for v in node.outputs} | set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in own:
                found[value] = None
        for inner in _edit.subgraphs(node):
            found |= dict.fromkeys(v for v in _captures(inner) if v not in own)
    found |= dict.fromkeys(v for v in graph.outputs if v not in own)
    return list(found)


ROWS: Final[dict[str, Row]] = {
    **_elementwise.ROWS,
    **_arrangement.ROWS,
    **_products.ROWS,
    **_images.ROWS,
    "If": _if,
}
"""Standard operator -> what writes it."""

_QUANTISED: Final = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16)
"""Without a scale LiteRT gives wrong numbers for some operators of these types, and ends the process for others."""

_MOVES: Final = frozenset((*_arrangement.ROWS, "Cast", "Identity", "If", "Where")) - {"CumSum", "Range"}
"""Operators that only move elements, or convert them."""
