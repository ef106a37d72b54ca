"""Integer products against NumPy's int64: signs, zero points, scales, shapes; bits on every instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.native import native
from opforge.bin.packing import PACKERS
from opforge.bin.program import Layout
from tests.unit.bin.programs import Builder, single
from tests.unit.kernels.test_cases import others

U8, I8 = np.uint8, np.int8
SIGNS = list(product((U8, I8), (U8, I8)))


def bytes_of(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, shape, dtype)
    if x.size > 1:  # pairs of extremes would overflow sixteen bits
        x.reshape(-1)[:2] = info.min, info.max
    return x


def requantized(sums: np.ndarray, scale: np.ndarray, zero: int, dtype: type) -> np.ndarray:
    """Half to even, then the zero point, then saturation; the product in float64."""
    info = np.iinfo(dtype)
    real = np.rint(sums.astype(np.float64) * np.asarray(scale, np.float64)) + zero
    return np.clip(real, info.min, info.max).astype(dtype)


class Packed:
    """An IntegerMatMul or IntegerConv of the compiler, built by hand."""

    def __init__(
        self,
        op: str,
        x: np.ndarray,
        w: np.ndarray,
        packing: str,
        near: str = "plain",
        far: str = "plain",
        **attributes: Any,
    ) -> None:
        self.builder = Builder()
        self.x, self.far = x, far
        stored = (w ^ 0x80).view(I8) if w.dtype == U8 else w
        inputs = [self.laid(self.builder.input("x", x.dtype, list(x.shape)), near)]
        inputs.append(self.builder.constant(PACKERS[packing](stored), packing=packing, shape=list(w.shape)))
        axes = (0,) if w.ndim == 2 else (1, 2, 3)
        inputs.append(self.builder.constant(stored.astype(np.int64).sum(axis=axes).astype(np.int32)))
        self.op, self.inputs, self.attributes, self.stored = op, inputs, attributes, stored

    def laid(self, value: int, kind: str) -> int:
        """The value in another layout."""
        held = self.builder.program.values[value]
        if kind == held.layout.kind:
            return value
        dtype = NUMPY_DTYPES[held.dtype]
        made: int = self.builder.node("Reorder", [value], dtype, [None] * 4, domain="opforge", since=1)
        self.builder.program.values[made].layout = Layout(kind)
        return made

    def run(self, folder: Path, dtype: type, *terms: Any, threads: int = 1) -> np.ndarray:
        """Terms: a_zero, b_zero, bias, scale, shift, y_zero, table; None = absent."""
        for term in terms:
            self.inputs.append(-1 if term is None else self.builder.constant(term))
        while self.inputs[-1] == -1:
            self.inputs.pop()
        shape = None if self.far == "plain" else [None] * 4
        made = self.builder.node(self.op, self.inputs, dtype, shape, domain="opforge", since=1, **self.attributes)
        self.builder.program.values[made].layout = Layout(self.far)
        self.builder.output(self.laid(made, "plain"))
        result: np.ndarray
        [result] = self.builder.session(folder, threads=threads).run({"x": self.x}).values()
        return result


@pytest.mark.parametrize(("a_type", "b_type"), SIGNS)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (7, 5, 3), (6, 64, 64), (13, 131, 70), (50, 260, 129), (3, 0, 5)])
def test_matmul_integer(a_type: type, b_type: type, m: int, k: int, n: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(m * n + k)
    a = bytes_of(rng, a_type, 2, m, k) if k else np.zeros((2, m, k), a_type)
    b = bytes_of(rng, b_type, k, n) if k else np.zeros((k, n), b_type)
    for za, zb in ((0, 0), (3, 117), (127, 5)):
        columns = (np.arange(n) % 100).astype(b_type)
        for zero_b in (np.array(zb, b_type), columns):
            wanted = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zero_b.astype(np.int64))
            got = single(tmp_path, "MatMulInteger", [a, b, np.array(za, a_type), zero_b], np.int32)
            assert np.array_equal(got, wanted)
    rows = (np.arange(m) % 100).astype(a_type)
    wanted = (a.astype(np.int64) - rows[:, None]) @ b.astype(np.int64)
    assert np.array_equal(single(tmp_path, "MatMulInteger", [a, b, rows], np.int32), wanted)


@pytest.mark.parametrize(("a_type", "b_type"), SIGNS)
def test_qlinear_matmul(a_type: type, b_type: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    a, b = bytes_of(rng, a_type, 3, 19, 36), bytes_of(rng, b_type, 3, 36, 50)
    for scale, za, zb, zy in ((0.002, 3, 7, 9), (0.5, 100, 1, 1), (1 / 1024, 0, 127, 3)):
        scales = [np.float32(0.25), np.float32(scale), np.float32(0.125)]
        sums = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
        factor = scales[0] * scales[1] / scales[2]
        zeros = [np.array(z, t) for z, t in ((za, a_type), (zb, b_type), (zy, a_type))]
        inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
        assert np.array_equal(single(tmp_path, "QLinearMatMul", inputs, a_type), requantized(sums, factor, zy, a_type))
        inputs[4] = np.linspace(0.001, 0.02, 50).astype(np.float32)
        by_column = requantized(sums, scales[0] * inputs[4] / scales[2], zy, a_type)
        assert np.array_equal(single(tmp_path, "QLinearMatMul", inputs, a_type), by_column)
        inputs[1] = np.linspace(0.1, 0.3, 19).astype(np.float32)
        by_row = requantized(sums, inputs[1][:, None] * inputs[4] / scales[2], zy, a_type)
        assert np.array_equal(single(tmp_path, "QLinearMatMul", inputs, a_type), by_row)


@pytest.mark.parametrize(("a_type", "b_type"), SIGNS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 768, 80), (37, 100, 24), (150, 1500, 130)])
def test_packed_product(a_type: type, b_type: type, threads: int, m: int, k: int, n: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(m)
    a, b = bytes_of(rng, a_type, m, k), bytes_of(rng, b_type, k, n)
    zb = np.arange(n, dtype=np.int32) - 20
    bias = rng.integers(-9999, 9999, n, dtype=np.int32)
    scale, shift = rng.uniform(1e-5, 1e-4, n).astype(np.float32), rng.normal(size=n).astype(np.float32)

    def make() -> Packed:
        return Packed("IntegerMatMul", a, b, "integer16")

    node = make()
    sums = (a.astype(np.int64) - 5) @ (node.stored.astype(np.int64) - zb) + bias
    terms = (a_type(5), zb, bias)
    assert np.array_equal(node.run(tmp_path, np.int32, *terms, threads=threads), sums)
    real = sums.astype(np.float32) * scale + shift
    assert np.array_equal(make().run(tmp_path, np.float32, *terms, scale, shift, threads=threads), real)
    for dtype, zero in ((U8, 7), (I8, -3)):
        got = make().run(tmp_path, dtype, *terms, scale, None, dtype(zero), threads=threads)
        assert np.array_equal(got, requantized(sums, scale, zero, dtype))


def convolution(x: np.ndarray, w: np.ndarray, stride: int, dilation: int, pads: list[int], group: int) -> np.ndarray:
    """In int64; x and w have their zero points taken off, so padding is 0."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    o, i, kh, kw = w.shape
    oh = (x.shape[2] - (kh - 1) * dilation - 1) // stride + 1
    ow = (x.shape[3] - (kw - 1) * dilation - 1) // stride + 1
    y = np.zeros((x.shape[0], group, o // group, oh, ow), np.int64)
    parts = w.astype(np.int64).reshape(group, o // group, i, kh, kw)
    for ky, kx in product(range(kh), range(kw)):
        rows = slice(ky * dilation, ky * dilation + (oh - 1) * stride + 1, stride)
        columns = slice(kx * dilation, kx * dilation + (ow - 1) * stride + 1, stride)
        window = x[:, :, rows, columns].reshape(x.shape[0], group, i, oh, ow)
        y += np.einsum("ngihw,goi->ngohw", window, parts[..., ky, kx])
    return y.reshape(x.shape[0], o, oh, ow)


CONVOLUTIONS = [
    # channels in, out, kernel, stride, dilation, pads, group
    (3, 20, (7, 7), 2, 1, [3, 3, 3, 3], 1),
    (64, 64, (3, 3), 1, 1, [1, 1, 1, 1], 1),
    (16, 24, (1, 1), 1, 1, [0, 0, 0, 0], 1),
    (10, 17, (3, 2), 1, 2, [2, 0, 1, 3], 1),
    (35, 35, (3, 3), 2, 1, [1, 1, 0, 2], 35),
    (80, 80, (3, 3), 1, 1, [1, 1, 1, 1], 80),  # 64 channels at once, and again those that end with the last
    (128, 128, (5, 5), 2, 1, [2, 2, 2, 2], 128),
    (16, 16, (3, 3), 1, 1, [1, 1, 1, 1], 16),  # four pixels at once
    (32, 32, (2, 3), 1, 2, [0, 1, 1, 0], 32),
    (64, 64, (9, 8), 1, 1, [4, 4, 4, 3], 64),  # more taps than are held at once
]


@pytest.mark.parametrize(("x_type", "w_type"), SIGNS)
@pytest.mark.parametrize(("inner", "outer", "kernel", "stride", "dilation", "pads", "group"), CONVOLUTIONS)
def test_convolutions(
    x_type: type,
    w_type: type,
    inner: int,
    outer: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    pads: list[int],
    group: int,
    tmp_path: Path,
) -> None:
    """The packed kernel in both layouts, and ONNX's operators."""
    rng = np.random.default_rng(outer)
    x, w = bytes_of(rng, x_type, 2, inner, 11, 13), bytes_of(rng, w_type, outer, inner // group, *kernel)
    bias = rng.integers(-999, 999, outer, dtype=np.int32)
    scale = rng.uniform(1e-5, 1e-3, outer).astype(np.float32)
    middle = 128 if w_type == U8 else 0
    exact = convolution(x.astype(np.int64) - 9, w.astype(np.int64) - middle, stride, dilation, pads, group)
    sums = exact + bias[:, None, None]
    own = np.arange(outer, dtype=np.int32) * 7 - 128  # zero points of the stored bytes
    of_own = np.broadcast_to(own[:, None, None, None], w.shape)
    shifted = exact - convolution(x.astype(np.int64) - 9, of_own, stride, dilation, pads, group)
    wanted = requantized(sums, scale[:, None, None], 4, U8)
    packing = "integer_depthwise16" if group > 1 else "integer_taps16" if dilation > 1 else "integer16"
    given: dict[str, Any] = {
        "kernel_shape": list(kernel),
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": pads,
    }
    table = rng.permutation(256).astype(U8)
    for near, far in product(("plain", "nhwc", "nhwc16"), repeat=2):
        node = Packed("IntegerConv", x, w, packing, near, far, **given)
        got = node.run(tmp_path, U8, x_type(9), None, bias, scale, None, U8(4), threads=2)
        assert np.array_equal(got, wanted)
        node = Packed("IntegerConv", x, w, packing, near, far, **given)
        got = node.run(tmp_path, U8, x_type(9), None, bias, scale, None, U8(4), table)
        assert np.array_equal(got, table[wanted])
        if group == 1:
            node = Packed("IntegerConv", x, w, packing, near, far, **given)
            got = node.run(tmp_path, U8, x_type(9), own, bias, scale, None, U8(4), threads=2)
            assert np.array_equal(got, requantized(shifted + bias[:, None, None], scale[:, None, None], 4, U8))
    node = Packed("IntegerConv", x, w, packing, **given)
    assert np.array_equal(node.run(tmp_path, np.int32, x_type(9), None, bias), sums)
    zeros = np.array(middle, w_type)
    plain = single(tmp_path, "ConvInteger", [x, w, x_type(9), zeros], np.int32, group=group, **given)
    assert np.array_equal(plain, exact)
    one = np.float32(1)
    inputs = [x, one, x_type(9), w, scale, zeros, one, U8(4), bias]
    assert np.array_equal(single(tmp_path, "QLinearConv", inputs, U8, group=group, **given), wanted)


def test_rectified_results_begin_at_the_zero_point(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = bytes_of(rng, U8, 9, 32), bytes_of(rng, I8, 32, 16)
    got = Packed("IntegerMatMul", a, b, "integer16", relu=1).run(
        tmp_path, U8, U8(100), None, None, np.float32(1e-3), None, U8(50)
    )
    sums = (a.astype(np.int64) - 100) @ b.astype(np.int64)
    assert np.array_equal(got, requantized(np.maximum(sums, 0), np.float32(1e-3), 50, U8))
    assert got.min() == 50


@pytest.mark.parametrize("level", others())
def test_other_instruction_sets(level: str) -> None:
    """Some of the sweeps where the process may use fewer instructions."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k"]
    command.append("packed_product or (convolutions and int8-uint8)")
    environment = {**os.environ, "OPFORGE_ISA": level}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert native().isa() != level
