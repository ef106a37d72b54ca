"""Constant weights with zero points of their own: centred, or taken off by sums of windows or in more bytes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.bin.format import read
from opforge.errors import OpforgeError
from tests.unit.quant.test_fusion import model, run
from tests.unit.quant.test_products import bytes_of, convolution, requantized

U8, I8 = np.uint8, np.int8
RNG = np.random.default_rng(11)
TYPES = {U8: T.UINT8, I8: T.INT8}
CHANNELS = np.array([0, 1, 128, 200, 255, 77] * 4, U8)
WINDOWS: list[dict[str, Any]] = [
    {"pads": [1, 1, 1, 1]},
    {"pads": [0, 2, 1, 3], "strides": [2, 1]},
    {"dilations": [2, 2], "strides": [1, 2]},
    {"pads": [2, 0, 2, 1], "dilations": [1, 2]},
]


def sums(x: np.ndarray, w: np.ndarray, x_zero: int, w_zero: np.ndarray, group: int, window: dict[str, Any]) -> Any:
    """In int64, for any strides and dilations."""
    taken = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
    rows, columns = window.get("dilations", [1, 1])
    wide = np.zeros((*w.shape[:2], (w.shape[2] - 1) * rows + 1, (w.shape[3] - 1) * columns + 1), np.int64)
    wide[:, :, ::rows, ::columns] = taken
    down, right = window.get("strides", [1, 1])
    whole = convolution(x.astype(np.int64) - x_zero, wide, 1, 1, window.get("pads", [0] * 4), group)
    return whole[:, :, ::down, ::right]


def zero_points(dtype: type, outputs: int) -> list[np.ndarray]:
    if dtype is I8:
        return [np.array(z, I8) for z in (-128, -1, 127)] + [(CHANNELS[:outputs] ^ 0x80).view(I8)]
    return [np.array(z, U8) for z in (0, 1, 128, 200, 255)] + [CHANNELS[:outputs]]


@pytest.mark.parametrize(("x_type", "w_type"), list(product((U8, I8), (U8, I8))))
@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("window", WINDOWS)
def test_convinteger(x_type: type, w_type: type, group: int, window: dict[str, Any], tmp_path: Path) -> None:
    x, w = bytes_of(RNG, x_type, 2, 6, 9, 8), bytes_of(RNG, w_type, 6 if group == 6 else 20, 6 // group, 3, 2)
    attributes = ", ".join(f"{k}={v}" for k, v in window.items())
    text = f"y = ConvInteger(x, w, xz, wz) | group={group}, {attributes}"
    for zero in zero_points(w_type, len(w)):
        given = {"w": w, "wz": zero, "xz": x_type(9)}
        net = model(text, {"x": (TYPES[x_type], ["N", 6, "H", "W"])}, T.INT32, **given)
        operators, got, reference = run(net, tmp_path, x=x)
        wanted = sums(x, w, 9, zero, group, window)
        assert np.array_equal(got, wanted)
        if zero.ndim == 0:
            assert np.array_equal(got, reference)
        assert operators == ["IntegerConv"]


def test_weights_that_are_bytes_without_their_zero_point_lose_it(tmp_path: Path) -> None:
    """One product alone, also of a depthwise convolution and a matrix."""
    narrow = RNG.integers(90, 200, (8, 1, 3, 3), U8)
    x, zero = bytes_of(RNG, U8, 1, 8, 7, 7), np.array([100, 150, 90, 110] * 2, U8)
    given = {"x": (T.UINT8, [1, 8, 7, 7])}
    net = model("y = ConvInteger(x, w, -, wz) | group=8", given, T.INT32, w=narrow, wz=zero)
    operators, got, _ = run(net, tmp_path, x=x)
    assert operators == ["IntegerConv"]
    assert np.array_equal(got, sums(x, narrow, 0, zero, 8, {}))
    a, b = bytes_of(RNG, U8, 5, 40), RNG.integers(0, 120, (40, 8), U8)
    net = model("y = MatMulInteger(x, w, -, wz)", {"x": (T.UINT8, ["B", 40])}, T.INT32, w=b, wz=np.arange(8, dtype=U8))
    operators, got, _ = run(net, tmp_path, x=a)
    assert operators == ["IntegerMatMul"]
    assert np.array_equal(got, a.astype(np.int64) @ (b.astype(np.int64) - np.arange(8)))


@pytest.mark.parametrize("x_type", [U8, I8])
@pytest.mark.parametrize("group", [1, 2, 6])
def test_qlinearconv(x_type: type, group: int, tmp_path: Path) -> None:
    x, w = bytes_of(RNG, x_type, 2, 6, 9, 8), bytes_of(RNG, U8, 18, 6 // group, 3, 3)
    w = w[:6] if group == 6 else w
    scale = RNG.uniform(1e-4, 1e-3, len(w)).astype(np.float32)
    bias = RNG.integers(-9999, 9999, len(w), np.int32)
    window = {"pads": [1, 1, 1, 1]}
    text = f"y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b) | group={group}, pads=[1, 1, 1, 1]"
    for zero in zero_points(U8, len(w)):
        given = {"w": w, "ws": scale, "xs": np.float32(0.5), "xz": x_type(-3 if x_type is I8 else 130), "b": bias}
        given |= {"wz": np.broadcast_to(zero, len(w)).copy(), "ys": np.float32(0.25), "yz": x_type(7)}
        net = model(text, {"x": (TYPES[x_type], ["N", 6, "H", "W"])}, TYPES[x_type], **given)
        operators, got, _ = run(net, tmp_path, x=x)
        total = sums(x, w, int(given["xz"]), zero, group, window) + bias[:, None, None]
        assert np.array_equal(got, requantized(total, (scale * np.float32(2))[:, None, None], 7, x_type))
        assert operators == ["IntegerConv"]


@pytest.mark.parametrize("group", [1, 6])
def test_dynamic_quantisation_of_images(group: int, tmp_path: Path) -> None:
    """The zero point of x is one of the run."""
    text = f"""xq, xs, xz = DynamicQuantizeLinear(x)
    ci = ConvInteger(xq, w, xz, wz) | pads=[1, 1, 1, 1], group={group}
    cf = Cast(ci) | to=1
    s = Mul(xs, ws)
    cs = Mul(cf, s)
    y = Add(cs, b)"""
    outputs = 20 if group == 1 else 6
    w, b = bytes_of(RNG, U8, outputs, 6 // group, 3, 3), RNG.normal(size=(1, outputs, 1, 1)).astype(np.float32)
    net = model(text, {"x": (T.FLOAT, ["N", 6, "H", "W"])}, T.FLOAT, w=w, wz=U8(117), ws=np.float32(0.01), b=b)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(2, 6, 8, 7)).astype(np.float32))
    assert operators.count("IntegerConv") == 1
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", [1, 3, 6])
@pytest.mark.parametrize("window", [{}, {"pads": [2, 1], "strides": [2]}, {"pads": [0, 3], "dilations": [2]}])
def test_lines_are_images_of_one_row(group: int, window: dict[str, Any], tmp_path: Path) -> None:
    x, w = bytes_of(RNG, U8, 2, 6, 19), bytes_of(RNG, U8, 6 if group == 6 else 12, 6 // group, 4)
    given: dict[str, tuple[int, list[Any]]] = {"x": (T.UINT8, ["N", 6, "L"])}
    for zero in zero_points(U8, len(w)):
        text = f"y = ConvInteger(x, w, xz, wz) | group={group}, " + ", ".join(f"{k}={v}" for k, v in window.items())
        net = model(text, given, T.INT32, w=w, wz=zero, xz=U8(9))
        of.compile(net, tmp_path / "m.bin")
        assert "IntegerConv" in [n.op for n in read(tmp_path / "m.bin").program.graphs[0].nodes]
        [got] = of.Session(tmp_path / "m.bin").run({"x": x}).values()
        before, after = window.get("pads", [0, 0])
        flat = {"pads": [0, before, 0, after]}
        flat |= {k: [1, *window[k]] for k in ("strides", "dilations") if k in window}
        wanted = sums(x[:, :, None], w[:, :, None], 9, zero, group, flat)[:, :, 0]
        assert np.array_equal(got, wanted)
        if zero.ndim == 0:  # the reference takes zero points per channel of images alone
            assert np.array_equal(got, ReferenceEvaluator(net).run(None, {"x": x})[0])


def test_zero_points_of_another_number_than_the_outputs_are_refused(tmp_path: Path) -> None:
    """With the runtime's words: the compiler leaves such nodes alone."""
    w = bytes_of(RNG, U8, 12, 3, 3, 3)
    given: dict[str, tuple[int, list[Any]]] = {"x": (T.UINT8, [1, 6, 9, 9])}
    net = model("y = ConvInteger(x, w, -, wz) | group=2", given, T.INT32, w=w, wz=np.arange(5, dtype=U8))
    with pytest.raises(OpforgeError, match="a zero point, scale, bias or the output of a quantised convolution"):
        of.compile(net, tmp_path / "m.bin")


def test_sums_that_leave_32_bits_wrap(tmp_path: Path) -> None:
    """Two to the sixteen products of 255 by 255 are more than 2 ** 31."""
    x, w = np.full((1, 4096, 4, 4), 255, U8), np.full((1, 4096, 4, 4), 255, U8)
    net = model("y = ConvInteger(x, w)", {"x": (T.UINT8, [1, 4096, 4, 4])}, T.INT32, w=w)
    operators, got, reference = run(net, tmp_path, x=x)
    assert operators == ["IntegerConv"]
    wanted = np.array(255 * 255 * 4096 * 16, np.int64).astype(np.int32)
    assert np.array_equal(got.reshape(()), wanted)
    assert np.array_equal(got, reference)
