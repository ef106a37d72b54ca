"""Models that contradict themselves: an error that names the place, never a traceback or a wait without end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import opforge
from opforge.cli import main
from opforge.errors import ArgumentError, OpforgeError, UnsupportedError

FLOAT = TensorProto.FLOAT
VECTOR = [2]
IMAGE = [1, 3, 5, 5]


def model(
    nodes: Sequence[NodeProto],
    shape: list[int] = VECTOR,
    *,
    inputs: str = "x",
    outputs: str = "y",
    opset: int = 21,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name in inputs.split()]
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs.split()]
    tensors = [numpy_helper.from_array(data, name) for name, data in weights.items()]
    graph = helper.make_graph(list(nodes), "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


RELU = node("Relu", "x", "y")


def weight(change: Callable[[TensorProto], Any]) -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], w=np.ones(2, np.float32))
    change(made.graph.initializer[0])
    return made


def few_elements(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.float_data.append(1.0)


def convolution(**attributes: Any) -> onnx.ModelProto:
    return model([node("Conv", "x w", "y", **attributes)], IMAGE, w=np.ones((4, 3, 3, 3), np.float32))


def dequantised(scales: int, axis: int) -> onnx.ModelProto:
    nodes = [node("DequantizeLinear", "w s", "c", axis=axis), node("MatMul", "x c", "y")]
    return model(nodes, [2, 4], w=np.ones((4, 3), np.int8), s=np.ones(scales, np.float32))


def function_of_itself() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    body = [helper.make_node("again", ["a"], ["b"], domain="f")]
    made = model([helper.make_node("again", ["x"], ["y"], domain="f")])
    made.functions.append(helper.make_function("f", "again", ["a"], ["b"], body, imports))
    made.opset_import.append(imports[1])
    return made


def branches(*, other: str | None) -> onnx.ModelProto:
    """If without its other branch, or with one that gives another type."""
    graphs = {}
    for name, dtype in (("then_branch", "FLOAT"), ("else_branch", other)):
        if dtype is not None:
            number = TensorProto.DataType.Value(dtype)
            made = helper.make_tensor_value_info(name, number, VECTOR)
            graphs[name] = helper.make_graph([node("Cast", "x", name, to=number)], name, [], [made])
    return model([node("Less", "x x", "l"), node("ReduceMax", "l", "c", keepdims=0), node("If", "c", "y", **graphs)])


CASES: dict[str, tuple[onnx.ModelProto, type[OpforgeError], str]] = {
    "cycle": (
        model([node("Add", "x z", "y"), node("Relu", "y", "z")]),
        ArgumentError,
        r"^node '[yz]' .*: nodes wait for each other's results",
    ),
    "two inputs of one name": (model([RELU], inputs="x x"), ArgumentError, "inputs of one name.*\n.*\n.*'x' more than"),
    "two outputs of one name": (model([RELU], outputs="y y"), ArgumentError, "outputs of one name"),
    "a name made twice": (model([RELU, node("Neg", "x", "y")]), ArgumentError, "'y' is redeclared"),
    "an output of nobody": (model([RELU], outputs="z"), ArgumentError, "^output 'z': the model gives a value that"),
    "few bytes": (
        weight(lambda t: setattr(t, "raw_data", b"123")),
        ArgumentError,
        r"^initializer 'w': a tensor has not the bytes of its shape\n.*8 bytes for FLOAT \[2\]\n.*3 bytes",
    ),
    "few elements": (weight(few_elements), ArgumentError, "^initializer 'w': a tensor has not the elements"),
    "a negative dimension": (weight(lambda t: t.dims.__setitem__(0, -2)), ArgumentError, "negative dimension"),
    "an unknown dtype": (weight(lambda t: setattr(t, "data_type", 77)), ArgumentError, "77 is not a valid DataType"),
    "no dtype": (
        weight(lambda t: setattr(t, "data_type", 0)),
        ArgumentError,
        "^initializer 'w': a tensor has no dtype\n.*\n  got: UNDEFINED",
    ),
    "no groups": (convolution(group=0), ArgumentError, r"^node 0 Conv \(output 'y'\)"),
    "another kernel": (convolution(kernel_shape=[5, 5]), ArgumentError, r"^node 0 Conv \(output 'y'\)"),
    "scales of another axis": (dequantised(3, 9), ArgumentError, "DequantizeLinear.*the scale is neither"),
    "too many scales": (dequantised(7, 1), ArgumentError, "DequantizeLinear.*the scale is neither"),
    "a branch too few": (branches(other=None), ArgumentError, r"^node 'y' \(If\): a branch is missing\n.*else_branch"),
    "branches of two types": (
        branches(other="INT64"),
        ArgumentError,
        "^node 'y' .If., output 'y': the branches give values of different types",
    ),
    "a function of itself": (function_of_itself(), UnsupportedError, "^function f::again: a function calls itself"),
    "an attribute of another kind": (
        model([node("Clip", "x", "y", min="a")], opset=9),
        ArgumentError,
        r"^node 'y' \(Clip\): the node is not as its operator set has it\n.*Clip in opset 9",
    ),
    "an attribute too few": (model([node("Slice", "x", "y", starts=[0])], opset=9), ArgumentError, "Slice in opset 9"),
}


@pytest.mark.parametrize("name", CASES)
def test_is_refused(name: str, tmp_path: Path) -> None:
    made, kind, words = CASES[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    for source in (made, path):
        with pytest.raises(kind) as caught:
            opforge.compile(source, tmp_path / "model.bin")
        text = str(caught.value)
        assert re.search(words, text, re.MULTILINE), text
        assert "opforge-plan" not in text  # the place of the compiler's own draft
    assert not (tmp_path / "model.bin").exists()


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    opforge.compile(model([node("Relu", "a", "y"), node("Neg", "x", "a")]), tmp_path / "model.bin")
    [y] = opforge.Session(tmp_path / "model.bin").run({"x": np.array([-1, 2], np.float32)}).values()
    assert y.tolist() == [1, 0]


def test_names_that_nothing_gives_are_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match="reads a value that nothing gives"):
        opforge.compile(model([node("Relu", "q", "y")]), tmp_path / "model.bin")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["cycle", "an output of nobody", "a name made twice", "few bytes", "a function of itself"]
)
def test_is_refused_by_what_rewrites_models(name: str) -> None:
    made, kind, words = CASES[name]
    for rewrite in (opforge.onnx.simplify, opforge.onnx.raise_formulas, opforge.onnx.inline_functions):
        with pytest.raises(kind, match=re.compile(words, re.MULTILINE)):
            rewrite(made)


def test_missing_weights_are_said_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = (made := weight(lambda t: t.ClearField("raw_data"))).graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nothing.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["simplify", str(path), "-o", str(tmp_path / "out.onnx")]) == 2
    said = capsys.readouterr().err
    assert "a file of this model cannot be read" in said
    assert "nothing.bin" in said
