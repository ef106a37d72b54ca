"""The derivative of every instruction, one table row each.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opforge.expr import functions as f
from opforge.expr.simplify import simplify
from opforge.expr.trace import Expr

__all__ = ["BOUNDED", "RULES", "Fade", "Flow", "When"]

_LN2, _LN10, _2_SQRT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)


class When(NamedTuple):
    """A gradient that flows only where the condition holds (or, with ``holds=False``, does not)."""

    condition: Expr
    value: Expr
    holds: bool = True


class Fade(NamedTuple):
    """A gradient with a factor that underflows to 0 far out, where the operand's own derivative may overflow.

    There the gradient is 0, not 0 * inf; a NaN in it still arrives.
    """

    factor: Expr
    value: Expr


Flow = Expr | When | Fade | None
"""What one operand gets: a gradient, a guarded one, a fading one, or nothing."""
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


def _slope(x: Expr) -> Expr:
    """sigmoid'(x) = sigmoid(x) * sigmoid(-x), in one order for x and -x so that both share it.

    sigmoid(-x) is 1 - sigmoid(x) without its cancellation; the pair costs one exp (see simplify.finish).
    """
    opposite = Expr(simplify([(-x).node])[0])
    negated = x.node.op == "neg" or (x.node.op == "mul" and any(a.is_constant and a.value < 0 for a in x.node.args))
    first, second = (opposite, x) if negated else (x, opposite)
    slope: Expr = f.sigmoid(first) * f.sigmoid(second)
    return slope


def _fading(factor: Callable[[Expr, Expr], Expr], scale: float = 1.0) -> Rule:
    def rule(g: Expr, y: Expr, x: Expr) -> Sequence[Flow]:
        slope = factor(y, x)
        return (Fade(slope, g * slope if scale == 1 else scale * (g * slope)),)

    return rule


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
    "exp": _fading(lambda y, x: y),
    "exp2": _fading(lambda y, x: y, _LN2),
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
    "tanh": _fading(lambda y, x: _slope(Expr(simplify([(2 * x).node])[0])), 4.0),
    "asinh": lambda g, y, x: (g * f.rsqrt(1 + f.square(x)),),
    "acosh": lambda g, y, x: (g * f.rsqrt((x - 1) * (x + 1)),),
    "atanh": lambda g, y, x: (g / ((1 - x) * (1 + x)),),
    "erf": _fading(lambda y, x: f.exp(-f.square(x)), _2_SQRT_PI),
    "erfc": _fading(lambda y, x: f.exp(-f.square(x)), -_2_SQRT_PI),
    "sigmoid": _fading(lambda y, x: _slope(x)),
    "softplus": _fading(lambda y, x: f.sigmoid(x)),
    "floor": _nothing,
    "ceil": _nothing,
    "round": _nothing,
    "trunc": _nothing,
    "select": lambda g, y, c, a, b: (None, When(c, g), When(c, g, holds=False)),
    "cast": _cast,
    **dict.fromkeys(("round_half", "round_f16", "round_bf16"), lambda g, y, x: (g,)),
}
"""Instruction -> what flows to each operand, given the gradient of the result, the result, and the operands."""

BOUNDED = frozenset(
    """
    add sub neg abs relu clip min max select sigmoid tanh softplus erf erfc sin cos atan asinh round_half round_f16
    round_bf16
    """.split()
)
"""Instructions whose derivative never exceeds a small number: nothing overflows behind a `Fade`."""
