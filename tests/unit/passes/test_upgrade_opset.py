"""Old models mean the same after the upgrade: opset 11 and 13 through a .bin, against ONNX Runtime on the original."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.errors import UnsupportedError

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


@pytest.mark.parametrize("opset", [0, 99])
def test_unknown_opsets(tmp_path: Path, opset):
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with pytest.raises(UnsupportedError, match=rf"opset is not known(.|\n)*opset 1 to \d+(.|\n)*got: {opset}"):
        of.compile(model, tmp_path / "model.bin")


def test_inputs_with_a_value_are_constants(tmp_path: Path):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "w")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", values, [values[0]], [weight])
    graph.output[0].name = "y"
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    assert of.compile(old, tmp_path / "old.bin").warnings == []
    session = of.Session(tmp_path / "old.bin")
    assert [i.name for i in session.inputs] == ["x"]
    np.testing.assert_array_equal(session.run({"x": np.ones(2, np.float32)})["y"], [3, 4])
    new = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8)
    assert of.compile(new, tmp_path / "new.bin").warnings == ["inputs with a default are constants of the .bin: w"]


def test_bodies_of_another_opset(tmp_path: Path):
    # The body flattens for its softmax, as opset 11 does; the model is of opset 17.
    body = helper.make_function(
        "local",
        "Flat",
        ["a"],
        ["b"],
        [helper.make_node("Softmax", ["a"], ["b"], axis=1)],
        [helper.make_opsetid("", 11)],
    )
    graph = helper.make_graph(
        [helper.make_node("Flat", ["x"], ["f"], domain="local"), helper.make_node("Softmax", ["f"], ["y"], axis=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    of.compile(helper.make_model(graph, opset_imports=imports, functions=[body]), tmp_path / "model.bin")
    flat = np.exp(X) / np.exp(X).sum((1, 2), keepdims=True)
    expected = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    got = of.Session(tmp_path / "model.bin").run({"x": X})["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
