"""Order and movement of elements on shapes that vectors, blocks and sorts cut in pieces; against NumPy."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from tests.unit.kernels.one_node import check

RNG = np.random.default_rng(9)
TYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8]


def numbers(dtype, shape) -> np.ndarray:
    """Many equal ones, zeros of both signs, NaN and infinities among them."""
    if np.dtype(dtype).kind != "f":
        return RNG.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)
    x = np.round(RNG.standard_normal(shape), 1).astype(dtype)
    for value in (np.nan, np.inf, -np.inf, -0.0, 0.0):
        x.flat[RNG.integers(0, max(1, x.size), x.size // 40)] = value
    return x


def first(x: np.ndarray, k: int, axis: int, *, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """NaN counts as the greatest; equal values keep their order."""
    keys = x.astype(np.float64)
    keys = np.where(np.isnan(keys), np.finfo(np.float64).max, np.clip(keys, -1e300, 1e300))
    index = np.argsort(-keys if largest else keys, axis=axis, kind="stable").take(range(k), axis=axis)
    return np.take_along_axis(x, index, axis), index


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "k"), [(7, 3), (100, 5), (1000, 48), (1000, 49), (1000, 1000), (3000, 700), (64, 0)])
def test_top_k(dtype, n, k):
    for axis, largest in product((0, 1), (0, 1)):
        x = numbers(dtype, (3, n) if axis else (n, 3))
        want = first(x, k, axis, largest=bool(largest))
        options = {"axis": axis, "largest": largest, "constants": (1,)}
        check("TopK", [x, np.array([k])], (None, np.int64), want=list(want), **options)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 70), (40, 70), (2, 21, 5), (5, 1)])
def test_extrema(dtype, shape):
    for axis, last, special in product(range(len(shape)), (0, 1), (False, True)):
        x = numbers(dtype, shape) if special else np.nan_to_num(numbers(dtype, shape))
        for op, function in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            want = function(x, axis)
            if last and not np.isnan(x.astype(np.float64)).any():
                want = x.shape[axis] - 1 - function(np.flip(x, axis), axis)
            elif last:
                continue
            check(op, [x], (np.int64,), want=[np.expand_dims(want, axis)], axis=axis, select_last_index=last)


@pytest.mark.parametrize("axis", [0, 1])
def test_hardmax(axis):
    x = numbers(np.float32, (33, 40))
    want = np.zeros_like(x)
    np.put_along_axis(want, np.expand_dims(x.argmax(axis), axis), 1, axis)
    check("Hardmax", [x], want=[want], axis=axis)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_transposes(dtype):
    for shape in ((5, 37, 3), (33, 2, 66), (4, 4, 4), (1, 70, 9), (3, 0, 2)):
        x = RNG.integers(0, 99, shape).astype(dtype)
        for perm in permutations(range(3)):
            check("Transpose", [x], want=[x.transpose(perm)], perm=perm)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(dtype, mode):
    x = RNG.integers(1, 99, (3, 4, 9)).astype(dtype)
    for begin, end in (((0, 0, 2), (0, 0, 3)), ((1, 2, 0), (2, 1, 1)), ((0, 1, 8), (0, 0, 0))):
        extra = {"constant_values": 7} if mode == "constant" else {}
        want = np.pad(x, list(zip(begin, end, strict=True)), mode=mode, **extra)
        value = np.array(7, dtype) if mode == "constant" else None
        check("Pad", [x, np.array([*begin, *end]), value], want=[want], mode=mode, constants=(1,))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
def test_elements_by_index(dtype):
    x = RNG.integers(0, 99, (5, 6, 7)).astype(dtype)
    for axis in range(3):
        shape = [4, 5, 6]
        shape[axis] = 11
        index = RNG.integers(-x.shape[axis], x.shape[axis], shape)
        want = np.take_along_axis(
            x[tuple(slice(0, s) if k != axis else slice(None) for k, s in enumerate(shape))], index, axis
        )
        check("GatherElements", [x, index], want=[want], axis=axis)


@pytest.mark.parametrize("shape", [[1, 2, 12, 14], [1, 2, 3, 7], [1, 2, 18, 21], [1, 2, 2, 5], [1, 2, 6, 28]])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_nearest_by_whole_steps(shape, dtype):
    x = RNG.integers(0, 99, (1, 2, 6, 7)).astype(dtype)
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    rows, columns = (np.arange(o) * i // o for o, i in zip(shape[2:], x.shape[2:], strict=True))
    want = x[:, :, rows][:, :, :, columns]
    check("Resize", [x, None, None, np.array(shape)], want=[want], constants=(3,), **options)
