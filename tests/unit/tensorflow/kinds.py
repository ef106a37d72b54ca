"""Kernel operators with parameters, outputs and attributes of every kind."""

from pathlib import Path

import numpy as np

import opforge as of


def _reference(x, index, bias, *more, i, f, s, b, li, lf, ls, lb):
    picked = x[np.arange(len(x)), index] + sum(more)
    digits = [sum(v * 10**k for k, v in enumerate(reversed(row))) for row in (li, [len(t.encode()) for t in ls])]
    bits = sum(int(v) * 2**k for k, v in enumerate(reversed(lb)))
    facts = np.array([i, f, len(s.encode()), float(b), digits[0], sum(lf), digits[1], bits], np.float64)
    counts = np.full(len(x), len(more) + (0 if bias is None else 10), index.dtype)
    if bias is None:
        return picked, None, facts, counts
    return picked + 10 * bias, 10 * bias, facts, counts


kinds = of.kernel(
    "test.tf::Kinds",
    '(x: T[m, n], index: I[m], bias?: T[k], *more: T[m]; i: int = 3, f: float = 0.25, s: string = "plus", '
    'b: bool = true, li: ints = [1, 2], lf: floats = [], ls: strings = ["a", "bc"], lb: bools = [true, false]) -> '
    "(picked: T[m], scaled?: T[k], facts: f64[8], counts: I[m])",
    types={"T": [of.f32, of.f16, of.f64, of.bf16], "I": of.index},
    sources=[Path(__file__).with_name("kinds.cc")],
    reference=_reference,
)


def _weight(i, f, s, b, li, lf, ls, lb):
    sizes = len(s.encode()) + sum(len(t.encode()) for t in ls)
    return i + f + sizes + 1000 * b + sum(li) + sum(lf) + sum(2000 if v else 5000 for v in lb)


def _gradient(inputs, outputs, grads, attrs):
    names = ("i", "f", "s", "b", "li", "lf", "ls", "lb")
    return {"x": weighed(grads.y, **{name: getattr(attrs, name) for name in names})}


# Linear, so that it is its own gradient, with the attributes of the forward call.
weighed = of.kernel(
    "test.tf::Weighed",
    '(x: T[n]; i: int = 3, f: float = 0.25, s: string = "plus", b: bool = true, li: ints = [1, 2], lf: floats = [], '
    'ls: strings = ["a"], lb: bools = [true, false]) -> (y: T[n])',
    types={"T": [of.f64]},
    sources=[Path(__file__).with_name("weighed.cc")],
    reference=lambda x, **attributes: x * _weight(**attributes),
    gradient=_gradient,
)
