"""Simplification keeps custom nodes, understands them, and folds what onnxsim and onnxslim fold."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import opforge as of

_spec = importlib.util.spec_from_file_location("simplifier_graphs", Path(__file__).with_name("graphs.py"))
G = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(G)
GRAPHS = G.graphs()

# What is left of each graph, by operator.
LEFT = {
    "chain": {"Reshape": 2, "test.graphs::Gelu2": 1},
    "constant_input": {"MatMul": 1},
    "attributes": {"Add": 1, "test.graphs::Affine": 1},
    "if": {"If": 1},
    "if_constant": {"test.graphs::Gelu2": 1, "Relu": 1},
    "optional_empty": {"Clip": 1, "test.graphs::Gelu2": 1},
    "two_domains": {"test.graphs::Affine": 1, "test.other::Affine": 1},
    "symbolic_shape": {"test.graphs::Gelu2": 1, "Reshape": 1},
    "dead_and_shared": {"test.graphs::Gelu2": 1, "Add": 1},
    "conv_batch_norm": {"Conv": 1, "test.graphs::Gelu2": 1},
    "function": {"test.fn::G2": 1},
}


def kinds(model):
    return dict(Counter(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in model.graph.node))


def run(model, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


@pytest.mark.parametrize("name", list(GRAPHS))
def test_graph_comes_out_right(name):
    before = GRAPHS[name]
    after = of.onnx.simplify(before)
    assert kinds(after) == LEFT[name]
    assert of.onnx.check_model(after) == []
    for n in (1, 3):
        inputs = G.feed(before, n)
        for a, b in zip(run(before, inputs), run(after, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", list(GRAPHS))
def test_nothing_is_left_that_the_others_fold(name):
    import onnxsim
    import onnxslim

    before = GRAPHS[name]
    after = sum(kinds(of.onnx.simplify(before)).values())
    bare = onnx.ModelProto()
    bare.CopyFrom(before)
    if name.startswith("if"):
        del bare.functions[:]  # onnxslim recurses without end on a function that a branch calls
    if name != "if_constant":  # onnxsim loses the domain when it inlines a branch and raises
        assert after <= sum(kinds(onnxsim.simplify(bare)[0]).values())
    assert after <= sum(kinds(onnxslim.slim(bare)).values())


def test_attributes_domains_and_imports_stay():
    after = of.onnx.simplify(GRAPHS["attributes"])
    (custom,) = [n for n in after.graph.node if n.op_type == "Affine"]
    assert {a.name: onnx.helper.get_attribute_value(a) for a in custom.attribute} == {"alpha": 2.5, "times": 3}
    after = of.onnx.simplify(GRAPHS["two_domains"])
    assert {i.domain: i.version for i in after.opset_import} == {"": 21, "test.graphs": 1, "test.other": 2}
    (clip,) = [n for n in of.onnx.simplify(GRAPHS["optional_empty"]).graph.node if n.op_type == "Clip"]
    assert clip.input[1] == ""


def test_unused_imports_and_bodies_go():
    after = of.onnx.simplify(GRAPHS["constant_input"])
    assert [i.domain for i in after.opset_import] == [""]
    assert not after.functions


def test_impure_operators_are_neither_shared_nor_folded():
    from opforge.schema import Operator, register, unregister

    noise = register(Operator("test.impure", "Noise", "(x: T[*S]) -> (y: T[*S])", types={"T": of.floating}, pure=False))
    try:
        m = G.model(
            [
                G.node("Noise", ["x"], "p", "test.impure"),
                G.node("Noise", ["x"], "q", "test.impure"),
                G.node("Noise", ["w"], "r", "test.impure"),
                G.node("Add", ["p", "q"], "s"),
                G.node("Add", ["s", "r"], "y"),
            ],
            G.X,
            G.Y,
            [G.floats("w", (6,))],
            opsets=(("", 21), ("test.impure", 1)),
        )
        assert kinds(of.onnx.simplify(m))["test.impure::Noise"] == 3
    finally:
        unregister(noise)


def test_a_strange_custom_node_is_left_alone():
    m = G.model(
        [G.node("Add", ["w", "w"], "w2"), G.node("Strange", ["w2", "", "x"], "y", "who.knows", mode="12345")],
        G.X,
        G.Y,
        [G.floats("w", (6,))],
        opsets=(("", 21), ("who.knows", 7)),
    )
    after = of.onnx.simplify(m)
    (strange,) = [n for n in after.graph.node if n.op_type == "Strange"]
    assert (strange.domain, list(strange.input)[1:]) == ("who.knows", ["", "x"])
    assert [onnx.helper.get_attribute_value(a) for a in strange.attribute] == [b"12345"]
    assert {i.domain: i.version for i in after.opset_import} == {"": 21, "who.knows": 7}


def test_a_node_that_does_nothing_between_input_and_output_stays_as_identity():
    m = G.model([G.node("Dropout", ["x"], "y")], G.X, G.Y)
    assert kinds(of.onnx.simplify(m)) == {"Identity": 1}
