"""Small models whose figures are known by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import opforge as of

FLOAT = onnx.TensorProto.FLOAT


def constant(name: str, *shape: int) -> onnx.TensorProto:
    data = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return onnx.numpy_helper.from_array(data, name)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int | str]], outputs: list[str], *constants: onnx.TensorProto
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def mlp() -> onnx.ModelProto:
    """``[N, 8] -> 16, Relu -> 4``: two products, one of which takes the Relu."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1"),
        helper.make_node("Relu", ["h"], ["hidden"], name="act"),
        helper.make_node("MatMul", ["hidden", "w2"], ["y"], name="fc2"),
    ]
    constants = (constant("w1", 8, 16), constant("b1", 16), constant("w2", 16, 4))
    return model(nodes, {"x": ["N", 8]}, ["y"], *constants)


def mlp_bin(folder: Path) -> Path:
    of.compile(mlp(), folder / "mlp.bin")
    return folder / "mlp.bin"


def convolutions() -> onnx.ModelProto:
    """Two convolutions of 64 channels over ``[N, 3, 64, 64]``: enough to run a few images at a time."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu2"),
    ]
    return model(nodes, {"x": ["N", 3, 64, 64]}, ["y"], constant("w1", 64, 3, 3, 3), constant("w2", 64, 64, 3, 3))


def loop() -> onnx.ModelProto:
    """Five times ``x -> Softmax(x)`` in a Loop."""
    body = helper.make_graph(
        [
            helper.make_node("Softmax", ["v"], ["w"], name="soft"),
            helper.make_node("Identity", ["c"], ["d"], name="keep"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, ["N", 64]),
        ],
        [
            helper.make_tensor_value_info("d", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, ["N", 64]),
        ],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], name="loop", body=body)]
    return model(nodes, {"x": ["N", 64]}, ["y"], onnx.numpy_helper.from_array(np.array(5, np.int64), "count"))
