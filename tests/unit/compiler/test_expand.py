"""Operators by the bodies that ONNX gives them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from opforge.bin.lowering._generated.kernels import KERNELS
from tests.unit.compiler.graphs import compiled, model, node, ops, same

RNG = np.random.default_rng(11)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "attributes", "shape"),
    [("MeanVarianceNormalization", {}, (2, 3, 4, 5)), ("CenterCropPad", {"axes": [0, 1]}, (7, 9))],
)
def test_body(name, attributes, shape):
    assert ("", name) not in KERNELS, "take another operator: this one has a kernel now"
    inputs, constants = ("x", {}) if name[0] == "M" else ("x s", {"s": np.array([5, 12])})
    proto = model([node(name, inputs, "y", **attributes)], {"x": list(shape)}, constants)
    program, report = same(proto, {"x": _random(*shape)}, rtol=1e-4, atol=1e-5)
    assert report.passes["expand_functions"] >= 1
    assert name not in ops(program)


def test_body_that_calls_an_operator_with_a_body():
    kinds = {"x": ["N", 5], "t": (TensorProto.INT64, ["N"])}
    proto = model([node("SoftmaxCrossEntropyLoss", "x t", "y", reduction="mean")], kinds)
    same(proto, {"x": _random(4, 5), "t": np.array([0, 4, 2, 1])}, rtol=1e-4)


def test_outputs_that_nobody_reads_are_not_computed():
    inputs = {"q": [1, 2, 3, 4], "k": [1, 2, 3, 4], "v": [1, 2, 3, 4]}
    proto = model([node("Attention", "q k v", "y - - s")], inputs, outputs="y s", opset=24)
    proto.graph.node[0].output[1:3] = ["", ""]
    program, _ = compiled(proto)
    assert {program.values[i].name for i in program.graphs[0].outputs} == {"y", "s"}


def test_elementwise_operators_need_no_body():
    program, report = compiled(model([node("Gelu", "x", "y")], {"x": ["N"]}))
    assert ops(program) == ["Formula"]
    assert "expand_functions" not in report.passes
