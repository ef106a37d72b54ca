"""What the compiler makes of quantised graphs, and how far results may lie from the graph's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.bin.format import read

F32, U8, I8, I32 = np.float32, np.uint8, np.int8, np.int32
RNG = np.random.default_rng(3)


def model(text: str, inputs: dict[str, tuple[int, list[Any]]], output: int, **constants: Any) -> onnx.ModelProto:
    """``y = Op(a, b)`` lines with attributes behind a bar: ``y = Conv(x, w) | pads=[1, 1, 1, 1]``."""
    nodes = []
    for line in text.strip().splitlines():
        call, _, attributes = line.partition("|")
        outputs, right = call.split("=")
        op, arguments = right.strip().rstrip(")").split("(")
        names = ["" if a.strip() == "-" else a.strip() for a in arguments.split(",")]
        given = eval(f"dict({attributes})")
        nodes.append(helper.make_node(op.strip(), names, [o.strip() for o in outputs.split(",")], **given))
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    infos = [helper.make_tensor_value_info(k, *v) for k, v in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", output, None)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(net: onnx.ModelProto, folder: Path, **feeds: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the operators of the program, its result and the reference's."""
    path = folder / "m.bin"
    of.compile(net, path)
    [got] = of.Session(path).run(feeds).values()
    [wanted] = ReferenceEvaluator(net).run(None, feeds)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    return [n.op for n in read(path).program.graphs[0].nodes], got, wanted


def within_one_step(got: np.ndarray, wanted: np.ndarray, step: float = 1.0) -> None:
    """Ties of the graph's own float32 sums may fall to either side."""
    off = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    assert off.max() <= step * 1.0001
    assert (off > 0).mean() < 0.002


def symmetric(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape, I8)


K, N = 96, 40
MATRIX = {
    "w": symmetric(K, N),
    "ws": RNG.uniform(0.001, 0.01, N).astype(F32),
    "wz": np.zeros(N, I8),
    "xs": F32(0.02),
    "xz": U8(120),
    "b": RNG.normal(size=N).astype(F32),
    "ys": F32(0.05),
    "yz": U8(100),
}
QUANTISED_INPUT = """
xq = QuantizeLinear(x, xs, xz)
xd = DequantizeLinear(xq, xs, xz)
"""


@pytest.mark.parametrize("relu", [False, True])
def test_a_product_between_conversions(relu: bool, tmp_path: Path) -> None:
    text = f"""{QUANTISED_INPUT}
    wd = DequantizeLinear(w, ws, wz) | axis=1
    m = MatMul(xd, wd)
    a = Add(b, m)
    r = {"Relu" if relu else "Identity"}(a)
    yq = QuantizeLinear(r, ys, yz)
    y = DequantizeLinear(yq, ys, yz)"""
    net = model(text.replace("\n\n", "\n"), {"x": (T.FLOAT, ["B", "S", K])}, T.FLOAT, **MATRIX)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(2, 9, K)).astype(F32))
    assert operators == ["QuantizeLinear", "IntegerMatMul", "Formula"]
    within_one_step(got, wanted, 0.05)


def test_a_product_that_gives_floats(tmp_path: Path) -> None:
    text = f"""{QUANTISED_INPUT}
    wd = DequantizeLinear(w, ws, wz) | axis=1
    m = MatMul(xd, wd)
    a = Add(m, b)
    y = Sigmoid(a)"""
    net = model(text.replace("\n\n", "\n"), {"x": (T.FLOAT, ["B", K])}, T.FLOAT, **MATRIX)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(7, K)).astype(F32))
    assert operators == ["QuantizeLinear", "IntegerMatMul", "Formula"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_gemm_with_turned_weights_and_an_integer_bias(tmp_path: Path) -> None:
    text = f"""{QUANTISED_INPUT}
    wd = DequantizeLinear(w, ws, wz) | axis=0
    bd = DequantizeLinear(bq, bs)
    g = Gemm(xd, wd, bd) | transB=1
    y = QuantizeLinear(g, ys, yz)"""
    constants = {**MATRIX, "w": symmetric(N, K), "bq": RNG.integers(-999, 999, N, I32), "bs": F32(0.001)}
    net = model(text.replace("\n\n", "\n"), {"x": (T.FLOAT, ["B", K])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(7, K)).astype(F32))
    assert operators == ["QuantizeLinear", "IntegerMatMul"]
    within_one_step(got, wanted)


CHANNELS = RNG.uniform(0.001, 0.01, 24).astype(F32)
IMAGE = {
    "xs": F32(0.02),
    "xz": U8(120),
    "w": symmetric(24, 8, 3, 3),
    "ws": CHANNELS,
    "wz": np.zeros(24, I8),
    "bq": RNG.integers(-9999, 9999, 24, I32),
    "bs": F32(0.02) * CHANNELS,
    "bz": np.zeros(24, I32),
    "ys": F32(0.05),
    "yz": U8(0),
}


def test_convolutions_one_after_the_other(tmp_path: Path) -> None:
    """Dense, depthwise, dense; between them the channels of a pixel lie side by side."""
    text = f"""{QUANTISED_INPUT}
    wd = DequantizeLinear(w, ws, wz) | axis=0
    bd = DequantizeLinear(bq, bs, bz) | axis=0
    m = Conv(xd, wd, bd) | pads=[1, 1, 1, 1], kernel_shape=[3, 3]
    r = Relu(m)
    rq = QuantizeLinear(r, ys, yz)
    rd = DequantizeLinear(rq, ys, yz)
    vd = DequantizeLinear(v, vs, vz)
    n = Conv(rd, vd) | group=24, strides=[2, 2], kernel_shape=[3, 3]
    nq = QuantizeLinear(n, ys, zz)
    nd = DequantizeLinear(nq, ys, zz)
    ud = DequantizeLinear(u, vs)
    o = Conv(nd, ud) | kernel_shape=[1, 1]
    y = QuantizeLinear(o, ys, zz)"""
    more = {"v": symmetric(24, 1, 3, 3), "vs": F32(0.00437), "vz": I8(0), "u": symmetric(10, 24, 1, 1), "zz": U8(128)}
    net = model(text.replace("\n\n", "\n"), {"x": (T.FLOAT, ["B", 8, 20, 17])}, T.UINT8, **IMAGE, **more)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(2, 8, 20, 17)).astype(F32))
    assert operators == ["QuantizeLinear", "IntegerConv", "IntegerConv", "IntegerConv"]
    program = read(tmp_path / "m.bin").program
    kinds = [program.values[n.outputs[0]].layout.kind for n in program.graphs[0].nodes]
    assert kinds == ["plain", "nhwc16", "nhwc16", "plain"]
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= 2  # a step in one layer is at most a step in the next
    assert (off > 0).mean() < 0.005


@pytest.mark.parametrize("group", [1, 8])
def test_weights_with_a_zero_point_of_their_own(group: int, tmp_path: Path) -> None:
    text = f"""{QUANTISED_INPUT}
    wd = DequantizeLinear(w, ws, wz) | axis=0
    m = Conv(xd, wd) | kernel_shape=[3, 3], group={group}
    y = QuantizeLinear(m, ys, yz)"""
    outputs = 24 if group == 1 else 8
    constants = {**IMAGE, "w": symmetric(outputs, 8 // group, 3, 3), "ws": CHANNELS[:outputs]}
    constants["wz"] = np.full(outputs, 40, I8)
    net = model(text.replace("\n\n", "\n"), {"x": (T.FLOAT, [1, 8, 9, 9])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(1, 8, 9, 9)).astype(F32))
    assert operators == ["QuantizeLinear", "IntegerConv"]
    within_one_step(got, wanted)


@pytest.mark.parametrize("zero", [0, 3])
def test_dynamic_quantisation(zero: int, tmp_path: Path) -> None:
    text = """xq, xs, xz = DynamicQuantizeLinear(x)
    mi = MatMulInteger(xq, w, xz, wz)
    mf = Cast(mi) | to=1
    s = Mul(xs, ws)
    ms = Mul(mf, s)
    y = Add(ms, b)"""
    constants = {"w": MATRIX["w"], "wz": I8(zero), "ws": F32(0.004), "b": MATRIX["b"]}
    net = model(text, {"x": (T.FLOAT, ["B", "S", K])}, T.FLOAT, **constants)
    operators, got, wanted = run(net, tmp_path, x=RNG.normal(size=(2, 5, K)).astype(F32))
    assert operators == ["DynamicQuantizeLinear", "Formula", "IntegerMatMul"]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [(4,), ()])
def test_a_bias_that_adds_dimensions_stays_a_sum(rows: tuple[int, ...], tmp_path: Path) -> None:
    text = """mi = MatMulInteger(x, w)
    mf = Cast(mi) | to=1
    ms = Mul(mf, ws)
    y = Add(ms, b)"""
    bias = np.asarray(MATRIX["b"]).reshape(*[1] * (len(rows) + 1), -1)
    net = model(text, {"x": (T.UINT8, [*rows, K])}, T.FLOAT, w=MATRIX["w"], ws=F32(0.004), b=bias)
    _, got, wanted = run(net, tmp_path, x=RNG.integers(0, 256, (*rows, K), U8))
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def test_conversions_of_one_scale_fuse_with_their_neighbours(tmp_path: Path) -> None:
    text = """ad = DequantizeLinear(a, xs, xz)
    bd = DequantizeLinear(b, ys, yz)
    s = Add(ad, bd)
    r = Relu(s)
    y = QuantizeLinear(r, ys, zz)"""
    constants = {k: IMAGE[k] for k in ("xs", "xz", "ys", "yz")} | {"zz": U8(7)}
    net = model(text, {"a": (T.UINT8, ["B", 30]), "b": (T.UINT8, ["B", 30])}, T.UINT8, **constants)
    a, b = RNG.integers(0, 256, (2, 9, 30), U8)
    operators, got, wanted = run(net, tmp_path, a=a, b=b)
    assert operators == ["IntegerAdd"]
    assert np.array_equal(got, wanted)


def test_not_a_number_is_code_zero(tmp_path: Path) -> None:
    """As a kernel with a scale per channel, and as bytecode."""
    x = np.array([[np.nan, np.inf, -np.inf, 1.0]], F32)
    for scale, zero in ((F32(0.5), I8(3)), (np.full(4, 0.5, F32), np.full(4, 3, I8))):
        net = model("y = QuantizeLinear(x, s, z)", {"x": (T.FLOAT, [1, 4])}, T.INT8, s=scale, z=zero)
        of.compile(net, tmp_path / "m.bin")
        [got] = of.Session(tmp_path / "m.bin").run({"x": x}).values()
        assert got.tolist() == [[0, 127, -128, 5]]


@pytest.mark.parametrize("rows", [64, 4096])
def test_weights_of_four_bits_stay_small(rows: int, tmp_path: Path) -> None:
    w = RNG.integers(-8, 8, (rows, 512), I8).astype(ml_dtypes.int4)
    scale = RNG.uniform(0.01, 0.02, (rows // 32, 512)).astype(F32)
    text = """wd = DequantizeLinear(w, s) | axis=0, block_size=32
    y = MatMul(x, wd)"""
    net = model(text, {"x": (T.FLOAT, ["B", rows])}, T.FLOAT, w=w, s=scale)
    x = RNG.normal(size=(3, rows)).astype(F32)
    operators, got, wanted = run(net, tmp_path, x=x)
    assert operators == ["DequantizeMatMul"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert rows == 64 or (tmp_path / "m.bin").stat().st_size < 1.5 * (w.size / 2 + scale.nbytes)
