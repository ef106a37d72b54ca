"""Every row of the derivative table against numeric differentiation by mpmath, first and second order; the kinks."""

import math

import mpmath as mp
import numpy as np
import pytest

import opforge as of
from opforge.expr._generated.opcodes import OPCODES
from opforge.expr.derivative_rules import RULES
from opforge.expr.nodes import input_
from opforge.expr.trace import Expr
from tests.unit.expr.helpers import exact, formula, instruction

POINTS = {1: [(-1.7,), (-0.4,), (0.3,), (0.8,), (2.6,)], 2: [(-1.7, 0.6), (0.3, -2.2), (0.8, 1.4), (2.6, 2.9)]}
POINTS[3] = [(0.5, 1.3, -0.7), (-0.5, 1.3, 2.1), (1.9, -0.2, 0.8), (0.4, 0.6, 0.9)]
DOMAIN = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "pow"), lambda *v: v[0] > 0),
    **dict.fromkeys(("asin", "acos", "atanh"), lambda x: abs(x) < 1),
    "log1p": lambda x: x > -1,
    "acosh": lambda x: x > 1,
}
SMOOTH_SECOND = 1e-13  # constants of the rules are float64


def points(name, arity):
    return [p for p in POINTS[arity] if DOMAIN.get(name, lambda *_: True)(*p)]


@pytest.mark.parametrize("name", sorted(RULES))
def test_rows_against_numeric_differentiation(name):
    node, n = instruction(name)
    f = formula(node, n)
    first = f.gradient()
    second = first.gradient()
    assert points(name, n)
    for point in points(name, n):
        g, v = mp.mpf("0.7"), [mp.mpf("1.3"), mp.mpf("-0.6"), mp.mpf("0.9")][:n]
        with mp.workdps(50):
            numeric = [_numeric(node, point, k) for k in range(n)]
            for k in range(n):
                got = exact(first.outputs[k].node, g, *point)
                assert abs(got - g * numeric[k]) <= SMOOTH_SECOND * (1 + abs(numeric[k])), (name, point, k)
            # The second one differentiates sum_k v_k * grad_k(g, x) by g and by each x.
            assert _near(exact(second.outputs[0].node, *v, g, *point), mp.fdot(v, numeric))
            for k in range(n):
                mixed = [_numeric(node, point, k, j) for j in range(n)]
                assert _near(exact(second.outputs[1 + k].node, *v, g, *point), g * mp.fdot(v, mixed)), (name, point, k)


def _numeric(node, point, *by):
    orders = tuple(by.count(k) for k in range(len(point)))
    if len(point) == 1:
        return mp.diff(lambda x: exact(node, x), point[0], orders[0])
    return mp.diff(lambda *x: exact(node, *x), point, orders)


def _near(got, wanted):
    return abs(got - wanted) <= 1e-12 * (1 + abs(wanted))


def test_every_differentiable_instruction_has_a_row():
    without = {name for name, o in OPCODES.items() if o.kind in ("COMPARE", "LOGIC")}
    assert set(RULES) == set(OPCODES) - without


def gradient(function, *points, g=1.0):
    """Float64 gradients of a function by each argument, from the kernel's own program."""
    n = len(points)
    f = formula(function(*(Expr(input_(k)) for k in range(n))).node, n).gradient()
    results = f.reference(np.float64(g), *map(np.float64, points))
    return [r.item() for r in (results if n > 1 else [results])]


@pytest.mark.parametrize(
    ("function", "point", "wanted"),
    [
        (of.abs, (0.0,), [0.0]),
        (of.abs, (-0.0,), [0.0]),
        (of.relu, (0.0,), [0.0]),
        (of.relu, (1.0,), [1.0]),
        (lambda x: of.clip(x, -1, 1), (1.0,), [1.0]),
        (lambda x: of.clip(x, -1, 1), (-1.0,), [1.0]),
        (lambda x: of.clip(x, -1, 1), (1.0000001,), [0.0]),
        (of.clip, (2.0, 0.0, 1.0), [0.0, 0.0, 1.0]),
        (of.clip, (-2.0, 0.0, 1.0), [0.0, 1.0, 0.0]),
        (of.clip, (0.5, 2.0, 1.0), [0.0, 0.0, 1.0]),
        (of.minimum, (2.0, 2.0), [0.5, 0.5]),
        (of.maximum, (2.0, 2.0), [0.5, 0.5]),
        (of.maximum, (3.0, 2.0), [1.0, 0.0]),
        (of.sign, (0.0,), [0.0]),
        (of.floor, (1.0,), [0.0]),
        (of.round, (0.5,), [0.0]),
        (of.atan2, (0.0, 0.0), [0.0, 0.0]),
        (of.sqrt, (0.0,), [math.inf]),
        (lambda x: x**2, (0.0,), [0.0]),
        (lambda x: x**1, (0.0,), [1.0]),
        (lambda x: x**3, (0.0,), [0.0]),
        (lambda x: x**0, (0.0,), [0.0]),
        (lambda x: x**1.5, (0.0,), [0.0]),
        (lambda x: x**0.7, (0.0,), [math.inf]),
        (of.pow, (0.0, 2.0), [0.0, 0.0]),
        (of.pow, (0.0, 0.0), [0.0, 0.0]),
        (lambda x: x % 3, (7.0,), [1.0]),
    ],
)
def test_kinks(function, point, wanted):
    assert gradient(function, *point) == wanted


@pytest.mark.parametrize(
    ("function", "x", "wanted"),
    [
        (lambda x: of.where(x > 0, x * of.log(x), 0), 0.0, 0.0),
        (lambda x: of.where(x > 0, of.sqrt(x), 0), -4.0, 0.0),
        (lambda x: of.where(x != 0, of.sin(x) / x, 1), 0.0, 0.0),
        (lambda x: of.sqrt(of.relu(x)), -1.0, 0.0),
        (lambda x: of.relu(of.log(x)), 0.0, 0.0),
        (lambda x: of.log(of.clip(x, 0, 1)), -1.0, 0.0),
        (lambda x: of.where(x > 1, of.where(x < 2, of.exp(x), of.log(x)), 1 / x), 3.0, 1 / 3),
        (lambda x: of.minimum(of.log(x), 1.0), math.e**2, 0.0),
    ],
)
def test_masked_poles_give_no_nan(function, x, wanted):
    with np.errstate(all="ignore"):
        assert gradient(function, x) == [pytest.approx(wanted, rel=1e-15)]


def test_second_derivative_behind_a_mask_has_no_nan():
    x = Expr(input_(0))
    second = formula(of.where(x > 0, x * of.log(x), 0).node).gradient().gradient()
    got = second.reference(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0.0, 4.0]))
    np.testing.assert_allclose(got[0], [0.0, 1 + math.log(4)])
    np.testing.assert_allclose(got[1], [0.0, 0.5])


def test_chains_of_masks_stay_linear():
    sizes = []
    for count in (8, 16):
        x = Expr(input_(0))
        y = x
        for _ in range(count):
            y = of.where(y > 0, of.sin(y) + y, y * 0.5) + of.relu(y)
        sizes.append(len(formula(y.node).gradient().program().instructions))
    assert sizes[1] < 2.5 * sizes[0]


def test_a_gradient_that_does_not_depend_on_an_input_is_zero():
    x = Expr(input_(0))
    got = formula(of.cast(x > 0, "T").node).gradient().reference(np.ones(3), np.ones(3))
    np.testing.assert_array_equal(got, np.zeros(3))
