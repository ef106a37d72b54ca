"""Operators that move elements, shift bits and accumulate, against NumPy and onnx's reference."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, run

RNG = np.random.default_rng(5)
TYPES = (np.float32, np.float64, np.float16, np.int8, np.uint16, np.int32, np.int64, np.bool_)


@pytest.mark.parametrize("dtype", TYPES)
def test_trilu_of_every_type(dtype):
    x = RNG.integers(0, 100, (2, 5, 7)).astype(dtype)
    for upper in (0, 1):
        for k in (-9, -1, 0, 2, 9):
            want = (np.triu if upper else np.tril)(x, k)
            check("Trilu", [x, np.array(k, np.int64)], want=[want], upper=upper)
    check("Trilu", [x], want=[np.triu(x)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4), (1, 1)])
def test_trilu_of_empty_matrices(shape):
    x = np.ones(shape, np.float32)
    check("Trilu", [x, np.array(1, np.int64)], want=[np.triu(x, 1)])


def test_trilu_far_diagonals():
    x = np.ones((3, 4), np.int32)
    for k in (-(2**63), 2**63 - 1):
        check("Trilu", [x, np.array(k, np.int64)], want=[np.zeros_like(x) if k > 0 else x])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", TYPES)
def test_compress(axis, dtype):
    x = RNG.integers(0, 2, (3, 4)).astype(dtype)
    options = {} if axis is None else {"axis": axis}
    for condition in ([True, False, True], [], [False] * 3, [False, True]):
        row = np.array(condition, np.bool_)
        check("Compress", [x, row], want=[np.compress(row, x, axis=axis)], **options)


def test_compress_checks_its_condition():
    with pytest.raises(OpforgeError, match="the condition chooses index 2 of 2"):
        run("Compress", [np.ones((2, 4), np.float32), np.ones(4, np.bool_)], axis=0)


@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence(time):
    x = RNG.standard_normal((4, 4, 3)).astype(np.float32)
    lengths = np.array([1, 4, 0, 3], np.int64)
    want = x.copy()
    for b, n in enumerate(lengths):
        part = np.s_[:n, b] if time == 0 else np.s_[b, :n]
        want[part] = x[part][::-1]
    check("ReverseSequence", [x, lengths], want=[want], time_axis=time, batch_axis=1 - time)
    with pytest.raises(OpforgeError, match="a sequence of length 5, expected 0 to 4"):
        run("ReverseSequence", [x, lengths + 4], time_axis=time, batch_axis=1 - time)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode):
    cache = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
    update = RNG.standard_normal((2, 3, 2, 4)).astype(np.float32)
    for places in ([0, 3], [2, 1]) if mode == "linear" else ([4, -1], [7, 2]):
        want = cache.copy()
        for b, place in enumerate(places):
            for t in range(2):
                want[b, :, (place + t) % 5] = update[b, :, t]
        check("TensorScatter", [cache, update, np.array(places, np.int64)], want=[want], mode=mode)
    if mode == "linear":
        with pytest.raises(OpforgeError, match="an update from 4 on does not fit into 5"):
            run("TensorScatter", [cache, update, np.array([0, 4], np.int64)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 4), (4, 2), (0, 3)])
def test_eye_like(dtype, shape):
    x = np.zeros(shape, dtype)
    for k in (-5, -1, 0, 2):
        check("EyeLike", [x], want=[np.eye(*shape, k, dtype=dtype)], k=k)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_bit_shift(dtype):
    info = np.iinfo(dtype)
    x = np.array([0, 1, 3, info.max, info.min, info.max // 3], dtype)[:, None]
    y = np.array([0, 1, 5, info.bits - 1, info.bits, 100, *([-1] if info.min < 0 else [])], dtype)
    shift = np.clip(y.astype(np.int64), None, info.bits)
    for left in (True, False):
        want = np.empty((x.size, y.size), dtype)
        for i, j in np.ndindex(want.shape):
            value, n = int(x[i, 0]), int(shift[j])
            n = info.bits if n < 0 else n
            bits = (value << n if left else value >> n) & (2**info.bits - 1)
            want[i, j] = np.array(bits, f"u{x.itemsize}").astype(dtype)
        opset = 28 if info.min < 0 else 24
        check("BitShift", [x, y], want=[want], direction="LEFT" if left else "RIGHT", opset=opset, ir_version=13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32, np.float16])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums_and_products(dtype, exclusive, reverse):
    x = RNG.integers(1, 4, (3, 5, 70)).astype(dtype)
    for axis in (0, 1, -1):
        for op, function in (("CumSum", np.cumsum), ("CumProd", np.cumprod)):
            given = x[:, :, :4] if op == "CumProd" and axis == -1 else x
            wide = np.flip(given, axis) if reverse else given
            want = function(wide.astype(np.float64 if wide.dtype.kind == "f" else dtype), axis, dtype=None)
            if exclusive:
                want = np.roll(want, 1, axis)
                np.moveaxis(want, axis, 0)[0] = op == "CumProd"
            want = np.flip(want, axis) if reverse else want
            options = {"exclusive": exclusive, "reverse": reverse, "opset": 26, "ir_version": 13}
            check(op, [given, np.array(axis, np.int64)], want=[want.astype(dtype)], tolerance=1e-3, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_hardmax(dtype):
    x = np.round(RNG.standard_normal((3, 4, 5))).astype(dtype)
    x[0, 1, 2] = np.nan
    for axis in (0, 1, -1):
        want = np.zeros_like(x)
        np.put_along_axis(want, np.argmax(x, axis, keepdims=True), 1, axis)
        check("Hardmax", [x], want=[want], axis=axis)
    check("Hardmax", [np.zeros((0, 3), dtype)], want=[np.zeros((0, 3), dtype)])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4)])
def test_running_sums_of_nothing(shape):
    for op in ("CumSum", "CumProd"):
        for axis in range(len(shape)):
            x = np.zeros(shape, np.float32)
            check(op, [x, np.array(axis, np.int64)], want=[x], opset=26, ir_version=13)
