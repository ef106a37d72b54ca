"""Old models mean the same after the upgrade: opset 11 and 13 through a .bin, against ONNX Runtime on the original."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import opforge as of

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 4, 5)).astype(np.float32)


def floats(*values):
    return helper.make_tensor("", TensorProto.FLOAT, [len(values)] if len(values) != 1 else [], values)


def ints(*values):
    return helper.make_tensor("", TensorProto.INT64, [len(values)], values)


NONE = helper.make_tensor("", TensorProto.FLOAT, [0], [])
DOUBLE = floats(1, 1, 2, 2)
PER_CHANNEL = [floats(1.0, 2.0) for _ in range(4)]

# operator, opset, input, constants, attributes
ROWS = [
    ("Softmax", 11, X, [], {"axis": 1}),  # over all axes from this one on
    ("LogSoftmax", 11, X, [], {"axis": 1}),
    ("Softmax", 11, X, [], {}),
    ("Squeeze", 11, X[:1], [], {"axes": [0]}),
    ("Unsqueeze", 11, X, [], {"axes": [0, 2]}),
    ("ReduceSum", 11, X, [], {"axes": [1], "keepdims": 0}),
    ("ReduceMean", 13, X, [], {"axes": [-1]}),
    ("ReduceL2", 11, X, [], {"axes": [1]}),
    ("Clip", 11, X, [floats(0.1)], {}),
    ("Pad", 11, X, [ints(0, 1, 0, 0, 0, 2)], {}),
    ("TopK", 11, X, [ints(2)], {"axis": 1}),
    ("Resize", 11, IMAGE, [NONE, DOUBLE], {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}),
    (
        "Resize",
        11,
        IMAGE,
        [NONE, DOUBLE],
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    ("BatchNormalization", 11, IMAGE, PER_CHANNEL, {}),
    ("MaxPool", 11, IMAGE, [], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("Dropout", 11, X, [], {"ratio": 0.5}),
    ("Dropout", 13, X, [floats(0.5)], {}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{len(row[4])}")
def test_same_result(tmp_path: Path, row):
    op, opset, x, constants, attributes = row
    names = [f"c{k}" for k in range(len(constants))]
    for name, constant in zip(names, constants, strict=True):
        constant.name = name
    second = ["indices"] if op == "TopK" else []
    nodes = [
        helper.make_node(op, ["x", *names], ["inner", *second], **attributes),
        helper.make_node("Abs", ["inner"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph(
        nodes, "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    expected = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    of.compile(model, tmp_path / "model.bin")
    got = of.Session(tmp_path / "model.bin").run({"x": x})["y"]
    np.testing.assert_allclose(got, expected[0], rtol=1e-5, atol=1e-6)
    assert got.shape == expected[0].shape
