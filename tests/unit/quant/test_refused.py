"""Programs that contradict themselves are refused with words, before a kernel runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opforge.bin.program import Layout
from opforge.errors import OpforgeError
from tests.unit.bin.programs import Builder, single
from tests.unit.quant.test_products import Packed

X = np.zeros((4, 8), np.uint8)
W = np.zeros((8, 5), np.int8)
IMAGE = np.zeros((1, 4, 6, 6), np.uint8)
KERNEL = np.zeros((3, 4, 2, 2), np.int8)
F32, U8, I32 = np.float32, np.uint8, np.int32
WINDOW: dict[str, Any] = {"kernel_shape": [2, 2]}
TERMS = "a zero point, bias, scale or the output of an integer product has the wrong dtype or size"


@pytest.mark.parametrize(
    ("dtype", "terms"),
    [
        (U8, [U8(1), None, None, np.ones(4, F32), None, U8(0)]),  # a scale for 4 of 5 columns
        (U8, [np.zeros(2, U8), None, None, F32(1), None, U8(0)]),  # two zero points of A
        (U8, [np.int8(1), None, None, F32(1), None, U8(0)]),  # a zero point of another sign
        (I32, [None, np.zeros(5, np.int8)]),  # zero points of B as bytes
        (I32, [None, None, np.zeros(6, I32)]),
        (F32, [None, None, None]),  # f32 without a scale
        (I32, [None, None, None, F32(1)]),  # a scale and i32
        (np.int8, [None, None, None, F32(1), None, U8(0)]),
    ],
)
def test_terms_that_do_not_fit(dtype: type, terms: list[Any], tmp_path: Path) -> None:
    with pytest.raises(OpforgeError, match=TERMS):
        Packed("IntegerMatMul", X, W, "integer16").run(tmp_path, dtype, *terms)
    if dtype is not F32 and len(terms) != 3:
        with pytest.raises(OpforgeError):
            Packed("IntegerConv", IMAGE, KERNEL, "integer16", **WINDOW).run(tmp_path, dtype, *terms)


def test_operands_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(OpforgeError, match=r"A is not u8 or i8 \[..., 8\]"):
        Packed("IntegerMatMul", X[:, :7].copy(), W, "integer16").run(tmp_path, I32)
    with pytest.raises(OpforgeError, match=r"A is not u8 or i8"):
        Packed("IntegerMatMul", X.astype(F32), W, "integer16").run(tmp_path, I32)
    with pytest.raises(OpforgeError, match="not a constant i8"):
        Packed("IntegerMatMul", IMAGE, KERNEL, "integer16").run(tmp_path, I32)
    with pytest.raises(OpforgeError, match="X is not a u8 or i8 image of 4 channels"):
        Packed("IntegerConv", IMAGE[:, :3].copy(), KERNEL, "integer16", **WINDOW).run(tmp_path, I32)
    with pytest.raises(OpforgeError, match=r"W is not a constant i8 \[O, I, 3, 2\]"):
        Packed("IntegerConv", IMAGE, KERNEL, "integer16", kernel_shape=[3, 2]).run(tmp_path, I32)
    with pytest.raises(OpforgeError, match="no dilation along them"):
        Packed("IntegerConv", IMAGE, KERNEL, "integer16", dilations=[1, 2], **WINDOW).run(tmp_path, I32)
    with pytest.raises(OpforgeError, match="depthwise convolution have no zero point"):
        own = Packed("IntegerConv", IMAGE, np.zeros((4, 1, 2, 2), np.int8), "integer_depthwise16", **WINDOW)
        own.run(tmp_path, I32, None, np.ones(4, I32))
    with pytest.raises(OpforgeError, match=TERMS):
        Packed("IntegerConv", IMAGE, KERNEL, "integer16", **WINDOW).run(tmp_path, I32, None, np.ones(4, I32))


def test_standard_operators(tmp_path: Path) -> None:
    x = np.zeros((2, 3), F32)
    with pytest.raises(OpforgeError, match="neither a number nor one per index of the axis nor one per block"):
        single(tmp_path, "QuantizeLinear", [x, np.ones(2, F32)], U8)
    with pytest.raises(OpforgeError, match="neither a number"):
        single(tmp_path, "QuantizeLinear", [x, np.ones((2, 1), F32)], U8, block_size=2)
    with pytest.raises(OpforgeError, match="the zero point has not the shape of the scale"):
        single(tmp_path, "QuantizeLinear", [x, np.ones(3, F32), np.zeros(2, U8)], U8)
    with pytest.raises(OpforgeError, match="no kernel for the dtype of its output"):
        single(tmp_path, "QuantizeLinear", [x, F32(1)], np.int64)
    with pytest.raises(OpforgeError, match="gives f32, f16 or bf16"):
        single(tmp_path, "DequantizeLinear", [X, F32(1)], np.float64)
    with pytest.raises(OpforgeError, match="round_mode is none of up, down and nearest"):
        single(tmp_path, "Cast", [x], F32, round_mode="sideways")
    with pytest.raises(OpforgeError, match="elements of the same number of bits"):
        single(tmp_path, "BitCast", [x], np.float64, since=26)
    with pytest.raises(OpforgeError, match="of a quantised MatMul do not fit"):
        single(tmp_path, "MatMulInteger", [X, W, np.zeros(3, U8)], I32)
    with pytest.raises(OpforgeError, match="kernel_shape is not that of the weights"):
        single(tmp_path, "ConvInteger", [IMAGE, KERNEL], I32, kernel_shape=[3, 3])


def image_node(folder: Path, op: str, inputs: list[Any], layout: str, near: str, **attributes: Any) -> np.ndarray:
    """A node on images: arrays of rank 4 come through a Reorder to ``near``, and its output is in ``layout``."""
    builder, ids, feeds = Builder(), [], {}
    for k, array in enumerate(inputs):
        if array.ndim != 4:
            ids.append(builder.constant(array))
            continue
        feeds[f"x{k}"] = array
        given = builder.input(f"x{k}", array.dtype, list(array.shape))
        if near != "plain":
            given = builder.node("Reorder", [given], array.dtype, [None] * 4, domain="opforge", since=1)
            builder.program.values[given].layout = Layout(near)
        ids.append(given)
    made = builder.node(op, ids, np.uint8, [None] * 4, domain="opforge", since=1, **attributes)
    builder.program.values[made].layout = Layout(*layout) if isinstance(layout, tuple) else Layout(layout)
    back = builder.node("Reorder", [made], np.uint8, [None] * 4, domain="opforge", since=1)
    builder.output(back)
    result: np.ndarray
    [result] = builder.session(folder).run(feeds).values()
    return result


SCALES = {"a_scale": 1.0, "b_scale": 1.0, "y_scale": 1.0}
FRAMED: Any = ("nhwc", (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("op", "inputs", "layout", "near", "attributes", "words"),
    [
        ("IntegerAdd", [IMAGE, IMAGE[:, :2]], "nhwc", "nhwc", SCALES, "not bytes of one shape and layout"),
        ("IntegerAdd", [IMAGE, IMAGE], "nhwc16", "nhwc", SCALES, "not bytes of one shape and layout"),
        ("IntegerMul", [IMAGE, IMAGE[:, :, :1, :1]], "plain", "plain", SCALES, "not bytes of one shape and layout"),
        ("IntegerAdd", [IMAGE, IMAGE], FRAMED, "nhwc", SCALES, "not bytes of one shape and layout"),
        ("IntegerAdd", [IMAGE, IMAGE], "nhwc", "nhwc", {**SCALES, "y_zero": -3}, "not bytes of one shape"),
        ("IntegerAdd", [IMAGE, IMAGE], "nhwc", "nhwc", {**SCALES, "y_scale": 0.0}, "out of range"),
        ("IntegerAdd", [IMAGE, IMAGE], "nhwc", "nhwc", {**SCALES, "a_scale": float("inf")}, "out of range"),
        ("IntegerAdd", [IMAGE, IMAGE], "nhwc", "nhwc", {**SCALES, "least": 9, "most": 3}, "out of range"),
        ("IntegerAdd", [IMAGE, IMAGE, np.zeros(255, U8)], "nhwc", "nhwc", SCALES, "not a constant of 256 bytes"),
        ("IntegerTable", [IMAGE, np.zeros(256, np.int8)], "nhwc", "nhwc", {}, "another dtype than the output"),
        ("IntegerTable", [IMAGE, np.zeros(256, F32)], "nhwc", "nhwc", {}, "not a constant of 256 bytes"),
        ("IntegerTable", [IMAGE, np.zeros(256, U8)], "nhwc16", "nhwc", {}, "not bytes in the output's layout"),
        ("IntegerPool", [IMAGE], "plain", "plain", {}, "not bytes .* in nhwc"),
        ("IntegerPool", [IMAGE], "nhwc", "nhwc", {"kernel_shape": [2]}, "not bytes .* in nhwc"),
        ("IntegerPool", [IMAGE], "nhwc", "nhwc", {"kernel_shape": [2, 2], "strides": [0, 1]}, "not bytes .* in nhwc"),
        ("IntegerPool", [IMAGE], FRAMED, "nhwc", {}, "not bytes .* in nhwc"),
        ("IntegerPool", [IMAGE], "nhwc", "nhwc", {"mode": "median"}, "neither max nor average"),
        ("ConcatChannels", [IMAGE, IMAGE[:, :, :3]], "nhwc", "nhwc", {}, "differ in more than channels"),
        ("ConcatChannels", [IMAGE, IMAGE], FRAMED, "nhwc", {}, "in nhwc without a halo"),
        ("Resize", [IMAGE], "nhwc16", "nhwc", {"scales_h": 2, "scales_w": 2}, "in nhwc without a halo"),
    ],
)
def test_images_that_do_not_fit(
    op: str, inputs: list[Any], layout: Any, near: str, attributes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(OpforgeError, match=words):
        image_node(tmp_path, op, inputs, layout, near, **attributes)


@pytest.mark.parametrize("kind", ["nhwc", "nhwc16"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, F32, np.float64])
@pytest.mark.parametrize("channels", [1, 5, 16, 40])
def test_moves_of_any_dtype(channels: int, dtype: Any, kind: str, tmp_path: Path) -> None:
    """Reorder there and back, Resize and ConcatChannels in between."""
    x = np.random.default_rng(channels).integers(0, 100, (2, channels, 7, 9)).astype(dtype)
    builder = Builder()

    def step(op: str, ids: list[int], layout: str, **attributes: Any) -> int:
        made: int = builder.node(op, ids, dtype, [None] * 4, domain="opforge", since=1, **attributes)
        builder.program.values[made].layout = Layout(layout)
        return made

    given = builder.input("x", dtype, [None] * 4)
    pixels = step("Reorder", [given], kind)
    wide = step("Resize", [pixels], kind, scales_h=2, scales_w=3)
    other = "nhwc" if kind == "nhwc16" else "nhwc16"
    joined = step("ConcatChannels", [wide, step("Reorder", [wide], other)], kind)
    builder.output(step("Reorder", [joined], "plain"))
    [got] = builder.session(tmp_path).run({"x": x}).values()
    assert np.array_equal(got, np.tile(x.repeat(2, axis=2).repeat(3, axis=3), (1, 2, 1, 1)))
