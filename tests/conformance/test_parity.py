"""Every operator of the library in NumPy, PyTorch, TensorFlow and JAX, from one set of cases.

The same kernel runs in all of them, so results are equal in every bit to those of the NumPy host, which other tests
hold against the float64 reference; eager, traced and with open shapes.
"""

import numpy as np
import pytest

import opforge as of
from opforge.verify.cases import arrays, cases_of, tolerance
from opforge.verify.gradients import backward
from tests.conformance.frameworks import FRAMEWORKS, MODES, framework

OPERATORS = {operator.name: operator for operator in of.load("opforge.ops")}
pytestmark = pytest.mark.filterwarnings("ignore")


def types_of(operator, dtype, index):
    return {variable: dtype if variable == "T" else index for variable in operator.types}


def rows(modes):
    for operator in OPERATORS.values():
        for dtype in operator.types["T"]:
            # A kernel is the same however it is reached: every dtype eagerly, two of them traced.
            for mode in modes if dtype in (of.f32, of.bf16) else modes[:1]:
                yield pytest.param(operator, dtype, mode, id=f"{operator.name}-{dtype.name}-{mode}")


def flat(result):
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def same_bits(got, wanted, text):
    assert got.dtype == wanted.dtype, text
    assert got.shape == wanted.shape, text
    unsigned = f"u{got.dtype.itemsize}"
    nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan, err_msg=text)
    np.testing.assert_array_equal(got.view(unsigned)[~nan], wanted.view(unsigned)[~nan], err_msg=text)


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize(("operator", "dtype", "mode"), list(rows(MODES)))
def test_forward_has_the_bits_of_the_numpy_host(name, operator, dtype, mode):
    indices = [of.i64, of.i32] if "I" in operator.types and dtype is of.f32 else [of.i64]
    cases = cases_of(operator) if mode == "eager" else [c for c in cases_of(operator) if c.finite][:3]
    for case in cases:
        for index in indices if mode == "eager" else indices[:1]:
            inputs = arrays(operator, case, types_of(operator, dtype, index))
            wanted = flat(operator(*inputs, **case.attributes))
            got = framework(name).forward(operator, inputs, case.attributes, mode)
            for one, other in zip(got, wanted, strict=True):
                same_bits(np.asarray(one), other, f"{case.name} {index.name}")


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_denormals_are_kept(name, mode):
    """Some frameworks flush them on the threads on which kernels run."""
    tiny = np.array([1e-40, -1e-42, 5e-324], np.float32)
    operator = OPERATORS["CustomGELU"]
    wanted = np.asarray(operator(tiny))
    assert np.count_nonzero(wanted) == 2
    same_bits(framework(name).forward(operator, [tiny], {}, mode)[0], wanted, "denormals")
    many = np.full(200_000, 1e-40, np.float32)
    same_bits(framework(name).forward(operator, [many], {}, mode)[0], np.asarray(operator(many)), "many denormals")


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if o.differentiable], ids=lambda o: o.name)
def test_first_and_second_derivatives_agree(name, operator):
    """In float64: the first against the gradient of the NumPy host, the second against differences of the first."""
    checked = 0
    for case in cases_of(operator):
        inputs = arrays(operator, case, types_of(operator, of.f64, of.i64))
        sizes = [a.size for a in inputs if a is not None]
        if not case.finite or min(sizes) == 0 or sum(sizes) > 400 or checked == 3:
            continue
        rng = np.random.default_rng(0)
        outputs = flat(operator(*inputs, **case.attributes))
        weights = [rng.standard_normal(o.shape) for o in outputs]
        floats = [k for k, a in enumerate(inputs) if a is not None and a.dtype.kind == "f"]
        directions = [rng.standard_normal(inputs[k].shape) for k in floats]
        first, second = framework(name).derivatives(operator, inputs, case.attributes, weights, directions)
        wanted = backward(operator, inputs, outputs, weights, case.attributes)
        for got, k in zip(first, floats, strict=True):
            exact = np.zeros_like(inputs[k]) if wanted[k] is None else wanted[k]
            np.testing.assert_allclose(got, exact, rtol=1e-12, atol=1e-13, err_msg=case.name)

        def along(step, inputs=inputs, floats=floats, directions=directions, weights=weights, case=case):
            moved = list(inputs)
            for k, s in zip(floats, step, strict=True):
                moved[k] = inputs[k] + s
            made = flat(operator(*moved, **case.attributes))
            found = backward(operator, moved, made, weights, case.attributes)
            return sum(
                float((found[k] * d).sum()) for k, d in zip(floats, directions, strict=True) if found[k] is not None
            )

        toward = [rng.standard_normal(inputs[k].shape) for k in floats]
        eps = 1e-6
        slope = (along([eps * t for t in toward]) - along([-eps * t for t in toward])) / (2 * eps)
        ours = sum(float((s * t).sum()) for s, t in zip(second, toward, strict=True))
        assert ours == pytest.approx(slope, rel=2e-5, abs=1e-6), case.name
        checked += 1
    assert checked > 0


@pytest.mark.parametrize("operator", list(OPERATORS.values()), ids=lambda o: o.name)
def test_the_numpy_host_agrees_with_the_reference(operator):
    for dtype in operator.types["T"]:
        for case in cases_of(operator):
            inputs = arrays(operator, case, types_of(operator, dtype, of.i64))
            wide = [None if a is None else a.astype(np.float64) if a.dtype.kind not in "iub" else a for a in inputs]
            limits = tolerance(operator, dtype)
            for got, exact in zip(
                flat(operator(*inputs, **case.attributes)),
                flat(operator.reference(*wide, **case.attributes)),
                strict=True,
            ):
                with np.errstate(all="ignore"):
                    rounded = exact.astype(got.dtype).astype(np.float64)
                wanted = np.where(np.isinf(rounded), rounded, exact)
                np.testing.assert_allclose(
                    got.astype(np.float64), wanted, rtol=limits.rtol, atol=limits.atol, err_msg=case.name
                )
