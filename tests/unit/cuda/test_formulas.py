"""CUDA kernels of formulas in the emulator: values of every operator and derivative, broadcasting, strides, sums."""

import ctypes
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import opforge as of
from opforge.build import abi, load_library
from opforge.cuda import emulate_operators
from opforge.errors import ArgumentError
from opforge.frameworks import numpy_host
from opforge.ops import clip_sigmoid, custom_gelu, mish, mod_sigmoid, swish

RNG = np.random.default_rng(0)
TOLERANCE = {"float32": 3e-6, "float64": 1e-13, "float16": 2**-10, "bfloat16": 2**-7}
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@of.formula("test.cuda::Gate")
def gate(x, w, b, *, slope: float = 0.5):
    """Use three inputs that broadcast, an attribute, and both kinds of function."""
    return of.where(x > b, of.tanh(x * w) + b, slope * of.erf(x - w))


@of.formula("test.cuda::Every")
def every(x, y):
    """Use what the others leave out."""
    a = of.abs(x) + 0.5
    low = of.log(a) + of.log2(a) + of.log1p(a) + of.sqrt(a) + of.cos(x) * of.sin(y) + of.atan(y)
    high = of.exp(-a) + of.expm1(-a) + of.floor(x) + of.ceil(y) + of.round(x * 4) + of.sign(y) + of.minimum(x, y)
    return low + high + of.maximum(x, y) + a**y + of.softplus(x) + of.relu(y) + of.erfc(x) + x % a


@of.formula("test.cuda::Casts")
def casts(x):
    """Turn conditions and whole numbers into numbers."""
    return (x > 0) * x + of.cast(of.cast(x * 3, "i32"), "T")


FORMULAS = [clip_sigmoid, mod_sigmoid, custom_gelu, swish, mish, gate, every, casts]
TWICE = [custom_gelu, gate]  # whose second derivatives are computed too


def family(operator):
    """Give the operator, its first and, for some, its second derivative."""
    first = operator.gradient_operator
    return [operator, first, first.gradient_operator] if operator in TWICE else [operator, first]


@cache
def built():
    return load_library(emulate_operators([member for operator in FORMULAS for member in family(operator)]).path)


def close(got, expected, dtype):
    scale = TOLERANCE[dtype]
    expected = np.asarray(expected, np.float64)
    np.testing.assert_allclose(
        np.asarray(got, np.float64), expected, rtol=scale, atol=scale * max(1, np.abs(expected).max(initial=0))
    )


def check(member, arrays, dtype="float32"):
    got = numpy_host.call(member, arrays, {}, library=built(), device=abi.DEVICE_CUDA)
    expected = member.reference(*arrays)
    got, expected = (value if isinstance(value, tuple) else (value,) for value in (got, expected))
    assert len(got) == len(expected)
    for one, right in zip(got, expected, strict=True):
        assert one.shape == right.shape
        close(one, right, dtype)


def arguments(member, shapes, dtype="float32"):
    """Inputs of the member of a family: the operator's own, then gradients of its outputs, of the broadcast shape."""
    whole = np.broadcast_shapes(*shapes)
    count = len(member.signature.inputs)
    every_shape = [*shapes, *[whole] * count][:count]
    kind = HALVES.get(dtype, dtype)
    return [(RNG.standard_normal(shape) * 2).astype(kind) for shape in every_shape]


def shapes_of(operator, shape):
    return [shape] * len(operator.signature.inputs)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("operator", FORMULAS, ids=lambda o: o.name)
def test_values_and_first_derivatives_in_every_dtype(operator, dtype):
    for member in family(operator)[:2]:
        check(member, arguments(member, shapes_of(operator, (7, 33)), dtype), dtype)


@pytest.mark.parametrize("operator", TWICE, ids=lambda o: o.name)
def test_second_derivatives(operator):
    member = family(operator)[2]
    inputs = [p.name for p in operator.signature.inputs]
    shapes = {name: (5, 9) for name in inputs}
    arrays = [RNG.standard_normal(shapes.get(p.name, (5, 9))).astype(np.float64) for p in member.signature.inputs]
    check(member, arrays, "float64")


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1000, 70001])
def test_vectors_and_what_is_left_over(size):
    check(custom_gelu, [RNG.standard_normal(size).astype(np.float32)])


def test_operands_that_are_not_aligned():
    x = np.empty(1001, np.float32)[1:]
    x[:] = RNG.standard_normal(1000)
    check(custom_gelu, [x])


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, ::-1],
        lambda a: a[1:, 3:],
        lambda a: a[None, :, None],
        lambda a: a[0, 0],
    ],
    ids=["transposed", "sliced", "reversed", "offset", "ranks", "0-d"],
)
def test_strides(change):
    x = change(RNG.standard_normal((12, 20)).astype(np.float32))
    check(custom_gelu, [x])
    check(custom_gelu.gradient_operator, [x, np.broadcast_to(np.float32(0.5), x.shape)])


BROADCASTS = [
    ((4, 5, 6), (6,), ()),
    ((4, 1, 6), (5, 1), (1, 1, 1)),
    ((1,), (300, 1), (1, 7)),
    ((0, 3), (3,), (1,)),
    ((200, 300), (300,), (200, 1)),
    ((2,), (70000, 2), (2,)),
    ((3000, 2), (3000, 1), (2,)),  # sums of two, and of many
    ((900, 40), (40,), (900, 1)),  # sums whose terms lie apart, in parts
    ((3, 5, 2, 7), (5, 1, 7), (1, 1, 2, 1)),  # summed dimensions between others
    ((3, 5000), (1, 5000), (3, 1)),
]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting_and_sums_of_gradients(shapes):
    for member in family(gate)[:2]:
        check(member, arguments(member, list(shapes)))


@pytest.mark.parametrize("shapes", [((200, 300), (300,), (200, 1)), ((4, 700, 3), (3,), (700, 1))], ids=str)
def test_sums_have_equal_bits_in_every_order(shapes):
    member = gate.gradient_operator
    arrays = arguments(member, list(shapes))
    results = []
    for order in (0, 1, 2):
        loaded = built()
        ctypes.CDLL(str(loaded.path)).opforge_cuda_order(ctypes.c_int(order), ctypes.c_uint(7))
        found = numpy_host.call(member, arrays, {}, library=loaded, device=abi.DEVICE_CUDA)
        results.append([part.tobytes() for part in found])
    assert results[0] == results[1] == results[2]


def test_sums_have_equal_bits_in_every_layout():
    member = gate.gradient_operator
    arrays = arguments(member, [(60, 7, 50), (7, 1), (60, 1, 1)])
    turned = [np.asfortranarray(one) for one in arrays]
    plain, other = (
        numpy_host.call(member, each, {}, library=built(), device=abi.DEVICE_CUDA) for each in (arrays, turned)
    )
    assert [part.tobytes() for part in plain] == [part.tobytes() for part in other]


def test_special_values_and_attributes():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 100.0, -100.0], np.float32)
    got = numpy_host.call(swish, [x], {}, library=built(), device=abi.DEVICE_CUDA)
    np.testing.assert_allclose(got, swish.reference(x), rtol=1e-6, atol=1e-37)
    arrays = arguments(gate, [(3, 4)] * 3)
    got = numpy_host.call(gate, arrays, {"slope": -2.5}, library=built(), device=abi.DEVICE_CUDA)
    close(got, gate.reference(*arrays, slope=-2.5), "float32")


def test_shapes_that_do_not_fit_are_an_error_of_the_kernel():
    with pytest.raises(ArgumentError, match="broadcast"):
        numpy_host.call(
            gate,
            [*arguments(gate, [(3,)] * 3)[:2], np.ones(4, np.float32)],
            {},
            library=built(),
            device=abi.DEVICE_CUDA,
        )
    with pytest.raises(ArgumentError, match=r"no operator(?s:.*)one operator or more"):
        emulate_operators([])
