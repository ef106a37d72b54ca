"""Find registered formula operators in their decomposed form and put the operator in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opforge.expr import Node, ProgramBuilder
from opforge.expr.nodes import substitute
from opforge.expr.simplify import simplify as simplify_expressions
from opforge.onnx._canonical import Form, canonical
from opforge.onnx.elementwise import ROWS, VALUE_TYPES
from opforge.schema import Operator, Required, registry

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["raise_formulas"]

_MAX_NODES = 64
_MAX_CUTS = 24


@dataclass(frozen=True)
class _Wanted:
    """A formula with its attributes at their defaults, in the two forms in which models hold it."""

    operator: Operator
    forms: frozenset[Form]
    size: int

    @property
    def count(self) -> int:
        return len(self.operator.signature.inputs)


def raise_formulas(model: onnx.ModelProto, operators: Iterable[Operator] | None = None) -> onnx.ModelProto:
    """Return a copy of ``model`` in which decomposed formulas are nodes of their operators again.

    A subgraph of standard elementwise nodes that computes what a formula computes (up to the order of sums and
    products, equal forms such as ``x*x`` and ``x**2``, and the rewrites that formulas undergo) becomes one node, with
    opset import, function body and metadata. Attributes are looked for at their default values. Larger matches win.

    Args:
        model: any model; nodes inside subgraphs are left alone.
        operators: which formulas to look for; all registered ones when not given.
    """
    import onnx_ir as ir

    from opforge.onnx.functions import complete_model
    from opforge.passes import infer_shapes, lift_constants, remove_dead

    wanted = sorted(_wanted(operators or registry.operators().values()), key=lambda w: -w.size)
    graph_model = ir.from_proto(model)
    functions = dict(graph_model.functions)
    graph_model.functions.clear()
    lift_constants.call(graph_model)
    infer_shapes.call(graph_model)
    changed = sum(_raise_one(graph_model, item) for item in wanted)
    if not changed:
        return _copy(model)
    remove_dead.call(graph_model)
    graph_model.functions.update(functions)
    return complete_model(ir.to_proto(graph_model))


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def _wanted(operators: Iterable[Operator]) -> Iterator[_Wanted]:
    for operator in operators:
        formula: Any = operator.formula
        attributes = operator.signature.attributes
        if formula is None or operator.is_gradient or len(formula.outputs) != 1 or len(operator.signature.inputs) > 3:
            continue
        if any(isinstance(a.default, Required) for a in attributes):
            continue
        builder = ProgramBuilder()
        defaults = [builder.constant(float(np.float32(cast(float, a.default)))) for a in attributes]
        written = _with_defaults([formula.outputs[0].node], defaults)
        forms = {canonical(node) for node in (*written, *simplify_expressions(written))}
        yield _Wanted(operator, frozenset(forms), _size(written[0]))


def _with_defaults(nodes: list[Node], defaults: list[Node]) -> list[Node]:
    from opforge.expr.nodes import attribute

    leaves = {attribute(k, value.type): value for k, value in enumerate(defaults)}
    return list(substitute(nodes, leaves))


def _size(node: Node) -> int:
    from opforge.expr.nodes import LEAVES, postorder

    return sum(n.op not in LEAVES for n in postorder([node]))


def _raise_one(model: ir.Model, wanted: _Wanted) -> int:
    """Replace every match of one formula, from the outputs backwards, so that the largest region is seen first."""
    from opforge.passes import _edit

    count = 0
    for node in reversed(_edit.nodes(model)):
        if node.graph is not None and _elementwise(node):
            found = _match(node, wanted)
            if found is not None:
                _replace(model, node, wanted.operator, found)
                count += 1
    return count


def _elementwise(node: ir.Node) -> bool:
    if node.domain or node.op_type not in ROWS or len(node.outputs) != 1:
        return False
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None]
    return all(t is not None and int(t) in VALUE_TYPES for t in types)


def _match(root: ir.Node, wanted: _Wanted) -> tuple[ir.Value, ...] | None:
    """Return the values that are the formula's inputs when ``root`` computes it, else None."""
    region, cuts = _region(root)
    if len(region) * 3 < wanted.size:
        return None
    for chosen in permutations(cuts, wanted.count):
        expression = _expression(root, region, chosen)
        if expression is None:
            continue
        forms = {canonical(expression), canonical(simplify_expressions([expression])[0])}
        if forms & wanted.forms:
            return chosen
    return None


def _region(root: ir.Node) -> tuple[set[ir.Node], list[ir.Value]]:
    """Return the elementwise nodes above ``root``, and the values at which the formula may begin, nearest last."""
    region, order, pending = {root}, [], [root]
    while pending and len(region) < _MAX_NODES:
        node = pending.pop(0)
        for value in node.inputs:
            if value is None or value.const_value is not None:
                continue
            if value not in order:
                order.append(value)
            producer = value.producer()
            near = producer is not None and producer.graph is root.graph  # not into the graph around a subgraph
            if near and producer is not None and producer not in region and _elementwise(producer):
                region.add(producer)
                pending.append(producer)
    # The farthest values first: a formula's input is usually where the region begins.
    return region, order[::-1][:_MAX_CUTS]


def _expression(root: ir.Node, region: set[ir.Node], inputs: tuple[ir.Value, ...]) -> Node | None:
    """Write what ``root`` computes from ``inputs``; None where it needs another value or an input goes unused."""
    builder = ProgramBuilder()
    known: dict[ir.Value, Node] = {value: builder.input(VALUE_TYPES[int(value.dtype)]) for value in inputs}  # type: ignore[arg-type]
    used: set[ir.Value] = set()

    def value_of(value: ir.Value | None) -> Node | None:
        if value is None:
            return None
        if value in known:
            used.add(value)
            return known[value]
        if value.const_value is not None:
            data = value.const_value.numpy()
            if data.size != 1 or value.dtype is None or int(value.dtype) not in VALUE_TYPES:
                raise LookupError
            known[value] = builder.constant(float(data.reshape(-1)[0]), VALUE_TYPES[int(value.dtype)])
            return known[value]
        node = value.producer()
        if node is None or node not in region:
            raise LookupError
        operands = [value_of(v) for v in node.inputs]
        given = operands if node.op_type == "Clip" else [v for v in operands if v is not None]
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        known[value] = ROWS[node.op_type].emit(builder, given, attributes)  # type: ignore[arg-type]
        return known[value]

    from opforge.errors import OpforgeError

    try:
        result = value_of(root.outputs[0])
    except (LookupError, OpforgeError, AssertionError):
        return None
    return result if used == set(inputs) else None


def _replace(model: ir.Model, root: ir.Node, operator: Operator, inputs: tuple[ir.Value, ...]) -> None:
    from opforge.passes import _edit

    _edit.replace_node(root, operator.name, list(inputs), domain=operator.domain)
    model.graph.opset_imports.setdefault(operator.domain, operator.since_version)
