"""grad_check: numbers, kinks, words, seeds; no compiler is needed for formulas without derivatives of their own."""

import numpy as np
import pytest

import opforge as of
from opforge.errors import CheckFailure
from opforge.verify.gradients import check_gradient


@pytest.fixture(scope="module")
def gelu():
    return of.load("opforge.ops:CustomGELU")[0]


def one(forward, derivative, x, **options):
    """Check a scalar function with its derivative."""

    def gradient(inputs, outputs, grads):
        return [grads[0] * derivative(inputs[0])]

    (result,) = check_gradient(lambda v: [forward(v)], gradient, ["x"], [np.asarray(x, np.float64)], **options)
    return result


def test_right_derivative_is_exact_to_extrapolation():
    result = one(np.exp, np.exp, np.linspace(-2, 2, 50))
    assert result.error < 1e-9
    assert result.masked == 0.0
    assert result.input == "x"


def test_wrong_derivative_is_seen():
    assert one(np.sin, np.sin, np.linspace(-2, 2, 50)).error > 1e-2


def test_a_kink_within_the_step_does_not_count():
    x = np.array([-1.0, 0.0, 1e-4, 1.0])
    result = one(np.abs, np.sign, x)
    assert result.error < 1e-9
    assert result.masked == 0.5


def test_a_kink_anywhere_within_the_step_is_left_out():
    # The step is 2^-10 times a direction of size 0.5 to 1; kinks lie at every share of it, on both sides.
    x = np.linspace(-(2.0**-10), 2.0**-10, 401)
    for jump in (1.0, 0.09, 1e-3):
        result = one(
            lambda v, j=jump: np.sin(3 * v) + j * np.abs(v), lambda v, j=jump: 3 * np.cos(3 * v) + j * np.sign(v), x
        )
        assert result.error < 1e-6, jump
        assert result.masked < 0.9


def test_a_wrong_derivative_beside_a_kink_is_seen():
    x = np.array([-1.0, 0.0, 1.0])
    assert one(np.abs, lambda v: np.where(v > 0, 1.0, 1.0), x).error > 1e-2


def test_infinite_outputs_do_not_count():
    with np.errstate(divide="ignore", invalid="ignore"):
        result = one(np.log, lambda v: np.divide(1, v, where=v > 0, out=np.zeros_like(v)), [0.0, 1.0, 2.0])
    assert result.masked == pytest.approx(1 / 3)
    assert result.error < 1e-8


def test_the_seed_decides_the_direction():
    x = np.linspace(-1, 1, 5)
    a, b, c = (one(np.exp, np.exp, x, seed=s).analytic for s in (0, 0, 1))
    assert a == b
    assert a != c


def test_integer_outputs_have_no_gradient():
    def gradient(inputs, outputs, grads):
        assert not grads[1].any()
        return [grads[0] * 2]

    x = np.array([1.0, 2.0])
    (result,) = check_gradient(lambda v: [2 * v, np.arange(2)], gradient, ["x"], [x])
    assert result.error < 1e-9


def test_grad_check_of_an_operator_at_given_inputs(gelu):
    results = gelu.grad_check(np.linspace(-4, 4, 33))
    assert {row.order for row in results} == {1, 2}
    assert max(row.error for row in results) < 1e-6


def test_grad_check_of_an_operators_own_cases(gelu):
    assert len(gelu.grad_check(order=1)) >= 2


def test_grad_check_says_what_is_wrong(gelu):
    with pytest.raises(CheckFailure) as caught:
        gelu.grad_check(np.linspace(-4, 4, 33), tolerance=1e-30, seed=5)
    text = str(caught.value)
    assert "com.example::CustomGELU, case given inputs, seed 5: the derivative of order 1 by 'x' is wrong" in text
    assert "(finite differences along a random direction)" in text
