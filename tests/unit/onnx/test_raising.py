"""Decomposed formulas become operators again, whatever order their author chose."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.ops import clip_sigmoid, custom_gelu, mish, mod_sigmoid, swish


def const(name, value):
    return numpy_helper.from_array(np.array(value, np.float32), name)


def model(nodes, initializers, inputs=("x",)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def n(op, inputs, output, **attributes):
    return helper.make_node(op, list(inputs), [output], name=f"{output}_node", **attributes)


K = [const("half", 0.5), const("one", 1.0), const("c", 0.044715), const("s", np.sqrt(2 / np.pi)), const("three", 3.0)]
GELUS = {
    "as written": [
        n("Pow", ["x", "three"], "x3"),
        n("Mul", ["x3", "c"], "cx3"),
        n("Add", ["x", "cx3"], "in"),
        n("Mul", ["in", "s"], "arg"),
        n("Tanh", ["arg"], "t"),
        n("Add", ["t", "one"], "t1"),
        n("Mul", ["x", "half"], "hx"),
        n("Mul", ["hx", "t1"], "y"),
    ],
    "another order": [
        n("Mul", ["x", "x"], "x2"),
        n("Mul", ["x2", "x"], "x3"),
        n("Mul", ["c", "x3"], "cx3"),
        n("Add", ["cx3", "x"], "in"),
        n("Mul", ["s", "in"], "arg"),
        n("Tanh", ["arg"], "t"),
        n("Add", ["one", "t"], "t1"),
        n("Mul", ["x", "t1"], "xt"),
        n("Mul", ["xt", "half"], "y"),
    ],
}


def kinds(m):
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in m.graph.node]


def run(m, feeds):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(m).run(None, feeds)[0]


@pytest.mark.parametrize("name", list(GELUS))
def test_gelu_is_found(name):
    before = model(GELUS[name], K)
    after = of.onnx.raise_formulas(before, [custom_gelu])
    assert kinds(after) == ["com.example::CustomGELU"]
    assert of.onnx.check_model(after) == []
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(after, {"x": x}), run(before, {"x": x}), rtol=1e-5, atol=1e-6)


def test_in_the_middle_of_a_network():
    nodes = [
        n("MatMul", ["x", "w"], "a"),
        n("Sigmoid", ["a"], "g"),
        n("Mul", ["a", "g"], "b"),
        n("MatMul", ["b", "w"], "y"),
    ]
    after = of.onnx.raise_formulas(
        model(nodes, [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")]), [swish, custom_gelu]
    )
    assert kinds(after) == ["MatMul", "org.opforge::Swish", "MatMul"]


def test_two_inputs_and_their_order():
    nodes = [n("Sub", ["x", "t"], "d"), n("Sigmoid", ["d"], "y")]
    after = of.onnx.raise_formulas(model(nodes, [], ("x", "t")), [mod_sigmoid])
    assert kinds(after) == ["com.example::ModSigmoid"]
    assert list(after.graph.node[0].input) == ["x", "t"]


def test_mish_and_clip():
    after = of.onnx.raise_formulas(
        model([n("Softplus", ["x"], "p"), n("Tanh", ["p"], "t"), n("Mul", ["t", "x"], "y")], []), [mish]
    )
    assert kinds(after) == ["org.opforge::Mish"]
    bounds = [const("lo", 0.1), const("hi", 0.9)]
    nodes = [n("Sigmoid", ["x"], "g"), n("Max", ["g", "lo"], "m"), n("Min", ["m", "hi"], "y")]
    assert kinds(of.onnx.raise_formulas(model(nodes, bounds), [clip_sigmoid])) == ["com.example::ClipSigmoid"]


def test_other_numbers_and_other_functions_are_left_alone():
    nodes = [n("Sigmoid", ["x"], "g"), n("Clip", ["g", "lo", "hi"], "y")]
    other = model(nodes, [const("lo", 0.2), const("hi", 0.9)])
    after = of.onnx.raise_formulas(other, [clip_sigmoid])
    assert after == other and after is not other
    wrong = [node for node in GELUS["as written"]]
    m = model(wrong, [*K[:2], const("c", 0.035677), *K[3:]])
    assert "com.example::CustomGELU" not in kinds(of.onnx.raise_formulas(m, [custom_gelu]))


def test_an_inner_value_that_others_read_stays():
    nodes = [n("Sigmoid", ["x"], "g"), n("Mul", ["x", "g"], "b"), n("Add", ["b", "g"], "y")]
    after = of.onnx.raise_formulas(model(nodes, []), [swish])
    assert sorted(kinds(after)) == ["Add", "Sigmoid", "org.opforge::Swish"]
    onnx.checker.check_model(after)
