"""Half-precision models: what is computed is rounded node by node, and weights stay half."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.compiler.graphs import FLOAT, compiled, model, native, node, ops
from tests.unit.compiler.program_reference import Runner

RNG = np.random.default_rng(12)
TYPES = [(TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)]


def _layer():
    w, b = RNG.standard_normal((24, 40)) * 0.2, RNG.standard_normal(40)
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Gelu", "a", "g"), node("Softmax", "g", "y")]
    return nodes, {"w": w, "b": b}


@pytest.mark.parametrize(("dtype", "numpy"), TYPES)
def test_computed_wide_and_rounded_once(dtype, numpy):
    nodes, constants = _layer()
    constants = {k: v.astype(numpy) for k, v in constants.items()}
    x = RNG.standard_normal((3, 24)).astype(numpy)
    program, report = compiled(model(nodes, {"x": ["N", 24]}, constants, dtype=dtype))
    assert ops(program) == ["Cast", "MatMul", "Softmax", "Cast"]
    assert [line.split(":")[1].split()[0] for line in report.conversions] == ["MatMul", "Softmax"]
    wide = np.float32
    m = (x.astype(wide) @ constants["w"].astype(wide)).astype(numpy)
    a = (m.astype(wide) + constants["b"].astype(wide)).astype(numpy).astype(np.float64)
    from math import erf, sqrt

    g = np.vectorize(lambda v: v * 0.5 * (1 + erf(v / sqrt(2))))(a).astype(numpy).astype(np.float64)
    e = np.exp(g - g.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True)).astype(numpy).astype(np.float64)
    for got in (Runner(program).run({"x": x}), native(program, {"x": x})):
        assert got["y"].dtype == numpy
        step = 2.0**-7 if dtype == TensorProto.BFLOAT16 else 2.0**-10
        np.testing.assert_allclose(got["y"].astype(np.float64), want, rtol=2 * step, atol=1e-4)


def test_moving_data_needs_no_conversion():
    nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("Reshape", "t s", "r"), node("Neg", "r", "y")]
    x = RNG.standard_normal((3, 4)).astype(np.float16)
    program, report = compiled(model(nodes, {"x": [3, 4]}, {"s": np.array([2, 6])}, dtype=TensorProto.FLOAT16))
    assert report.conversions == []
    assert (native(program, {"x": x})["y"] == -x.T.reshape(2, 6)).all()


def test_conversions_between_wide_nodes_stay():
    """Two products in a row round in between, as the model says."""
    w = RNG.standard_normal((8, 8)).astype(np.float16)
    nodes = [node("MatMul", "x w", "m"), node("MatMul", "m w", "y")]
    program, _ = compiled(model(nodes, {"x": ["N", 8]}, {"w": w}, dtype=TensorProto.FLOAT16))
    assert ops(program) == ["Cast", "MatMul", "MatMul", "Cast"]
    assert "epilogue" in program.graphs[0].nodes[1].attributes


def _eighths(*shape: int, most: int = 16) -> np.ndarray:
    """Multiples of 1/8: sums of their products are exact in float32, so that only the roundings decide."""
    return RNG.integers(-most, most + 1, shape) / 8


def _conv(x, w, pad, dtype):
    """One rounding of the exact sum."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwyx,ocyx->nohw", windows, w.astype(np.float64)).astype(np.float32).astype(dtype)


@pytest.mark.parametrize(("dtype", "numpy"), TYPES)
def test_a_residual_network_rounds_node_by_node(dtype, numpy):
    """Convolutions, scales, a residual, pooling and products give NumPy's half types bit by bit, in one pass each."""
    given = {
        "x": (2, 3, 9, 9),
        "w1": (24, 3, 3, 3),
        "s": (24, 1, 1),
        "w2": (24, 24, 1, 1),
        "w3": (24, 1, 3, 3),
        "m": (24, 40),
        "c": (40,),
        "d": (40,),
    }
    v = {name: _eighths(*shape).astype(numpy) for name, shape in given.items()}
    nodes = [
        node("Conv", "x w1", "a", kernel_shape=[3, 3], pads=[1] * 4),
        node("Mul", "a s", "b"),
        node("Relu", "b", "r"),
        node("Conv", "r w2", "e", kernel_shape=[1, 1]),
        node("Add", "e r", "f"),
        node("Conv", "f w3", "g", kernel_shape=[3, 3], pads=[1] * 4, group=24),
        node("MaxPool", "g", "h", kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", "h", "t", perm=[0, 2, 3, 1]),
        node("MatMul", "t m", "p"),
        node("Add", "p c", "q"),
        node("Mul", "q d", "u"),
        node("Max", "u q", "y"),
    ]
    x = v.pop("x")
    program, _ = compiled(model(nodes, {"x": ["N", 3, 9, 9]}, v, dtype=dtype))
    kinds = ops(program)
    assert kinds.count("Conv") == 3
    assert "Formula" not in kinds[1:-1]
    assert kinds.count("Cast") <= 2  # the input and the output
    r = np.maximum(_conv(x, v["w1"], 1, numpy) * v["s"], numpy(0))
    f = _conv(r, v["w2"], 0, numpy) + r
    g = np.stack([_conv(f[:, c : c + 1], v["w3"][c : c + 1], 1, numpy)[:, 0] for c in range(24)], axis=1)
    h = g[:, :, :8, :8].reshape(2, 24, 4, 2, 4, 2).max(axis=(3, 5))
    p = (h.transpose(0, 2, 3, 1).astype(np.float64) @ v["m"].astype(np.float64)).astype(np.float32).astype(numpy)
    q = p + v["c"]
    want = np.maximum(q * v["d"], q)
    assert np.isfinite(want.astype(np.float32)).all()
    for got in (Runner(program).run({"x": x}), native(program, {"x": x})):
        assert got["y"].dtype == numpy
        assert np.array_equal(got["y"], want)


def test_batch_normalisation_rounds_once():
    c = 16
    v = {n: RNG.uniform(0.5, 2, c).astype(np.float16) for n in "sbmv"}
    x = RNG.standard_normal((1, c, 5, 5)).astype(np.float16)
    proto = model([node("BatchNormalization", "x s b m v", "y")], {"x": [1, c, 5, 5]}, v, dtype=TensorProto.FLOAT16)
    program, _ = compiled(proto)
    wide = {n: a.astype(np.float64).reshape(-1, 1, 1) for n, a in v.items()}
    want = (x.astype(np.float64) - wide["m"]) / np.sqrt(wide["v"] + 1e-5) * wide["s"] + wide["b"]
    got = native(program, {"x": x})["y"].astype(np.float64)
    assert (np.abs(got - want) <= np.spacing(np.abs(want).astype(np.float16)).astype(np.float64) * 0.5001 + 1e-6).all()


def test_embeddings_and_caches_stay_half():
    """What only moves values of inputs and constants is not widened; what follows reads them where they lie."""
    table = RNG.standard_normal((50, 8)).astype(np.float16)
    w = _eighths(8, 8).astype(np.float16)
    nodes = [
        node("Gather", "table ids", "e"),
        node("Add", "e e", "d"),
        node("MatMul", "d w", "k"),
        node("Concat", "past k", "y", axis=0),
    ]
    half = TensorProto.FLOAT16
    proto = model(nodes, {"ids": (TensorProto.INT64, [3]), "past": [4, 8]}, {"table": table, "w": w}, dtype=half)
    program, _ = compiled(proto)
    types = {n.op: program.values[n.outputs[0]].dtype for n in program.graphs[0].nodes}
    assert types["Gather"] == types["Concat"] == half
    assert ops(program).count("Formula") == 1
    ids, past = np.array([1, 4, 49]), RNG.standard_normal((4, 8)).astype(np.float16)
    e = table[ids] + table[ids]
    k = (e.astype(np.float64) @ w.astype(np.float64)).astype(np.float32).astype(np.float16)
    got = native(program, {"ids": ids, "past": past})["y"]
    np.testing.assert_allclose(got.astype(np.float32), np.concatenate([past, k]).astype(np.float32), rtol=1e-3)


def _of_type(numpy, *shape):
    """Weights that this half type holds and, of bf16, the other does not."""
    data = RNG.standard_normal(shape) / 8
    if numpy is not np.float16:
        data.reshape(-1)[::3] *= 2.0**-30
    return data.astype(numpy).astype(np.float32)


def _wide(program):
    """The same program with weights in float32."""
    for value in program.values:
        if value.packing and value.dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            value.dtype, value.data = FLOAT, np.asarray(value.data).astype(np.float32)
    return program


@pytest.mark.parametrize(("dtype", "numpy"), TYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_half_weights_give_the_bits_of_the_same_numbers_in_f32(dtype, numpy, batch):
    shapes = {
        "first": (72, 3, 5, 5),
        "direct": (88, 72, 3, 3),
        "wide": (176, 88, 1, 1),
        "depthwise": (176, 1, 5, 5),
        "groups": (176, 16, 3, 3),
    }
    weights = {k: _of_type(numpy, *s) for k, s in shapes.items()}
    nodes = [
        node("Conv", "x first", "a", kernel_shape=[5, 5], pads=[2] * 4, strides=[2, 2]),
        node("Conv", "a direct", "b", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
        node("Conv", "b wide", "c", kernel_shape=[1, 1]),
        node("Conv", "c depthwise", "d", kernel_shape=[5, 5], pads=[2] * 4, group=176),
        node("Conv", "d groups", "e", kernel_shape=[3, 3], pads=[1] * 4, group=11),
        node("Transpose", "e", "y", perm=[0, 2, 3, 1]),
    ]
    x = RNG.standard_normal((batch, 3, 21, 23)).astype(np.float32)
    program, _ = compiled(model(nodes, {"x": ["N", 3, 21, 23]}, weights))
    large = [v for v in program.values if v.packing and np.asarray(v.data).size >= 4096]
    assert len(large) == 5
    assert {v.dtype for v in large} == {dtype}
    narrow = native(program, {"x": x})["y"]
    assert np.array_equal(narrow, native(_wide(program), {"x": x})["y"])
    assert np.abs(narrow).max() > 0.1


@pytest.mark.parametrize(("dtype", "numpy"), TYPES)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch", [1, 3])
def test_half_weights_of_recurrent_cells(dtype, numpy, kind, batch):
    gates, hidden, inputs = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 72, 60
    constants = {k: _of_type(numpy, 2, gates * hidden, n) for k, n in (("w", inputs), ("r", hidden))}
    nodes = [node(kind, "x w r", "y", hidden_size=hidden, direction="bidirectional")]
    x = RNG.standard_normal((5, batch, inputs)).astype(np.float32)
    program, _ = compiled(model(nodes, {"x": [5, "N", inputs]}, constants))
    assert {v.dtype for v in program.values if v.packing} == {dtype}
    narrow = native(program, {"x": x})["y"]
    assert np.array_equal(narrow, native(_wide(program), {"x": x})["y"])


def test_precision_keeps_what_would_overflow():
    weights = {"w": RNG.standard_normal((64, 64)).astype(np.float32)}
    weights["w"][0, 0] = 1e6
    program, report = compiled(model([node("MatMul", "x w", "y")], {"x": ["N", 64]}, weights), precision="f16")
    assert [v.dtype for v in program.values if v.packing] == [FLOAT]
    assert report.conversions == ["kept f32, f16 would overflow: w"]


@pytest.mark.filterwarnings("error")
def test_precision_says_how_far_weights_beside_infinities_moved():
    weights = {"w": np.full((64, 64), 1 + 2.0**-11, np.float32)}
    weights["w"][0, :2] = np.inf, np.nan
    program, report = compiled(model([node("MatMul", "x w", "y")], {"x": ["N", 64]}, weights), precision="f16")
    assert [v.dtype for v in program.values if v.packing] == [TensorProto.FLOAT16]
    assert "error 4.9e-04 of a tensor's largest element, 4.9e-04 root mean square" in report.conversions[0]


@pytest.mark.parametrize(("precision", "operands"), [("bf16", 1), ("f16", None)])
def test_precision_of_products(precision, operands):
    """bf16 rounds both operands of large products, bias and epilogue behind them; f16 only stores; small ones stay."""
    v = {"w": RNG.standard_normal((72, 64)) / 8, "b": RNG.standard_normal(64), "s": RNG.standard_normal((64, 9))}
    v = {name: data.astype(np.float32) for name, data in v.items()}
    nodes = [node("Gemm", "x w b", "g"), node("Tanh", "g", "t"), node("MatMul", "t s", "y")]
    program, _ = compiled(model(nodes, {"x": ["N", 72]}, v), precision=precision)
    assert [n.attributes.get("bf16_operands") for n in program.graphs[0].nodes] == [operands, None]
    x = RNG.standard_normal((5, 72)).astype(np.float32)
    kind = ml_dtypes.bfloat16 if operands else np.float16
    given = (x.astype(kind) if operands else x).astype(np.float64)
    want = np.tanh(given @ v["w"].astype(kind).astype(np.float64) + v["b"]) @ v["s"]
    np.testing.assert_allclose(native(program, {"x": x})["y"], want, rtol=1e-5, atol=2e-5)


def test_precision_rounds_weights_of_convolutions():
    weights = {"w": RNG.standard_normal((160, 160, 3, 3)).astype(np.float32)}
    proto = model([node("Conv", "x w", "y", kernel_shape=[3, 3], pads=[1] * 4)], {"x": [1, 160, 14, 14]}, weights)
    program, report = compiled(proto, precision="f16")
    conv = next(n for n in program.graphs[0].nodes if n.op == "Conv")
    assert conv.attributes["algorithm"] == "direct"  # Winograd's weights would be eight times as large
    assert program.values[conv.inputs[1]].dtype == TensorProto.FLOAT16
    assert "weights f32 -> f16: 1 tensors, 0.92 MB -> 0.46 MB" in report.conversions[0]


def test_precision_says_where_it_changes_nothing():
    proto = model([node("MatMul", "x w", "y")], {"x": ["N", 8]}, {"w": np.full((8, 8), 0.1, np.float32)})
    _, report = compiled(proto, precision="bf16")
    assert report.conversions == ["weights stay as they are: no product of f32 has 4096 of them that bf16 could hold"]
