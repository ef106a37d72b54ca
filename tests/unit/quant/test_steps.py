"""Steps between quantised layers on bytes: equal to the graph's own f32 words, bit for bit where these are exact."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T

from opforge.bin.format import read
from tests.unit.quant.test_fusion import F32, I8, RNG, U8, model, run

KINDS = {U8: T.UINT8, I8: T.INT8}


def scales(a: type, b: type, y: type) -> dict[str, Any]:
    return {
        "as": F32(0.021),
        "az": a(3),
        "bs": F32(0.0137),
        "bz": b(100),
        "ys": F32(0.0309),
        "yz": y(7),
    }


def codes(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape, dtype)


def every_pair(a: type, b: type) -> tuple[np.ndarray, np.ndarray]:
    """All 65536 pairs of codes."""
    whole = np.arange(256, dtype=U8)
    return np.repeat(whole, 256).view(a).reshape(256, 256), np.tile(whole, 256).view(b).reshape(256, 256)


@pytest.mark.parametrize(("a", "b", "y"), list(product((U8, I8), (U8, I8), (U8, I8))))
@pytest.mark.parametrize("step", ["Add(p, q)", "Mul(p, q)"])
def test_every_sum_and_product_of_two_codes(step: str, a: type, b: type, y: type, tmp_path: Path) -> None:
    text = f"""p = DequantizeLinear(a, as, az)
    q = DequantizeLinear(b, bs, bz)
    s = {step}
    y = QuantizeLinear(s, ys, yz)"""
    constants = scales(a, b, y)
    net = model(text, {"a": (KINDS[a], [256, 256]), "b": (KINDS[b], [256, 256])}, KINDS[y], **constants)
    left, right = every_pair(a, b)
    operators, got, wanted = run(net, tmp_path, a=left, b=right)
    assert operators == [f"Integer{step[:3]}"]
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("scale", [0.5, 1.0, 0.25])
def test_sums_that_lie_on_ties(scale: float, tmp_path: Path) -> None:
    """Whole scales: half of all sums lie in the middle between two codes, and go to the even one."""
    text = """p = DequantizeLinear(a, as, az)
    q = DequantizeLinear(b, bs, bz)
    s = Add(p, q)
    y = QuantizeLinear(s, ys, yz)"""
    constants = {**scales(U8, U8, U8), "as": F32(scale), "bs": F32(scale), "ys": F32(2 * scale)}
    left, right = every_pair(U8, U8)
    net = model(text, {"a": (T.UINT8, ["N", "M"]), "b": (T.UINT8, ["N", "M"])}, T.UINT8, **constants)
    _, got, wanted = run(net, tmp_path, a=left, b=right)
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(
    "step",
    ["Relu(p)", "HardSwish(p)", "Sigmoid(p)", "Tanh(p)", "Mul(p, p)", "LeakyRelu(p) | alpha=0.3", "Clip(p, lo, hi)"],
)
@pytest.mark.parametrize(("a", "y"), list(product((U8, I8), (U8, I8))))
def test_functions_of_one_tensor_are_tables(step: str, a: type, y: type, tmp_path: Path) -> None:
    text = f"""p = DequantizeLinear(a, as, az)
    s = {step}
    y = QuantizeLinear(s, ys, yz)"""
    constants = {**scales(a, a, y), "lo": F32(-0.3), "hi": F32(1.7)}
    net = model(text, {"a": (KINDS[a], [256])}, KINDS[y], **constants)
    operators, got, wanted = run(net, tmp_path, a=np.arange(256, dtype=U8).view(a))
    assert operators == ["IntegerTable"]
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= (0 if step[:3] in ("Rel", "Mul", "Lea", "Cli") else 1)
    assert (off > 0).mean() < 0.01


@pytest.mark.parametrize(("half", "factor"), [(T.FLOAT16, 1000), (T.BFLOAT16, 100)])
def test_tables_round_to_half_types_where_the_model_does(half: int, factor: float, tmp_path: Path) -> None:
    """What a conversion takes away from each number, made large enough to be seen."""
    text = f"""p = DequantizeLinear(a, as, az)
    h = Cast(p) | to={half}
    w = Cast(h) | to={T.FLOAT}
    e = Sub(p, w)
    s = Mul(e, f)
    y = QuantizeLinear(s, ys, yz)"""
    constants = {**scales(U8, U8, U8), "f": F32(factor), "yz": U8(128)}
    net = model(text, {"a": (T.UINT8, [256])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, a=np.arange(256, dtype=U8))
    assert operators == ["IntegerTable"]
    assert np.ptp(wanted) > 50
    assert np.array_equal(got, wanted)


def test_a_chain_of_tables_is_one(tmp_path: Path) -> None:
    """``x * quantised(hardsigmoid(x))``, as converters write HardSwish, and what follows it."""
    text = """p = DequantizeLinear(a, as, az)
    g = HardSigmoid(p)
    gq = QuantizeLinear(g, gs, gz)
    gd = DequantizeLinear(gq, gs, gz)
    m = Mul(p, gd)
    mq = QuantizeLinear(m, ys, yz)
    md = DequantizeLinear(mq, ys, yz)
    r = Relu(md)
    y = QuantizeLinear(r, ys, yz)"""
    constants = {**scales(U8, U8, U8), "gs": F32(1 / 255), "gz": U8(0)}
    net = model(text, {"a": (T.UINT8, ["N", 256])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, a=np.arange(256, dtype=U8).reshape(1, 256))
    assert operators == ["IntegerTable"]
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("relu", [False, True])
def test_a_sum_that_is_clipped(dtype: type, relu: bool, tmp_path: Path) -> None:
    text = f"""p = DequantizeLinear(a, as, az)
    q = DequantizeLinear(b, bs, bz)
    s = Add(p, q)
    c = {"Relu(s)" if relu else "Clip(s, lo, hi)"}
    y = QuantizeLinear(c, ys, yz)"""
    constants = {**scales(dtype, dtype, dtype), "lo": F32(-0.5), "hi": F32(1.25)}
    left, right = every_pair(dtype, dtype)
    net = model(text, {"a": (KINDS[dtype], ["N", "M"]), "b": (KINDS[dtype], ["N", "M"])}, KINDS[dtype], **constants)
    operators, got, wanted = run(net, tmp_path, a=left, b=right)
    assert operators == ["IntegerAdd"]
    assert np.array_equal(got, wanted)


def layouts(folder: Path) -> list[str]:
    program = read(folder / "m.bin").program
    return [program.values[n.outputs[0]].layout.kind for n in program.graphs[0].nodes]


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize(("channels", "kind"), [(16, "nhwc"), (20, "nhwc16"), (3, "nhwc"), (35, "nhwc16")])
@pytest.mark.parametrize(
    "window",
    [
        "MaxPool(p) | kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]",
        "MaxPool(p) | kernel_shape=[2, 3], ceil_mode=1, dilations=[2, 1], strides=[2, 3]",
        "AveragePool(p) | kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]",
        "AveragePool(p) | kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1",
        "GlobalAveragePool(p)",
        "ReduceMean(p, axes)",
    ],
)
def test_pools(window: str, channels: int, kind: str, dtype: type, tmp_path: Path) -> None:
    text = f"""p = DequantizeLinear(a, as, az)
    s = {window}
    y = QuantizeLinear(s, ys, yz)"""
    largest = window.startswith("Max")
    constants = scales(dtype, dtype, dtype) | {"axes": np.array([-1, 2])}
    net = model(text, {"a": (KINDS[dtype], ["N", channels, 9, 11])}, KINDS[dtype], **constants)
    operators, got, wanted = run(net, tmp_path, a=codes(dtype, 2, channels, 9, 11))
    assert operators == ["Reorder", "IntegerPool", *(["IntegerTable"] if largest else []), "Reorder"]
    assert layouts(tmp_path) == [kind, kind, *([kind] if largest else []), "plain"]
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= (0 if largest else 1)  # an average's own f32 sum may fall to the other side of a tie
    assert (off > 0).mean() < 0.01


def test_long_sums_of_a_whole_image(tmp_path: Path) -> None:
    """More taps than sixteen bits hold."""
    text = """p = DequantizeLinear(a, as, az)
    s = GlobalAveragePool(p)
    y = QuantizeLinear(s, as, az)"""
    net = model(text, {"a": (T.UINT8, [1, 17, 40, 40])}, T.UINT8, **scales(U8, U8, U8))
    a = np.full((1, 17, 40, 40), 255, U8)
    a[0, 3] = codes(U8, 40, 40)
    _, got, wanted = run(net, tmp_path, a=a)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
    assert got[0, 0, 0, 0] == 255


def test_moves_keep_bytes(tmp_path: Path) -> None:
    """Reshape, Transpose, Slice and Concat between conversions of several scales."""
    text = """p = DequantizeLinear(a, as, az)
    t = Transpose(p) | perm=[0, 2, 1]
    tq = QuantizeLinear(t, bs, bz)
    q = DequantizeLinear(tq, bs, bz)
    r = Reshape(q, shape)
    rq = QuantizeLinear(r, bs, bz)
    d = DequantizeLinear(rq, bs, bz)
    b2 = DequantizeLinear(b, as, az)
    c = Concat(d, b2) | axis=1
    y = QuantizeLinear(c, ys, yz)"""
    constants = scales(U8, U8, U8) | {"shape": np.array([0, -1])}
    net = model(text, {"a": (T.UINT8, ["N", 5, 6]), "b": (T.UINT8, ["N", 4])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, a=codes(U8, 3, 5, 6), b=codes(U8, 3, 4))
    assert "Formula" not in operators
    assert "DequantizeLinear" not in operators
    assert np.array_equal(got, wanted)


def test_a_step_with_other_readers_keeps_its_floats(tmp_path: Path) -> None:
    text = """p = DequantizeLinear(a, as, az)
    q = DequantizeLinear(b, bs, bz)
    s = Add(p, q)
    sq = QuantizeLinear(s, ys, yz)
    d = DequantizeLinear(sq, ys, yz)
    y = Sub(d, s)"""
    net = model(text, {"a": (T.UINT8, [40]), "b": (T.UINT8, [40])}, T.FLOAT, **scales(U8, U8, U8))
    operators, got, wanted = run(net, tmp_path, a=codes(U8, 40), b=codes(U8, 40))
    assert "IntegerAdd" not in operators
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_a_sum_and_what_follows_it_are_one_node(tmp_path: Path) -> None:
    text = """p = DequantizeLinear(a, as, az)
    q = DequantizeLinear(b, bs, bz)
    s = Add(p, q)
    sq = QuantizeLinear(s, ys, yz)
    d = DequantizeLinear(sq, ys, yz)
    h = HardSwish(d)
    y = QuantizeLinear(h, ys, az)"""
    left, right = every_pair(U8, U8)
    net = model(text, {"a": (T.UINT8, ["N", 256]), "b": (T.UINT8, ["N", 256])}, T.UINT8, **scales(U8, U8, U8))
    operators, got, wanted = run(net, tmp_path, a=left, b=right)
    assert operators == ["IntegerAdd"]
    assert np.array_equal(got, wanted)


BLOCK = """xq = QuantizeLinear(x, as, az)
xd = DequantizeLinear(xq, as, az)
wd = DequantizeLinear(w, ws)
c = Conv(xd, wd) | kernel_shape=[3, 3], pads=[1, 1, 1, 1]
cq = QuantizeLinear(c, bs, bz)
"""


def block(channels: int, *more: int) -> dict[str, Any]:
    """Constants of BLOCK, and of further 1x1 convolutions of it to so many channels."""
    made: dict[str, Any] = {"w": codes(I8, channels, 3, 3, 3), "ws": F32(0.004)}
    for k, outer in enumerate(more):
        made[f"v{k}"] = codes(I8, outer, channels, 1, 1)
    return {**scales(U8, U8, U8), **made, "gs": F32(1 / 255), "gz": U8(0)}


def image(rows: int = 2) -> np.ndarray:
    return RNG.normal(size=(rows, 3, 10, 9)).astype(F32)


@pytest.mark.parametrize(("channels", "kind"), [(16, "nhwc"), (24, "nhwc16")])
def test_channels_are_weighted_by_their_mean(channels: int, kind: str, tmp_path: Path) -> None:
    """A squeeze-and-excite block: the pool, the gate and its product work on bytes in the layout of the image."""
    text = f"""{BLOCK}p = DequantizeLinear(cq, bs, bz)
    g = GlobalAveragePool(p)
    gq = QuantizeLinear(g, ys, yz)
    gd = DequantizeLinear(gq, ys, yz)
    hs = HardSigmoid(gd)
    hq = QuantizeLinear(hs, gs, gz)
    hd = DequantizeLinear(hq, gs, gz)
    m = Mul(hd, p)
    y = QuantizeLinear(m, ys, yz)"""
    net = model(text, {"x": (T.FLOAT, ["N", 3, 10, 9])}, T.UINT8, **block(channels))
    operators, got, wanted = run(net, tmp_path, x=image())
    assert operators == ["QuantizeLinear", "IntegerConv", "IntegerPool", "IntegerTable", "IntegerMul", "Reorder"]
    assert layouts(tmp_path)[1:5] == [kind] * 4
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= 2
    assert (off > 0).mean() < 0.05  # a pooled code that falls to the other side moves a whole channel


def test_parts_of_a_concatenation_lie_where_they_are_made(tmp_path: Path) -> None:
    text = f"""{BLOCK}p = DequantizeLinear(cq, bs, bz)
    w0 = DequantizeLinear(v0, ws)
    w1 = DequantizeLinear(v1, ws)
    a0 = Conv(p, w0)
    a1 = Conv(p, w1)
    r1 = Relu(a1)
    q0 = QuantizeLinear(a0, ys, yz)
    q1 = QuantizeLinear(r1, bs, bz)
    d0 = DequantizeLinear(q0, ys, yz)
    d1 = DequantizeLinear(q1, bs, bz)
    c2 = Concat(d0, d1, d0) | axis=1
    y0 = QuantizeLinear(c2, ys, yz)
    d2 = DequantizeLinear(y0, ys, yz)
    g = GlobalAveragePool(d2)
    y = QuantizeLinear(g, ys, yz)"""
    net = model(text, {"x": (T.FLOAT, ["N", 3, 10, 9])}, T.UINT8, **block(24, 21, 11))
    operators, got, wanted = run(net, tmp_path, x=image())
    assert operators.count("ConcatChannels") == 1  # a part stands twice in it
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
    net = model(text.replace("d0, d1, d0", "d0, d1"), {"x": (T.FLOAT, ["N", 3, 10, 9])}, T.UINT8, **block(24, 21, 11))
    operators, got, wanted = run(net, tmp_path, x=image())
    assert operators == ["QuantizeLinear", *["IntegerConv"] * 3, "IntegerPool", "Reorder"]
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


def test_formulas_pass_the_layout_on(tmp_path: Path) -> None:
    """Factors per channel, and a convolution whose result is not quantised at once."""
    text = f"""{BLOCK}p = DequantizeLinear(cq, bs, bz)
    w0 = DequantizeLinear(v0, ws)
    a0 = Conv(p, w0)
    q0 = QuantizeLinear(a0, ys, yz)
    d0 = DequantizeLinear(q0, ys, yz)
    s = Mul(d0, k)
    t = Exp(s)
    tq = QuantizeLinear(t, bs, bz)
    td = DequantizeLinear(tq, bs, bz)
    w1 = DequantizeLinear(v1, ws)
    a1 = Conv(td, w1)
    a2 = Mul(a1, h)
    a3 = Softplus(a2)
    q3 = QuantizeLinear(a3, ys, yz)
    d3 = DequantizeLinear(q3, ys, yz)
    g = GlobalAveragePool(d3)
    y = QuantizeLinear(g, ys, yz)"""
    constants = block(32, 32, 16) | {"k": RNG.uniform(0.5, 1, (32, 1, 1)).astype(F32), "h": F32(0.25)}
    net = model(text, {"x": (T.FLOAT, ["N", 3, 10, 9])}, T.UINT8, **constants)
    operators, got, wanted = run(net, tmp_path, x=image())
    convolution = ["IntegerConv"]
    assert operators == [
        "QuantizeLinear",
        *convolution * 2,
        "Formula",
        *convolution,
        "Formula",
        "IntegerPool",
        "Reorder",
    ]
    assert layouts(tmp_path)[1:-1] == ["nhwc"] * 6
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 2
