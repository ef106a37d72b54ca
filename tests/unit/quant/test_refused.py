"""Programs that contradict themselves are refused with words, before a kernel runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.bin.programs import single
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
    with pytest.raises(OpforgeError, match="have no zero point"):
        Packed("IntegerConv", IMAGE, KERNEL, "integer16", **WINDOW).run(tmp_path, I32, None, np.ones(3, I32))


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
