"""Reverse-mode differentiation of expressions, by one table row per instruction.

Choices where a derivative does not exist (the tests hold them):

| function            | at                    | derivative                                         |
|---------------------|-----------------------|----------------------------------------------------|
| abs                 | 0                     | 0                                                  |
| relu                | 0                     | 0 (NaN: that of the branch x > 0)                  |
| clip                | x = low, x = high     | 1 inside including both ends, 0 outside            |
| minimum, maximum    | x = y                 | half to each                                       |
| sign, floor, ceil, round, trunc | everywhere | 0                                                  |
| mod, fmod           | jumps                 | as between the jumps                               |
| pow(x, y)           | x = 0, y = 0          | 0 by x; by y: 0 where x = 0 and y >= 0             |
| atan2               | (0, 0)                | 0                                                  |
| where               | everywhere            | nothing flows to the side that is not chosen       |
| sqrt, log, ...      | their poles           | infinite, as the mathematics says                  |

A mask (where, relu, clip, minimum, maximum) is applied where a gradient reaches an input, not where it passes
the mask: 0 * inf would be NaN in between. So ``where(x > 0, x * log(x), 0)`` has the derivative 0 at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opforge.expr import functions as f
from opforge.expr.nodes import Node, constant, input_, postorder, substitute
from opforge.expr.simplify import simplify
from opforge.expr.trace import Expr

__all__ = ["RULES", "When", "differentiate"]

Guard = tuple[tuple[Node, bool], ...]
_MOST_GUARDS = 8
_LN2, _LN10, _2_SQRT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)


class When(NamedTuple):
    """A gradient that flows only where the condition holds (or, with ``holds=False``, does not)."""

    condition: Expr
    value: Expr
    holds: bool = True


Flow = Expr | When | None
"""What one operand gets: a gradient, a guarded one, or nothing."""
Rule = Callable[..., Sequence[Flow]]


def _pow(g: Expr, y: Expr, a: Expr, b: Expr) -> Sequence[Flow]:
    by_exponent = When((a == 0) & (b >= 0), g * y * f.log(a), holds=False)
    if b.node.is_constant:
        n = b.node.value
        return (None if n == 0 else g * (n * a ** (n - 1)), by_exponent)
    return (When(b == 0, g * (b * a ** (b - 1)), holds=False), by_exponent)


def _extreme(wins: Callable[[Expr, Expr], Expr]) -> Rule:
    def rule(g: Expr, y: Expr, a: Expr, b: Expr) -> Sequence[Flow]:
        shared = f.where(a == b, 0.5 * g, g)
        return (When(wins(a, b), shared), When(wins(b, a), shared))

    return rule


def _atan2(g: Expr, y: Expr, a: Expr, b: Expr) -> Sequence[Flow]:
    origin, norm = (a == 0) & (b == 0), f.square(a) + f.square(b)
    return (When(origin, g * b / norm, holds=False), When(origin, -(g * a / norm), holds=False))


def _clip(g: Expr, y: Expr, x: Expr, low: Expr, high: Expr) -> Sequence[Flow]:
    return (
        When((x >= low) & (x <= high), g),
        When((x < low) & (low <= high), g),
        When((x > high) | (low > high), g),
    )


def _cast(g: Expr, y: Expr, x: Expr) -> Sequence[Flow]:
    through = x.node.type.is_float and y.node.type.is_float
    return (f.cast(g, x.node.type.text) if through else None,)


def _nothing(g: Expr, y: Expr, *operands: Expr) -> Sequence[Flow]:
    return (None,) * len(operands)


RULES: dict[str, Rule] = {
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "div": lambda g, y, a, b: (g / b, -(g * y / b)),
    "min": _extreme(lambda a, b: a <= b),
    "max": _extreme(lambda a, b: a >= b),
    "pow": _pow,
    "mod": lambda g, y, a, b: (g, -(g * f.floor(a / b))),
    "fmod": lambda g, y, a, b: (g, -(g * f.trunc(a / b))),
    "atan2": _atan2,
    "fma": lambda g, y, a, b, c: (g * b, g * a, g),
    "fnma": lambda g, y, a, b, c: (-(g * b), -(g * a), g),
    "clip": _clip,
    "neg": lambda g, y, x: (-g,),
    "abs": lambda g, y, x: (g * f.sign(x),),
    "sign": _nothing,
    "sqrt": lambda g, y, x: (0.5 * g / y,),
    "rsqrt": lambda g, y, x: (-0.5 * (g * y / x),),
    "cbrt": lambda g, y, x: (g / (3 * f.square(y)),),
    "reciprocal": lambda g, y, x: (-(g * f.square(y)),),
    "square": lambda g, y, x: (2 * (g * x),),
    "relu": lambda g, y, x: (When(x <= 0, g, holds=False),),
    "exp": lambda g, y, x: (g * y,),
    "exp2": lambda g, y, x: (_LN2 * (g * y),),
    "expm1": lambda g, y, x: (g * f.exp(x),),
    "log": lambda g, y, x: (g / x,),
    "log2": lambda g, y, x: (g / (_LN2 * x),),
    "log10": lambda g, y, x: (g / (_LN10 * x),),
    "log1p": lambda g, y, x: (g / (1 + x),),
    "sin": lambda g, y, x: (g * f.cos(x),),
    "cos": lambda g, y, x: (-(g * f.sin(x)),),
    "tan": lambda g, y, x: (g * (1 + f.square(y)),),
    # (1 - x) * (1 + x) keeps the digits near 1 that 1 - x * x loses.
    "asin": lambda g, y, x: (g * f.rsqrt((1 - x) * (1 + x)),),
    "acos": lambda g, y, x: (-(g * f.rsqrt((1 - x) * (1 + x))),),
    "atan": lambda g, y, x: (g / (1 + f.square(x)),),
    "sinh": lambda g, y, x: (g * f.cosh(x),),
    "cosh": lambda g, y, x: (g * f.sinh(x),),
    # 1 - tanh(x)^2 without its cancellation.
    "tanh": lambda g, y, x: (g * (4 * (f.sigmoid(2 * x) * f.sigmoid(-2 * x))),),
    "asinh": lambda g, y, x: (g * f.rsqrt(1 + f.square(x)),),
    "acosh": lambda g, y, x: (g * f.rsqrt((x - 1) * (x + 1)),),
    "atanh": lambda g, y, x: (g / ((1 - x) * (1 + x)),),
    "erf": lambda g, y, x: (_2_SQRT_PI * (g * f.exp(-f.square(x))),),
    "erfc": lambda g, y, x: (-_2_SQRT_PI * (g * f.exp(-f.square(x))),),
    # sigmoid(-x) is 1 - sigmoid(x) without its cancellation; the pair costs one exp (see simplify.finish).
    "sigmoid": lambda g, y, x: (g * (y * f.sigmoid(-x)),),
    "softplus": lambda g, y, x: (g * f.sigmoid(x),),
    "floor": _nothing,
    "ceil": _nothing,
    "round": _nothing,
    "trunc": _nothing,
    "select": lambda g, y, c, a, b: (None, When(c, g), When(c, g, holds=False)),
    "cast": _cast,
    "round_half": lambda g, y, x: (g,),
}
"""Instruction -> what flows to each operand, given the gradient of the result, the result, and the operands."""


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
    active = _active(order)
    flows: dict[int, dict[Guard, Expr]] = {}
    for (index, _), root in zip(outputs, roots, strict=True):
        _add(flows.setdefault(id(root), {}), (), Expr(input_(index, root.type)))
    for node in reversed(order):
        if id(node) not in active or id(node) not in flows or node.op == "input":
            continue
        operands = [Expr(a) for a in node.args]
        for guard, g in _merge(flows.pop(id(node))).items():
            for operand, flow in zip(node.args, RULES[node.op](g, Expr(node), *operands), strict=True):
                if flow is not None and id(operand) in active:
                    _send(flows.setdefault(id(operand), {}), guard, flow)
    results = []
    for k in range(n_inputs):
        arrived = flows.get(id(input_(shift + k)), {})
        total = _combine(list(arrived.items()))
        results.append(constant(0.0) if total is None else total.node)
    return simplify(results)


def _active(order: Sequence[Node]) -> set[int]:
    """The floating nodes that depend on an input."""
    active: set[int] = set()
    for node in order:
        if node.type.is_float and (node.op == "input" or any(id(a) in active for a in node.args)):
            active.add(id(node))
    return active


def _send(flows: dict[Guard, Expr], guard: Guard, flow: Expr | When) -> None:
    if isinstance(flow, When):
        entry = (flow.condition.node, flow.holds)
        if (flow.condition.node, not flow.holds) in guard:
            return  # Nothing flows where both a condition and its opposite would have to hold.
        guard = guard if entry in guard else (*guard, entry)
        flow = flow.value
    _add(flows, guard, flow)


def _add(flows: dict[Guard, Expr], guard: Guard, value: Expr) -> None:
    flows[guard] = flows[guard] + value if guard in flows else value


def _merge(flows: dict[Guard, Expr]) -> dict[Guard, Expr]:
    """Joins the flows of a condition and its opposite, so that chains of masks stay linear in size."""
    merged: dict[Guard, Expr] = {}
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
