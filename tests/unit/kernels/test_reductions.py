"""Reductions, softmax and conversions of every layout and dtype, against NumPy in wider numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.unit.kernels import graphs
from tests.unit.kernels.one_node import check, run

RNG = np.random.default_rng(5)
AXES = [[0], [1], [2], [0, 2], [1, 3], [0, 1], [2, 3], [0, 1, 2, 3], [1, 2], [0, 3], [3]]
FOLDS = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}


def whole(dtype, shape) -> np.ndarray:
    """Small numbers, so that no sum leaves the type and the least one of a signed type is among them."""
    low = 0 if np.dtype(dtype).kind == "u" else -3
    return RNG.integers(low, 4, shape).astype(dtype)


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint64, np.uint32])
def test_axes_and_widths(op, dtype):
    for axes, shape in product(AXES, ((2, 3, 5, 7), (1, 4, 1, 70), (3, 1, 17, 1), (2, 0, 3, 4))):
        empty = 0 in (shape[a] for a in axes)
        if empty and op in ("ReduceMax", "ReduceMin"):
            continue
        x = whole(dtype, shape)
        if op == "ReduceProd":
            x = np.sign(x) + (x == 0).astype(dtype)
        want = FOLDS[op](x, axis=tuple(axes), keepdims=True).astype(dtype)
        check(op, [x, np.array(axes, np.int64)], want=[want], constants=(1,))


def test_bytes():
    x = whole(np.int8, (3, 40))
    for op in ("ReduceMax", "ReduceMin"):
        check(op, [x, np.array([1])], want=[FOLDS[op](x, axis=1, keepdims=True)], constants=(1,))
        check(op, [x, np.array([0])], want=[FOLDS[op](x, axis=0, keepdims=True)], constants=(1,))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_means_of_as_many_as_the_type_has_numbers(number):
    """Only files can ask for them. The size cut to the type would be 0, and the division end the process."""
    for n in (255, 256, 512, 65536):
        x, net = np.zeros((2, n), number), graphs.Net()
        x[0, :100] = 1
        x[1] = 3
        sums = x.sum(1, keepdims=True, dtype=np.int64).astype(number).astype(np.int64)
        out = net.onnx("ReduceMean", 13, [net.feed(x)], dtypes=[graphs.DTYPES[x.dtype]], axes=[1])
        assert np.array_equal(net.run(out)[0], np.trunc(sums / n).astype(number))


@pytest.mark.parametrize("at", [0, 5, 30, 69])
def test_what_is_no_number_stays(at):
    x = RNG.standard_normal((2, 70))
    x[0, at] = np.nan
    x[1, at] = -np.inf
    for op, axis in product(("ReduceMax", "ReduceMin", "ReduceSum"), (0, 1)):
        got = run(op, [x, np.array([axis])], constants=(1,))[0]
        np.testing.assert_allclose(got, FOLDS[op](x, axis=axis, keepdims=True), rtol=1e-12)


def test_means_of_doubles():
    x = RNG.standard_normal((5, 200, 9))
    for axes in ([0], [1], [2], [0, 2]):
        want = x.mean(tuple(axes), keepdims=True)
        check("ReduceMean", [x, np.array(axes)], want=[want], tolerance=1e-14, constants=(1,))
        want = np.log(np.exp(x).sum(tuple(axes), keepdims=True))
        check("ReduceLogSumExp", [x, np.array(axes)], want=[want], tolerance=1e-14, constants=(1,))


@pytest.mark.parametrize("shape", [(3, 5, 40), (2, 33, 17), (4, 1, 16), (2, 3, 0), (7, 19, 1)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_along_every_axis(op, shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    for axis in range(3):
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis, keepdims=True, initial=-np.inf))
        want = e / e.sum(axis, keepdims=True)
        want = (np.log(want) if op == "LogSoftmax" else want).astype(np.float32)
        check(op, [x], want=[want], tolerance=2e-6, axis=axis)


@pytest.mark.parametrize("n", [1, 7, 16, 33, 1000])
def test_casts_of_halves(n):
    x = np.concatenate([RNG.standard_normal(n), [np.inf, -np.inf, np.nan, 70000, 6e-8, -0.0, 65519, 1e-8]])
    with np.errstate(over="ignore"):
        for wide in (np.float32, np.float64):
            check("Cast", [x.astype(wide)], (np.float16,), want=[x.astype(wide).astype(np.float16)], to=10)
            check(
                "Cast",
                [x.astype(np.float16)],
                (wide,),
                want=[x.astype(np.float16).astype(wide)],
                to=1 if wide == np.float32 else 11,
            )
        check("Cast", [x], (np.float32,), want=[x.astype(np.float32)], to=1)


@pytest.mark.parametrize("n", [1, 15, 16, 40])
def test_casts_of_bytes_saturate(n):
    x = np.concatenate([RNG.uniform(-300, 300, n), [np.nan, np.inf, -np.inf, -0.9, 255.9, 127.5]]).astype(np.float32)
    known = np.nan_to_num(x, nan=0, posinf=1000, neginf=-1000)
    for dtype, to in ((np.uint8, 2), (np.int8, 3)):
        limits = np.iinfo(dtype)
        want = np.trunc(np.clip(known, limits.min, limits.max)).astype(dtype)
        check("Cast", [x], (dtype,), want=[want], to=to)
        check("Cast", [want], (np.float32,), want=[want.astype(np.float32)], to=1)
        check("Cast", [want], (np.bool_,), want=[want != 0], to=9)
        check("Cast", [want != 0], (dtype,), want=[(want != 0).astype(dtype)], to=to)


@pytest.mark.parametrize("n", [1, 16, 50])
def test_logic(n):
    a, b = RNG.integers(0, 2, (2, 3, n)).astype(bool)
    for op, function in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)):
        check(op, [a, b], want=[function(a, b)])
        check(op, [a, b[:1]], want=[function(a, b[:1])])
    check("Not", [a], want=[~a])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int16])
def test_integers_broadcast(dtype):
    a = RNG.integers(0, 9, (3, 5, 300)).astype(dtype)
    for shape in ((300,), (5, 1), (3, 1, 300), (1,), (), (3, 5, 1)):
        b = RNG.integers(1, 9, shape).astype(dtype)
        check("Add", [a, b], want=[a + b])
        check("Sub", [b, a], want=[b - a])
        check("Mul", [a, b], want=[a * b])
