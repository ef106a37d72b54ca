"""Every operator of the library against its float64 reference, for all cases and dtypes, gradients included."""

import itertools

import numpy as np
import pytest

from opforge import ops
from opforge.schema import DType
from opforge.verify.cases import arrays, cases_of, tolerance

pytestmark = pytest.mark.compiler

OPERATORS = [getattr(ops, name) for name in ops.__all__]


def choices(operator):
    return [dict(zip(operator.types, row, strict=True)) for row in itertools.product(*operator.types.values())]


def assert_close(got, expected, limit, where):
    assert got.shape == expected.shape, where
    wide = got.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(expected), err_msg=f"NaN pattern of {where}")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(got.dtype).astype(np.float64)  # beyond the dtype's range infinity is right
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(wide[~finite], rounded[~finite], err_msg=f"infinities of {where}")
    error = np.abs(wide[finite] - expected[finite])
    bound = limit.atol + limit.rtol * np.abs(expected[finite])
    assert (error <= bound).all(), f"{where}: {(error / bound).max()} times the tolerance ({limit.reason})"


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.host_name)
def test_forward_equals_the_reference(operator):
    for types in choices(operator):
        limit = tolerance(operator, next(iter(t for t in types.values() if t.is_float)))
        for case in cases_of(operator):
            where = f"{operator.key} {case.name} {[t.name for t in types.values()]}"
            inputs = arrays(operator, case, types, seed=1)
            before = [a.copy() for a in inputs]
            got = operator(*inputs, **case.attributes)
            assert_close(got, operator.reference(*inputs, **case.attributes), limit, where)
            for a, b in zip(inputs, before, strict=True):
                assert a.tobytes() == b.tobytes(), f"{where}: an input was written"


FORMULAS = [operator for operator in OPERATORS if operator.is_formula]


def with_gradients(operator, case, types, rng):
    """Give the inputs of the first and of the second gradient operator, in their order."""
    inputs = arrays(operator, case, types, seed=2)
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    dtype = inputs[0].dtype
    first = [rng.standard_normal(shape).astype(dtype), *inputs]
    second = [*(rng.standard_normal(a.shape).astype(dtype) for a in inputs), *first]
    return first, second


@pytest.mark.parametrize("operator", FORMULAS, ids=lambda o: o.host_name)
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_gradients_equal_their_references(operator, dtype):
    (grad,) = operator.derived
    (grad_grad,) = grad.derived
    types = {"T": DType.parse(dtype)}
    rng = np.random.default_rng(0)
    # Sums over a broadcast dimension add the errors of their terms.
    scale = {"f64": 1e-12, "f32": 2e-5, "bf16": 2**-7, "f16": 2**-9}[dtype]
    for case in cases_of(operator):
        if not case.finite:
            continue
        for derivative, inputs in zip((grad, grad_grad), with_gradients(operator, case, types, rng), strict=True):
            results = derivative(*inputs, **case.attributes)
            expected = derivative.reference(*inputs, **case.attributes)
            pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
            for got, right in pairs:
                assert got.shape == right.shape
                assert got.dtype == inputs[0].dtype
                error = np.abs(got.astype(np.float64) - right)
                size = np.maximum(1.0, np.abs(right))
                assert (error <= scale * size).all(), f"{derivative.key} {case.name}: {(error / size).max(initial=0.0)}"


@pytest.mark.parametrize("operator", FORMULAS, ids=lambda o: o.host_name)
def test_first_derivative_against_differences(operator):
    (grad,) = operator.derived
    rng = np.random.default_rng(3)
    inputs = [
        rng.uniform(-3, 3, (4, 5)) if k == 0 else rng.uniform(-1, 1, 5) for k in range(len(operator.signature.inputs))
    ]
    weight = rng.standard_normal((4, 5))
    got = grad(weight, *inputs)
    got = got if isinstance(got, tuple) else (got,)
    step = 1e-6
    for k, analytic in enumerate(got):
        numeric = np.zeros_like(inputs[k])
        for index in np.ndindex(inputs[k].shape):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in inputs]
                moved[k][index] += sign * step
                ends.append((weight * operator.reference(*moved)).sum())
            numeric[index] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("operator", FORMULAS, ids=lambda o: o.host_name)
def test_strided_inputs_give_the_bits_of_dense_ones(operator):
    rng = np.random.default_rng(4)
    base = rng.standard_normal((14, 12)).astype(np.float32)
    views = [base.T, base[::2, 1::3], np.broadcast_to(base[:1], (14, 12)), base[:, ::-1]]
    for view in views:
        inputs = [view, *[np.float32(0.25)] * (len(operator.signature.inputs) - 1)]
        dense = [np.ascontiguousarray(a) for a in inputs]
        dense[1:] = [np.float32(0.25)] * (len(inputs) - 1)
        assert operator(*inputs).tobytes() == operator(*dense).tobytes()


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.host_name)
def test_gradients_to_second_order_against_differences(operator):
    results = operator.grad_check()
    assert any(result.analytic != 0 for result in results)
