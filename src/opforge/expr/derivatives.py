"""Reverse-mode differentiation of expressions by the table of `derivative_rules`.

A mask (where, relu, clip, minimum, maximum) is applied where a gradient reaches an input, not where it passes
the mask: 0 * inf would be NaN in between. So ``where(x > 0, x * log(x), 0)`` has the derivative 0 at 0. A gradient on
its way is therefore kept apart by its guard: the conditions that it has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from opforge.expr import functions as f
from opforge.expr.derivative_rules import BOUNDED, RULES, Fade, Flow, When
from opforge.expr.nodes import Node, constant, input_, postorder, substitute
from opforge.expr.simplify import simplify
from opforge.expr.trace import Expr

__all__ = ["differentiate"]

Guard = tuple[tuple[Node, bool], ...]
Flows = dict[Guard, Expr]
_MOST_GUARDS = 8


def differentiate(outputs: Sequence[tuple[int, Node]], n_inputs: int, shift: int) -> list[Node]:
    """Gradients of expressions by every input, simplified.

    Args:
        outputs: pairs of the index at which the gradient of an expression is an input of the result, and the
            expression.
        n_inputs: inputs of the expressions.
        shift: index of the expressions' first input among the inputs of the result.
    """
    moved = {input_(k): input_(shift + k) for k in range(n_inputs)}
    roots = substitute([node for _, node in outputs], moved)
    order = list(postorder(roots))
    reach = _reach(order)
    bounded = _bounded(order, reach)
    flows: dict[Node, Flows] = {}
    for (index, _), root in zip(outputs, roots, strict=True):
        _add(flows.setdefault(root, {}), (), Expr(input_(index, root.type)))
    for node in reversed(order):
        if node not in reach or node not in flows or node.op == "input":
            continue
        operands = [Expr(a) for a in node.args]
        for guard, g in _merge(flows.pop(node)).items():
            for operand, flow in zip(node.args, RULES[node.op](g, Expr(node), *operands), strict=True):
                if flow is not None and operand in reach:
                    inputs = () if operand in bounded else reach[operand]
                    _send(flows, guard, operand, flow, inputs)
    results = []
    for k in range(n_inputs):
        total = _combine(list(flows.get(input_(shift + k), {}).items()))
        results.append(constant(0.0) if total is None else total.node)
    return simplify(results)


def _reach(order: Sequence[Node]) -> dict[Node, tuple[Node, ...]]:
    """The floating nodes that depend on inputs, with those inputs."""
    reach: dict[Node, tuple[Node, ...]] = {}
    for node in order:
        inputs = dict.fromkeys(leaf for a in node.args for leaf in reach.get(a, ()))
        if node.type.is_float and (inputs or node.op == "input"):
            reach[node] = tuple(inputs) or (node,)
    return reach


def _bounded(order: Sequence[Node], reach: dict[Node, tuple[Node, ...]]) -> set[Node]:
    """The nodes whose derivative by every input stays bounded."""
    bounded: set[Node] = set()
    for node in order:
        moving = [a for a in node.args if a in reach]
        linear = (node.op == "mul" and len(moving) == 1) or (node.op == "div" and node.args[1] not in reach)
        if node.op == "input" or ((node.op in BOUNDED or linear) and all(a in bounded for a in moving)):
            bounded.add(node)
    return bounded


def _send(flows: dict[Node, Flows], guard: Guard, operand: Node, flow: Flow, inputs: Sequence[Node]) -> None:
    """Adds a flow to its operand; a fading one, where it has faded, to the inputs that the operand depends on."""
    if isinstance(flow, Expr):
        _add(flows.setdefault(operand, {}), guard, flow)
    elif isinstance(flow, When):
        _add_where(flows, operand, guard, flow.condition, flow.holds, flow.value)
    elif isinstance(flow, Fade) and not inputs:
        _add(flows.setdefault(operand, {}), guard, flow.value)
    elif isinstance(flow, Fade):
        faded = flow.factor == 0
        _add_where(flows, operand, guard, faded, False, flow.value)
        for leaf in inputs:
            _add_where(flows, leaf, guard, faded, True, flow.value)


def _add_where(flows: dict[Node, Flows], target: Node, guard: Guard, condition: Expr, holds: bool, value: Expr) -> None:
    (node,) = simplify([condition.node])
    if (node, not holds) in guard:
        return  # Nothing flows where both a condition and its opposite would have to hold.
    entry = (node, holds)
    _add(flows.setdefault(target, {}), guard if entry in guard else (*guard, entry), value)


def _add(flows: Flows, guard: Guard, value: Expr) -> None:
    flows[guard] = flows[guard] + value if guard in flows else value


def _merge(flows: Flows) -> Flows:
    """Joins the flows of a condition and its opposite, so that chains of masks stay linear in size."""
    merged: Flows = {}
    for guard in sorted(flows, key=len, reverse=True):
        value = flows.pop(guard)
        if guard:
            *rest, (condition, holds) = guard
            opposite = (*rest, (condition, not holds))
            if opposite in flows:
                other = flows.pop(opposite)
                sides = (value, other) if holds else (other, value)
                _add(flows, tuple(rest), f.where(Expr(condition), *sides))
                return _merge({**merged, **flows})
        merged[guard] = value
    if len(merged) > _MOST_GUARDS:
        whole = _combine(list(merged.items()))
        return {} if whole is None else {(): whole}
    return dict(reversed(merged.items()))


def _combine(flows: list[tuple[Guard, Expr]]) -> Expr | None:
    """One expression of guarded flows: a tree of selects over the conditions, in the order of their appearance."""
    total: Expr | None = None
    groups: dict[Node, dict[bool, list[tuple[Guard, Expr]]]] = {}
    for guard, value in flows:
        if guard:
            (condition, holds), *rest = guard
            groups.setdefault(condition, {True: [], False: []})[holds].append((tuple(rest), value))
        else:
            total = value if total is None else total + value
    for condition, sides in groups.items():
        yes, no = (_combine(sides[holds]) for holds in (True, False))
        if yes is None and no is None:
            continue
        chosen = f.where(Expr(condition), 0.0 if yes is None else yes, 0.0 if no is None else no)
        total = chosen if total is None else total + chosen
    return total
