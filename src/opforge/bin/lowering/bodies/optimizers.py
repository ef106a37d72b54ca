"""Bodies of the training operators Adagrad, Adam and Momentum: elementwise steps for each tensor."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["BODIES"]

DOMAIN = "ai.onnx.preview.training"


def _attributes(node: ir.Node, **defaults: float) -> list[float]:
    return [float(_edit.attribute(node, name, value)) for name, value in defaults.items()]


def _split(b: Body, states: int) -> list[list[str]]:
    """The tensors after the rate and the count, grouped as X, G and the states of each."""
    rest = b.inputs[2:]
    n = len(rest) // (2 + states)
    return [[rest[part * n + k] for part in range(2 + states)] for k in range(n)]


def _regularized(b: Body, x: str, g: str, coefficient: float) -> str:
    return b.op("Add", b.op("Mul", b.number(coefficient, x), x), g) if coefficient else g


def _mix(b: Body, factor: float, old: str, other: str) -> str:
    """Factor * old + other."""
    return b.op("Add", b.op("Mul", b.number(factor, old), old), other)


def _collect(results: Sequence[tuple[str, ...]]) -> list[str]:
    return [name for part in zip(*results, strict=True) for name in part]


def _after_first(b: Body, later: str, first: str) -> str:
    zero = b.op("CastLike", b.integers(0), b.inputs[1])
    return b.op("Where", b.op("Greater", b.inputs[1], zero), later, first)


def _adagrad(b: Body, node: ir.Node) -> list[str]:
    epsilon, norm, decay = _attributes(node, epsilon=1e-6, norm_coefficient=0, decay_factor=0)
    rate, results = b.inputs[0], []
    steps = b.op("Mul", b.op("CastLike", b.inputs[1], rate), b.number(decay, rate))
    rate = b.op("Div", rate, b.op("Add", b.number(1, rate), steps))
    for x, g, h in _split(b, 1):
        g = _regularized(b, x, g, norm)
        squares = b.op("Add", h, b.op("Mul", g, g))
        root = b.op("Add", b.op("Sqrt", squares), b.number(epsilon, x))
        results.append((b.op("Sub", x, b.op("Div", b.op("Mul", b.op("CastLike", rate, x), g), root)), squares))
    return _collect(results)


def _adam(b: Body, node: ir.Node) -> list[str]:
    alpha, beta, epsilon = _attributes(node, alpha=0.9, beta=0.999, epsilon=1e-6)
    norm, post = _attributes(node, norm_coefficient=0, norm_coefficient_post=0)
    rate = b.inputs[0]
    one, count = b.number(1, rate), b.op("CastLike", b.inputs[1], rate)
    a, c = (b.op("Sub", one, b.op("Pow", b.number(v, rate), count)) for v in (alpha, beta))
    rate = _after_first(b, b.op("Div", b.op("Mul", rate, b.op("Sqrt", c)), a), rate)
    results = []
    for x, g, v, h in _split(b, 2):
        g = _regularized(b, x, g, norm)
        v = _mix(b, alpha, v, b.op("Mul", b.number(1 - alpha, g), g))
        h = _mix(b, beta, h, b.op("Mul", b.number(1 - beta, g), b.op("Mul", g, g)))
        root = b.op("Add", b.op("Sqrt", h), b.number(epsilon, x))
        y = b.op("Sub", x, b.op("Div", b.op("Mul", b.op("CastLike", rate, x), v), root))
        results.append((b.op("Mul", b.number(1 - post, y), y) if post else y, v, h))
    return _collect(results)


def _momentum(b: Body, node: ir.Node) -> list[str]:
    alpha, beta, norm = _attributes(node, alpha=0, beta=0, norm_coefficient=0)
    nesterov, rate, results = _edit.attribute(node, "mode") == "nesterov", b.inputs[0], []
    for x, g, v in _split(b, 1):
        g = _regularized(b, x, g, norm)
        v = _mix(b, alpha, v, b.op("Mul", _after_first(b, b.number(beta, g), b.number(1, g)), g))
        step = _mix(b, alpha, v, g) if nesterov else v
        results.append((b.op("Sub", x, b.op("Mul", b.op("CastLike", rate, x), step)), v))
    return _collect(results)


BODIES = {(DOMAIN, "Adagrad"): _adagrad, (DOMAIN, "Adam"): _adam, (DOMAIN, "Momentum"): _momentum}
