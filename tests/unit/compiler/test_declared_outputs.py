"""What a model says of its outputs must be what its nodes give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import opforge as of
from opforge.errors import ArgumentError

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("double[N,3]", "another dtype of an output than its nodes give\n.*FLOAT.*\n.*DOUBLE"),
        ("seq(float[N,3])", "another dtype of an output than its nodes give\n.*FLOAT.*\n.*sequence of FLOAT"),
        ("float[N,4]", r"another shape of an output than its nodes give\n.*\[N, 3\].*\n.*\[N, 4\]"),
        ("float[N,3,1]", r"another shape of an output than its nodes give\n.*\[N, 3\].*\n.*\[N, 3, 1\]"),
        ("float[]", r"another shape of an output than its nodes give\n.*\[N, 3\].*\n.*\[\]"),
    ],
)
def test_another_one_is_refused(output: str, words: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"{HEADER} g (float[N,3] x) => ({output} y) {{ y = Relu(x) }}")
    if output == "float[]":  # the text form has no other way to write a shape without dimensions
        model.graph.output[0].type.tensor_type.shape.SetInParent()
    with pytest.raises(ArgumentError, match=f"output 'y': the model says {words}"):
        of.compile(model, tmp_path / "model.bin")


@pytest.mark.parametrize("output", ["float[N,3]", "float[M,3]", "float[2,3]", "float[N,K]", "float", "undefined"])
def test_what_may_be_is_taken(output: str, tmp_path: Path) -> None:
    """Other names, and numbers for what is open, contradict nothing that is known before a run."""
    text = output if output != "undefined" else "float[N,3]"
    model = onnx.parser.parse_model(f"{HEADER} g (float[N,3] x) => ({text} y) {{ y = Relu(x) }}")
    if output == "float":
        model.graph.output[0].type.tensor_type.ClearField("shape")
    if output == "undefined":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    of.compile(model, tmp_path / "model.bin")
    (info,) = of.Session(tmp_path / "model.bin").outputs
    assert info.dtype == np.float32
