"""Operators of ONNX Runtime's quantiser (QOperator format) run by bodies; against ONNX Runtime where it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import opforge as of
from opforge.errors import MissingOperatorError

ort = pytest.importorskip("onnxruntime")

F32, U8, I8 = np.float32, np.uint8, np.int8
RNG = np.random.default_rng(5)
X = ["x", "xs", "xz"]
Y = ["ys", "yz"]
NUMBERS = {
    "xs": F32(0.021),
    "xz": U8(3),
    "bs": F32(0.0137),
    "bz": U8(100),
    "ys": F32(0.0309),
    "yz": U8(7),
    "b": RNG.integers(0, 256, (2, 8, 6, 5), U8),
}
SUMS: dict[str, Any] = {
    "w": RNG.integers(-127, 128, (10, 8), I8),
    "ws": RNG.uniform(0.003, 0.01, 10).astype(F32),
    "wz": np.zeros(10, I8),
    "c": RNG.integers(-999, 999, 10, np.int32),
    "rows": RNG.integers(-999, 999, (64, 10), np.int32),
}


def net(op: str, inputs: list[str], shape: list[int], output: int = T.UINT8, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, inputs, ["y"], domain="com.microsoft", **attributes)
    ends = [helper.make_tensor_value_info("x", T.UINT8, shape), helper.make_tensor_value_info("y", output, None)]
    constants = {k: v for k, v in (NUMBERS | SUMS).items() if k in inputs}
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], tensors)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


IMAGE, TABLE = [2, 8, 6, 5], [64, 8]
B = ["b", "bs", "bz"]
CASES: list[tuple[str, list[str], list[int], dict[str, Any]]] = [
    ("QLinearAdd", [*X, *B, *Y], IMAGE, {}),
    ("QLinearMul", [*X, *B, *Y], IMAGE, {}),
    ("QLinearSigmoid", [*X, *Y], IMAGE, {}),
    ("QLinearLeakyRelu", [*X, *Y], IMAGE, {"alpha": 0.2}),
    ("QLinearSoftmax", [*X, *Y], TABLE, {"axis": -1, "opset": 13}),
    ("QLinearSoftmax", [*X, *Y], IMAGE, {"axis": 2, "opset": 11}),
    ("QLinearAveragePool", [*X, *Y], IMAGE, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ("QLinearGlobalAveragePool", [*X, *Y], IMAGE, {"channels_last": 0}),
    ("QLinearConcat", [*Y, *X, *B], IMAGE, {"axis": 1}),
    ("QGemm", [*X, "w", "ws", "wz", "c", *Y], TABLE, {"transB": 1}),
    ("QGemm", [*X, "w", "ws", "wz", "c"], TABLE, {"transB": 1}),
    ("QGemm", [*X, "w", "ws", "wz", "rows", *Y], TABLE, {"transB": 1}),
]


@pytest.mark.parametrize(("op", "inputs", "shape", "attributes"), CASES)
def test_against_onnx_runtime(
    op: str, inputs: list[str], shape: list[int], attributes: dict[str, Any], tmp_path: Path
) -> None:
    floats = op == "QGemm" and "ys" not in inputs
    model = net(op, inputs, shape, T.FLOAT if floats else T.UINT8, **attributes)
    x = RNG.integers(0, 256, shape, U8)
    of.compile(model, tmp_path / "m.bin")
    [got] = of.Session(tmp_path / "m.bin").run({"x": x}).values()
    peer = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [wanted] = peer.run(None, {"x": x})
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if floats:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        return
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= 1
    # Runtime's tables and sums round differently close to ties, its softmax by more than that.
    assert (off > 0).mean() < (0.1 if op == "QLinearSoftmax" else 0.01)


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_without_a_zero_point_codes_have_the_type_of_the_input(op: str, tmp_path: Path) -> None:
    model = net(op, ["x", "xs", "", "ys", ""], [256], T.INT8)
    model.graph.input[0].type.tensor_type.elem_type = T.INT8
    x = np.arange(-128, 128, dtype=I8)
    of.compile(model, tmp_path / "m.bin")
    [got] = of.Session(tmp_path / "m.bin").run({"x": x}).values()
    peer = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [wanted] = peer.run(None, {"x": x})
    assert got.dtype == wanted.dtype == I8
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


def test_a_product_with_a_scale_alone_is_a_number(tmp_path: Path) -> None:
    whole = net("QGemm", [*X, "w", "ws", "wz", "c"], TABLE, T.FLOAT, transB=1)
    scaled = net("QGemm", [*X, "w", "ws", "wz", "c", "ys", ""], TABLE, T.FLOAT, transB=1)
    x = RNG.integers(0, 256, TABLE, U8)
    results = []
    for k, model in enumerate((whole, scaled)):
        of.compile(model, tmp_path / f"{k}.bin")
        results += of.Session(tmp_path / f"{k}.bin").run({"x": x}).values()
    assert results[0].dtype == results[1].dtype == F32
    assert np.array_equal(*results)


def test_channels_last_is_not_served(tmp_path: Path) -> None:
    model = net("QLinearGlobalAveragePool", [*X, *Y], [2, 6, 5, 8], channels_last=1)
    with pytest.raises(MissingOperatorError, match="QLinearGlobalAveragePool"):
        of.compile(model, tmp_path / "m.bin")
