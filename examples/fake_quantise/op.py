"""FakeQuantise: round to a quantised grid in the forward pass, let the gradient straight through in the backward one.

A formula's gradient is its derivative, and that of rounding is 0 almost everywhere: nothing would learn. Training
wants another gradient on purpose (Bengio, Leonard and Courville, arXiv:1308.3432): 1 inside the range, 0 where the
value saturates. So the forward pass is a kernel operator, whose gradient its author declares; the gradient itself is
a formula.
"""

import numpy as np

import opforge as of


@of.formula("examples.quant::StraightThrough")
def straight_through(g, x, *, scale: float, low: float, high: float):
    """The gradient g where x / scale lies in [low, high], else 0."""
    return of.where((x >= low * scale) & (x <= high * scale), g, 0 * g)


def _reference(x, *, scale, low, high):
    return np.clip(np.round(x / scale), low, high) * scale


def _gradient(inputs, outputs, grads, attrs):
    return {"x": straight_through(grads.y, inputs.x, scale=attrs.scale, low=attrs.low, high=attrs.high)}


fake_quantise = of.kernel(
    "examples.quant::FakeQuantise",
    "(x: T[*S]; scale: float, low: float = -128.0, high: float = 127.0) -> (y: T[*S])",
    types={"T": of.floating},
    sources=["cpu.cc"],
    reference=_reference,
    gradient=_gradient,
    doc="x rounded to the nearest of the multiples low * scale ... high * scale, halves to even.",
    onnx_body="""
        s = Constant <value_float: float = @scale> ()
        l = Constant <value_float: float = @low> ()
        h = Constant <value_float: float = @high> ()
        scale = CastLike (s, x)
        low = CastLike (l, x)
        high = CastLike (h, x)
        divided = Div (x, scale)
        rounded = Round (divided)
        clipped = Clip (rounded, low, high)
        y = Mul (clipped, scale)
    """,
)
