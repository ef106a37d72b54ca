"""Find registered formula operators in their decomposed form and put the operator in their place."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opforge.errors import OpforgeError, SchemaError
from opforge.expr import Node, ProgramBuilder, ValueType
from opforge.expr.nodes import LEAVES, attribute, constant, postorder, substitute
from opforge.expr.simplify import simplify as simplify_expressions
from opforge.onnx._accuracy import is_no_worse
from opforge.onnx._canonical import Form, canonical
from opforge.onnx._unify import unify
from opforge.onnx.elementwise import ROWS, VALUE_TYPES
from opforge.schema import Operator, Required, registry

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["raise_formulas", "raise_in"]

HALVES = frozenset({10, 16})
"""ONNX numbers of f16 and bf16."""

_MAX_NODES = 64
_MAX_CUTS = 24
_MAX_RANK = 16


@dataclass(frozen=True)
class _Wanted:
    """A formula in the forms in which models hold it: as it is written, and as it is rewritten."""

    operator: Operator
    expression: Node
    forms: frozenset[Form]
    functions: frozenset[str]
    defaults: dict[int, float]
    size: int

    @property
    def count(self) -> int:
        return len(self.operator.signature.inputs)


@dataclass(frozen=True)
class _Found:
    """Where a formula begins, its attributes that are not at their defaults, and the nodes that it replaces."""

    inputs: tuple[ir.Value, ...]
    attributes: dict[str, float | int]
    nodes: frozenset[ir.Node]


def raise_formulas(model: onnx.ModelProto, operators: Iterable[Operator] | None = None) -> onnx.ModelProto:
    """Return a copy of ``model`` in which decomposed formulas are nodes of their operators again.

    A subgraph of standard elementwise nodes that computes what a formula computes (up to the order of sums and
    products, equal forms such as ``x*x`` and ``x**2``, constants within a rounding of float32, and the rewrites that
    formulas undergo) becomes one node, with opset import, function body and metadata. Attributes are solved for. A
    formula that would be less accurate than what stands there is not put in its place. Larger matches win.

    Args:
        model: any model.
        operators: which formulas to look for; all registered ones when not given.
    """
    import onnx_ir as ir

    from opforge.onnx.functions import complete_model
    from opforge.passes import _well_formed, infer_shapes, lift_constants, remove_dead

    graph_model = _well_formed.from_proto(model)
    functions = dict(graph_model.functions)
    graph_model.functions.clear()
    lift_constants.call(graph_model)
    infer_shapes.call(graph_model)
    if not raise_in(graph_model, operators or registry.operators().values()):
        return _copy(model)
    remove_dead.call(graph_model)
    graph_model.functions.update(functions)
    return complete_model(ir.to_proto(graph_model))


def raise_in(model: ir.Model, operators: Iterable[Operator], *, whole: bool = False, least: int = 0) -> int:
    """Raise in every graph of a model whose constants are lifted and whose types are known; return how often.

    Args:
        model: changed in place.
        operators: which formulas to look for.
        whole: leave matches alone whose inner values are read elsewhere (they would be computed twice), and half
            types, where each operator's rounding counts.
        least: operations that a formula of nothing but arithmetic must have to be looked for.
    """
    from opforge.passes import _edit

    wanted = [w for w in _wanted(operators) if w.functions or w.size >= least]
    wanted.sort(key=lambda w: -w.size)
    return sum(_raise_one(list(graph), item, whole) for item in wanted for graph in _edit.graphs(model))


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def _wanted(operators: Iterable[Operator]) -> Iterator[_Wanted]:
    for operator in operators:
        formula: Any = operator.formula
        if formula is None or operator.is_gradient or len(formula.outputs) != 1 or len(operator.signature.inputs) > 3:
            continue
        written = formula.outputs[0].node
        if written.op in LEAVES:
            continue
        rewritten = simplify_expressions([written])[0]
        defaults = {
            k: float(cast(float, a.default))
            for k, a in enumerate(operator.signature.attributes)
            if not isinstance(a.default, Required)
        }
        forms = frozenset({canonical(written), canonical(rewritten)})
        yield _Wanted(operator, rewritten, forms, _functions(rewritten), defaults, _size(written))


_ARITHMETIC = frozenset(
    """
    abs add cast clip div fma fnma ge gt le lt max min mul neg pow reciprocal relu rsqrt select sqrt square sub
    """.split()
)


def _functions(node: Node) -> frozenset[str]:
    """Return the functions of an expression that no rewrite turns into arithmetic."""
    return frozenset(n.op for n in postorder([node]) if n.op not in _ARITHMETIC and n.op not in LEAVES)


def _size(node: Node) -> int:
    return sum(n.op not in LEAVES for n in postorder([node]))


def _raise_one(nodes: list[ir.Node], wanted: _Wanted, whole: bool) -> int:
    """Replace every match of one formula, from the outputs backwards, so that the largest region is seen first."""
    count = 0
    for node in reversed(nodes):
        if node.graph is not None and _elementwise(node, whole):
            found = _match(node, wanted, whole)
            if found is not None:
                _replace(node, wanted.operator, found)
                count += 1
    return count


def _elementwise(node: ir.Node, whole: bool) -> bool:
    if node.domain or node.op_type not in ROWS or len(node.outputs) != 1:
        return False
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None]
    return all(t is not None and int(t) in VALUE_TYPES and not (whole and int(t) in HALVES) for t in types)


def _match(root: ir.Node, wanted: _Wanted, whole: bool) -> _Found | None:
    """Return the values that are the formula's inputs when ``root`` computes it, else None."""
    families = _families(wanted.functions)
    if not _may_hold(root, families):
        return None
    region, cuts = _region(root, whole, families)
    if len(region) * 3 < wanted.size:
        return None
    most = 3 * wanted.size + 8
    for chosen in _choices(root, region, cuts, wanted.count, most):
        written = _expression(root, region, chosen, most)
        if written is None:
            continue
        expression, nodes = written
        if whole and _is_read_elsewhere(root, nodes):
            continue
        rewritten = simplify_expressions([expression])[0]
        if not wanted.functions <= _functions(rewritten):
            continue
        for target in dict.fromkeys((canonical(expression), canonical(rewritten))):
            for form in wanted.forms:
                solved = unify(form, target, wanted.defaults)
                attributes = None if solved is None else _attributes(wanted, solved)
                if attributes is not None and _is_accurate(wanted, attributes, expression, chosen):
                    return _Found(chosen, _given(wanted, attributes), nodes)
    return None


def _attributes(wanted: _Wanted, solved: dict[int, float]) -> list[float] | None:
    """Return all attributes as they are stored; None where one is not of its kind or nowhere determined."""
    values = []
    for k, declared in enumerate(wanted.operator.signature.attributes):
        value = solved.get(k, wanted.defaults.get(k))
        if value is None:
            return None
        if declared.kind in ("int", "bool"):
            if abs(value - round(value)) > 1e-6 or (declared.kind == "bool" and round(value) not in (0, 1)):
                return None
            values.append(float(round(value)))
            continue
        default = wanted.defaults.get(k)
        if default is not None and abs(value - default) <= 2.0**-23 * abs(default):
            value = default
        values.append(float(np.float32(value)))
    return values


def _given(wanted: _Wanted, values: list[float]) -> dict[str, float | int]:
    declared = wanted.operator.signature.attributes
    return {
        a.name: v if a.kind == "float" else int(v)
        for k, (a, v) in enumerate(zip(declared, values, strict=True))
        if a.required or v != float(np.float32(wanted.defaults[k]))
    }


def _is_accurate(wanted: _Wanted, values: list[float], expression: Node, inputs: tuple[ir.Value, ...]) -> bool:
    leaves = {
        attribute(k, ValueType.parse(n.type.text)): constant(values[k], n.type)
        for n in postorder([wanted.expression])
        if n.op == "attribute"
        for k in (n.index,)
    }
    new = simplify_expressions(substitute([wanted.expression], leaves))[0]
    return is_no_worse(new, expression, [VALUE_TYPES[int(v.dtype)] for v in inputs if v.dtype is not None])


def _is_read_elsewhere(root: ir.Node, nodes: frozenset[ir.Node]) -> bool:
    inner = (o for n in nodes if n is not root for o in n.outputs)
    return any(o.is_graph_output() or any(u.node not in nodes for u in o.uses()) for o in inner)


_EXPONENTIAL = frozenset(
    "acosh asinh atanh cosh exp exp2 expm1 log log10 log1p log2 sigmoid sinh softplus tanh".split()
)


def _families(functions: Iterable[str]) -> frozenset[str]:
    """Return what functions are related to; rewrites turn a function into relations only."""
    return frozenset("exp" if f in _EXPONENTIAL else "erf" if f == "erfc" else f for f in functions)


@functools.cache
def _families_of(op_type: str) -> frozenset[str] | None:
    """Return the families of a standard operator's functions; None where its form depends on attributes."""
    for count in range(1, 4):
        builder = ProgramBuilder()
        operands: list[Any] = [builder.input(VALUE_TYPES[1]) for _ in range(count)]
        try:
            return _families(_functions(ROWS[op_type].emit(builder, operands, {})))
        except (LookupError, SchemaError):  # it takes more operands, other types, or a required attribute
            continue
    return None


def _may_hold(node: ir.Node, families: frozenset[str]) -> bool:
    """Whether a node can be part of a formula of these families."""
    own = _families_of(node.op_type)
    return own is None or own <= families


def _region(root: ir.Node, whole: bool, families: frozenset[str]) -> tuple[set[ir.Node], list[ir.Value]]:
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
            if producer is None or producer in region or producer.graph is not root.graph:
                continue
            if _elementwise(producer, whole) and _may_hold(producer, families):
                region.add(producer)
                pending.append(producer)
    # The farthest values first: a formula's input is usually where the region begins.
    return region, order[::-1][:_MAX_CUTS]


def _choices(
    root: ir.Node, region: set[ir.Node], cuts: list[ir.Value], count: int, most: int
) -> list[tuple[ir.Value, ...]]:
    """Return what may be the formula's ``count`` inputs, in every order: values that ``root`` computes from alone.

    Each value on the way up is an input or computed from others. Trying every choice of cuts would take thousands of
    trials at each node of a chain for a formula of three inputs, and a chain has none of them.
    """
    place = {value: k for k, value in enumerate(cuts)}
    found: list[frozenset[int]] = []
    states: list[tuple[tuple[ir.Value | None, ...], frozenset[int], frozenset[ir.Node]]]
    states = [(tuple(root.inputs), frozenset(), frozenset({root}))]
    while states:
        undecided, chosen, computed = states.pop()
        if not undecided:
            found += [chosen] if len(chosen) == count else []
            continue
        *before, value = undecided
        rest = tuple(before)
        producer = None if value is None else value.producer()
        if value is None or value.const_value is not None or place.get(value) in chosen or producer in computed:
            states.append((rest, chosen, computed))
            continue
        if value in place and len(chosen) < count:
            states.append((rest, chosen | {place[value]}, computed))
        if producer is not None and producer in region and len(computed) < most:
            states.append(((*rest, *producer.inputs), chosen, computed | {producer}))
    orders = sorted(order for chosen in found for order in permutations(chosen))
    return [tuple(cuts[k] for k in order) for order in orders]


def _expression(
    root: ir.Node, region: set[ir.Node], inputs: tuple[ir.Value, ...], most: int
) -> tuple[Node, frozenset[ir.Node]] | None:
    """Write what ``root`` computes from ``inputs``; None where that takes another value or more than ``most`` nodes."""
    builder = ProgramBuilder()
    known: dict[ir.Value, Node] = {value: builder.input(VALUE_TYPES[int(value.dtype)]) for value in inputs}  # type: ignore[arg-type]
    ranks = [len(value.shape) for value in inputs if value.shape is not None]
    rank = max(ranks, default=0) if len(ranks) == len(inputs) else _MAX_RANK
    used: set[ir.Value] = set()
    visited: set[ir.Node] = set()

    def value_of(value: ir.Value | None) -> Node | None:
        if value is None:
            return None
        if value in known:
            if value in inputs:
                used.add(value)
            return known[value]
        if value.const_value is not None and not value.is_graph_input():
            if value.const_value.size != 1 or value.dtype is None or int(value.dtype) not in VALUE_TYPES:
                raise LookupError
            if value.const_value.shape.rank() > rank:
                raise LookupError  # it widens the result
            number = float(value.const_value.numpy().reshape(-1)[0])
            known[value] = builder.constant(number, VALUE_TYPES[int(value.dtype)])
            return known[value]
        node = value.producer()
        if node is None or node not in region:
            raise LookupError
        visited.add(node)
        if len(visited) > most:
            raise LookupError
        operands = [value_of(v) for v in node.inputs]
        given = operands if node.op_type == "Clip" else [v for v in operands if v is not None]
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        known[value] = ROWS[node.op_type].emit(builder, given, attributes)  # type: ignore[arg-type]
        return known[value]

    try:
        result = value_of(root.outputs[0])
    except (LookupError, OpforgeError, AssertionError):
        return None
    return (result, frozenset(visited)) if result is not None and used == set(inputs) else None


def _replace(root: ir.Node, operator: Operator, found: _Found) -> None:
    from opforge.passes import _edit

    graph = root.graph
    assert graph is not None
    also = [n for n in graph if n in found.nodes and n is not root]
    _edit.replace_node(root, operator.name, list(found.inputs), found.attributes, domain=operator.domain, also=also)
    graph.opset_imports.setdefault(operator.domain, operator.since_version)
