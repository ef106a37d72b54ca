"""The operators that the documents teach with: values, first and second gradients by finite differences, tails."""

import mpmath as mp
import numpy as np
import pytest

import opforge as of
from opforge.errors import SchemaError
from opforge.expr.declare import trace_formula
from opforge.expr.nodes import input_
from opforge.expr.trace import Expr
from tests.unit.expr.helpers import relative_error, run_f32


def custom_gelu(x):
    return 0.5 * x * (1 + of.tanh(of.sqrt(2 / of.pi) * (x + 0.044715 * x**3)))


def erf_gelu(x):
    return 0.5 * x * (1 + of.erf(x / of.sqrt(2)))


def mod_sigmoid(x, threshold):
    return of.sigmoid(x - threshold)


def clip_sigmoid(x, *, lo: float = 0.1, hi: float = 0.9):
    return of.clip(of.sigmoid(x), lo, hi)


def swish(x, *, beta: float = 1.0):
    return x * of.sigmoid(beta * x)


def mish(x):
    return x * of.tanh(of.softplus(x))


def hard_swish(x):
    return x * of.clip(x / 6 + 0.5, 0, 1)


def distance(x, y):
    return of.sqrt(x * x + y * y), of.atan2(y, x)


ALL = [custom_gelu, erf_gelu, mod_sigmoid, clip_sigmoid, swish, mish, hard_swish, distance]


def directional(function, arrays, directions, step=1e-4):
    """Derivative of a scalar function along a direction, by Richardson extrapolation."""

    def central(h):
        return (
            function([a + h * d for a, d in zip(arrays, directions, strict=True)])
            - function([a - h * d for a, d in zip(arrays, directions, strict=True)])
        ) / (2 * h)

    return (4 * central(step / 2) - central(step)) / 3


def contract(formula, weights):
    """A scalar of the inputs: the outputs' sum, weighted."""

    def scalar(arrays):
        results = formula.reference(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        return sum(float((w * r).sum()) for w, r in zip(weights, results, strict=True))

    return scalar


def shapes_of(function):
    return [(2, 3), (1, 3)] if function in (mod_sigmoid, distance) else [(2, 3)]


def away_from_kinks(function, x):
    kinks = {clip_sigmoid: [-2.1972, 2.1972], hard_swish: [-3.0, 3.0]}.get(function, [])
    return all(np.min(np.abs(x - k)) > 1e-2 for k in kinks)


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_first_and_second_gradients(function):
    random = np.random.default_rng(3)
    arrays = [random.normal(size=s) * 2 for s in shapes_of(function)]
    assert all(away_from_kinks(function, a) for a in arrays)
    forward = trace_formula(function, "t.ops::F")
    for formula in (forward, forward.gradient()):
        if formula is not forward:
            arrays = [random.normal(size=(2, 3)) for _ in forward.outputs] + arrays
        whole = formula.reference(*arrays)
        weights = [random.normal(size=r.shape) for r in (whole if isinstance(whole, tuple) else (whole,))]
        directions = [random.normal(size=a.shape) for a in arrays]
        gradients = formula.gradient().reference(*weights, *arrays)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        assert [g.shape for g in gradients] == [a.shape for a in arrays]
        along = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
        numeric = directional(contract(formula, weights), arrays, directions)
        assert along == pytest.approx(numeric, rel=1e-7, abs=1e-8)


def test_clip_sigmoid_has_no_gradient_where_it_clips():
    gradient = trace_formula(clip_sigmoid, "t.ops::F").gradient()
    got = gradient.reference(np.ones(4), np.array([-3.0, 0.0, 3.0, np.nan]))
    np.testing.assert_array_equal(got, [0, 0.25, 0, 0])
    np.testing.assert_array_equal(gradient.reference(np.ones(1), np.array([3.0]), hi=1.0) > 0, [True])


def test_mod_sigmoid_s_threshold_gets_the_sum():
    gradient = trace_formula(mod_sigmoid, "t.ops::F").gradient()
    program = gradient.program()
    assert [o.sum_to for o in program.outputs] == [1, 2]
    x = np.linspace(-3, 3, 12).reshape(3, 4)
    for shape in ((), (1,), (4,), (3, 1), (3, 4), (1, 1, 1)):
        grad_x, grad_threshold = gradient.reference(np.ones((3, 4)), x, np.zeros(shape))
        assert grad_threshold.shape == shape and grad_x.shape == (3, 4)
        assert grad_threshold.sum() == pytest.approx(-grad_x.sum())


def gelu_exact(x):
    x = mp.mpf(x)
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


def test_custom_gelu_s_gradient_is_accurate_in_float32():
    program = trace_formula(custom_gelu, "t.ops::F").gradient().program()
    for x in np.concatenate([np.linspace(-6, 6, 121), [-9.0, -1e-20, 1e-20, 30.0]]).astype(np.float32):
        with mp.workdps(30):
            wanted = mp.diff(gelu_exact, float(x))
        (got,) = run_f32(program, 1.0, x)
        # Near the minimum at -0.7525 two terms cancel, so the error is absolute there.
        assert abs(float(got) - wanted) < 2e-7 + 1e-5 * min(abs(wanted), 0.01), (x, got, wanted)
    with mp.workdps(30):
        assert relative_error(run_f32(program, 1.0, -6.0)[0].item(), mp.diff(gelu_exact, -6.0)) < 2e-5


@pytest.mark.parametrize(
    "function",
    [custom_gelu, erf_gelu, swish, mish, clip_sigmoid, lambda x: of.exp(-(x**3)), lambda x: of.tanh(x**3 + x)],
)
def test_gradients_far_out_are_finite_in_float32(function):
    forward = trace_formula(function, "t.ops::F")
    for formula in (forward.gradient(), forward.gradient().gradient()):
        for x in (1e10, 1e20, 3e38, -1e13, -1e20, -3e38):
            extra = [1.0] * (len(formula.inputs) - 1)
            attributes = [a.default for a in formula.attributes]
            got = run_f32(formula.program(), *extra, x, attributes=attributes)
            with np.errstate(over="ignore"):
                wanted = formula.reference(*extra, float(np.float32(x)))
            for g, w in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                assert np.isnan(w) or float(g) == pytest.approx(float(np.float32(w)), rel=1e-5)


def test_nan_in_the_incoming_gradient_arrives_where_the_slope_fades():
    for function in (custom_gelu, swish, mish):
        program = trace_formula(function, "t.ops::F").gradient().program()
        attributes = [1.0] * len(program.attributes)
        for x in (-1e30, -100.0, 0.0, 100.0, 1e30):
            assert np.isnan(run_f32(program, np.nan, x, attributes=attributes)[0])


def test_formula_operators_call_each_other():
    scaled = of.formula("t.ops::Scaled")(lambda x, *, by=2.0: x * by)
    nested = trace_formula(lambda x, *, k=3.0: scaled(of.exp(x), by=k) + scaled(x), "t.ops::Nested")
    np.testing.assert_allclose(nested.reference(np.array([0.0, 1.0])), [3.0, 3 * np.e + 2])
    x = Expr(input_(0))
    assert scaled(x).node is (x * 2.0).node
    with pytest.raises(SchemaError, match=r"t.ops::Scaled called at .*test_operators.py:\d+\): unknown attribute to"):
        trace_formula(lambda x: scaled(x, to=2), "t.ops::Nested")
    with pytest.raises(SchemaError, match="sums over dimensions"):
        scaled.gradient_operator(x, x)
