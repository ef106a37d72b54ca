"""The tables of rewrites. Each row is exact, or at least as accurate as what it replaces.

Exact means IEEE-exact, NaN, infinities and the sign of zero included. Rows that change a rounding say why the
result is no worse; the tests compare every row with mpmath.
"""

from __future__ import annotations

import math

import numpy as np

from opforge.expr.patterns import Binding, Rewrite

__all__ = ["EXACT", "EXPANSIONS", "PRODUCTS", "REWRITES", "STABLE"]


def _power_of_two(value: float) -> bool:
    return math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and 2.0**-100 < abs(value) < 2.0**100


def _moderate(*values: float) -> bool:
    return all(2.0**-10 < abs(v) < 2.0**10 for v in values)


def _moderate_pair(b: Binding) -> bool:
    """Two constants whose product moves the place of overflow by a small factor only."""
    return _moderate(b["c"].value, b["k"].value)


def _enlarges(b: Binding) -> bool:
    """A small power of two that commutes with rounding; moved outwards it makes overflow later, not sooner."""
    return _power_of_two(b["c"].value) and 1 < abs(b["c"].value) <= 16


def _inverse(b: Binding) -> bool:
    """Dividing may become multiplying: exact for powers of two, as accurate where the constant is rounded anyway."""
    c = b["c"].value
    with np.errstate(over="ignore"):
        rounded = float(np.float32(c))
    return _power_of_two(c) or (_moderate(c) and rounded != c)


def _ordered(b: Binding) -> bool:
    return b["c"].value <= b["k"].value


def _uniform(b: Binding) -> bool:
    """Bounds that are no tensors: only then is clip cheaper than min and max."""
    return all(b[letter].op in ("constant", "attribute") for letter in "lh" if letter in b)


EXACT = [
    Rewrite("x * 1", "x"),
    Rewrite("x / 1", "x"),
    Rewrite("x - 0", "x"),
    Rewrite("x + -0.0", "x"),
    Rewrite("x * -1", "-x"),
    Rewrite("x / -1", "-x"),
    Rewrite("-(-x)", "x"),
    Rewrite("x + -y", "x - y"),
    Rewrite("x - -y", "x + y"),
    Rewrite("-x * y", "-(x * y)"),
    Rewrite("-x / y", "-(x / y)"),
    Rewrite("x / -y", "-(x / y)"),
    Rewrite("-(c * x)", "-c * x"),
    Rewrite("-(x / c)", "x / -c"),
    Rewrite("-(c / x)", "-c / x"),
    Rewrite("abs(-x)", "abs(x)"),
    Rewrite("abs(abs(x))", "abs(x)"),
    Rewrite("square(-x)", "square(x)"),
    Rewrite("square(abs(x))", "square(x)"),
    Rewrite("cos(-x)", "cos(x)"),
    Rewrite("x * x", "square(x)"),
    Rewrite("1 / x", "reciprocal(x)"),
    Rewrite("select(p, x, x)", "x"),
    Rewrite("max(x, 0)", "relu(x)"),
    Rewrite("min(max(x, l), h)", "clip(x, l, h)", _uniform),
    Rewrite("max(min(x, k), c)", "clip(x, c, k)", _ordered),
    Rewrite("min(relu(x), h)", "clip(x, 0, h)", _uniform),
    Rewrite("relu(min(x, k))", "clip(x, 0, k)", lambda b: b["k"].value > 0),
    Rewrite("logical_not(logical_not(x))", "x"),
    Rewrite("select(logical_not(p), x, y)", "select(p, y, x)"),
]
"""Identities of IEEE arithmetic."""

PRODUCTS = [
    # Constants of products meet: one rounding less.
    Rewrite("c * (k * x)", "(c * k) * x", _moderate_pair),
    Rewrite("c * ((k * x) * y)", "(c * k) * (x * y)", _moderate_pair),
    Rewrite("(c * x) * (k * y)", "(c * k) * (x * y)", _moderate_pair),
    Rewrite("x * (c * y)", "c * (x * y)", _enlarges),
    Rewrite("(c * x) / y", "c * (x / y)", _enlarges),
    Rewrite("x / c", "(1 / c) * x", _inverse),
]
"""Constants are brought together: the result has as many roundings or fewer."""

STABLE = [
    # Powers. pow(x, 0.5) gives sqrt, which differs at -0 and -inf only.
    Rewrite("x ** 1", "x"),
    Rewrite("x ** 0", "1"),
    Rewrite("x ** 2", "square(x)"),
    Rewrite("x ** 0.5", "sqrt(x)"),
    Rewrite("x ** -1", "reciprocal(x)"),
    Rewrite("x ** -0.5", "rsqrt(x)"),
    Rewrite("square(x) * x", "x ** 3"),
    Rewrite("reciprocal(sqrt(x))", "rsqrt(x)"),
    # Logarithms and exponentials: keep the digits that the sum would lose.
    Rewrite("log(1 + x)", "log1p(x)"),
    Rewrite("log(1 - x)", "log1p(-x)"),
    Rewrite("exp(x) - 1", "expm1(x)"),
    Rewrite("1 - exp(x)", "-expm1(x)"),
    Rewrite("log1p(exp(x))", "softplus(x)"),
    Rewrite("log(sigmoid(x))", "-softplus(-x)"),
    # The logistic function: no overflow, full relative accuracy in the tail.
    Rewrite("exp(x) / (1 + exp(x))", "sigmoid(x)"),
    Rewrite("x / (1 + exp(y))", "x * sigmoid(-y)"),
    Rewrite("reciprocal(1 + exp(x))", "sigmoid(-x)"),
    Rewrite("1 - sigmoid(x)", "sigmoid(-x)"),
    Rewrite("sigmoid(x) - 1", "-sigmoid(-x)"),
    Rewrite("1 + tanh(x)", "2 * sigmoid(2 * x)"),
    Rewrite("1 - tanh(x)", "2 * sigmoid(-2 * x)"),
    Rewrite("tanh(x) - 1", "-2 * sigmoid(-2 * x)"),
    Rewrite("y + y * tanh(x)", "2 * (y * sigmoid(2 * x))"),
    Rewrite("y - y * tanh(x)", "2 * (y * sigmoid(-2 * x))"),
    Rewrite("c * x + c * (x * tanh(y))", "(2 * c) * (x * sigmoid(2 * y))"),
    Rewrite("1 - square(tanh(x))", "4 * (sigmoid(2 * x) * sigmoid(-2 * x))"),
    # The error function.
    Rewrite("1 + erf(x)", "erfc(-x)"),
    Rewrite("1 - erf(x)", "erfc(x)"),
    Rewrite("erf(x) - 1", "-erfc(x)"),
    Rewrite("1 - erfc(x)", "erf(x)"),
    Rewrite("y + y * erf(x)", "y * erfc(-x)"),
    Rewrite("y - y * erf(x)", "y * erfc(x)"),
    Rewrite("c * x + c * (x * erf(y))", "c * (x * erfc(-y))"),
]
"""Forms that keep digits, and shorter ones."""

REWRITES = [*EXACT, *PRODUCTS, *STABLE]
"""Applied to what the author wrote, before differentiation."""

EXPANSIONS = [
    Rewrite("x ** 3", "square(x) * x"),
    Rewrite("x ** 4", "square(square(x))"),
    Rewrite("x ** 5", "square(square(x)) * x"),
    Rewrite("x ** 6", "square(square(x) * x)"),
]
"""Applied last, to what will be executed."""
