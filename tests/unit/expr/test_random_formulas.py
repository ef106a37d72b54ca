"""Random expressions: what the rewrites, the lowering and the bytes make of them has the value that was written."""

import mpmath as mp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import opforge as of
from opforge.expr import Program
from opforge.expr.lower import lift
from opforge.expr.nodes import constant, input_
from opforge.expr.reference import evaluate
from opforge.expr.trace import Expr
from tests.soak import FACTOR
from tests.unit.expr.helpers import exact, formula

X, Y = Expr(input_(0)), Expr(input_(1))
UNARY = (of.tanh, of.exp, of.sigmoid, of.erf, of.softplus, of.relu, of.abs, of.sin, lambda x: -x, lambda x: x**2)
UNARY += (
    lambda x: x**3,
    lambda x: 1 + x,
    lambda x: 1 - x,
    lambda x: 0.5 * x,
    lambda x: x / 3,
    lambda x: 1 / (1 + of.exp(x)),
)
UNARY += (
    lambda x: of.log(1 + of.exp(x)),
    lambda x: 1 + of.tanh(x),
    lambda x: 1 + of.erf(x),
    lambda x: of.square(of.tanh(x)),
)
BINARY = (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, of.maximum, of.minimum)
BINARY += (lambda a, b: of.where(a > b, a, 2 * a - b), lambda a, b: a / (1 + b * b), lambda a, b: of.clip(a, -1, 1) * b)

leaves = st.sampled_from([X, Y]) | st.floats(-4, 4, width=16).map(lambda v: Expr(constant(v)))
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda f, a: f(a), st.sampled_from(UNARY), inner)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from(BINARY), inner, inner)
    ),
    max_leaves=8,
)
# Off the grid of the constants: on a kink or jump, rounding a constant would change the side.
numbers = st.floats(-3, 3, allow_subnormal=False).map(lambda v: v + 0.0123456789)


@given(expressions, numbers, numbers)
@settings(max_examples=150 * FACTOR, deadline=None, derandomize=True)
def test_values_survive(expression, x, y):
    y += 0.00371
    f = formula(expression.node, 2)
    program = Program.decode(f.blob())
    (lifted,) = lift(program)
    try:
        wanted, got = exact(expression.node, x, y), exact(lifted, x, y)
    except (OverflowError, ZeroDivisionError):
        return
    if not mp.isfinite(wanted) or abs(wanted) > 1e100:
        return
    # Float64 constants of the rewrites, seen through the expression's own conditioning.
    assert abs(got - wanted) <= 1e-9 * (1 + abs(wanted))
    (value,) = evaluate([(lifted, None)], [np.float64(x), np.float64(y)])
    assert abs(float(value) - wanted) <= 1e-6 * (1 + abs(wanted))


@given(expressions, numbers, numbers)
@settings(max_examples=100 * FACTOR, deadline=None, derandomize=True)
def test_gradients_of_random_formulas(expression, x, y):
    y += 0.00371
    f = formula(expression.node, 2)
    gradients = f.gradient()

    def value(a, b):
        return exact(expression.node, a, b)

    try:
        wanted = [mp.diff(value, (x, y), order) for order in ((1, 0), (0, 1))]
        # A kink within the step gives a one-sided difference that depends on the step.
        coarse = [mp.diff(value, (x, y), order, h=mp.mpf(10) ** -6) for order in ((1, 0), (0, 1))]
    except (OverflowError, ZeroDivisionError):
        return
    for k in range(2):
        if abs(wanted[k]) > 1e50 or abs(wanted[k] - coarse[k]) > 1e-3 * (1 + abs(wanted[k])):
            continue
        got = exact(gradients.outputs[k].node, 1.0, x, y)
        if abs(got - wanted[k]) > 1e-8 * (1 + abs(wanted[k])):
            one_sided = [mp.diff(value, (x, y), ((1, 0), (0, 1))[k], direction=d) for d in (-1, 1)]
            assert abs(one_sided[0] - one_sided[1]) > 1e-9, (got, wanted[k])
