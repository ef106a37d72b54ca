"""Decomposed formulas become operators again, whatever order their author chose."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.ops import clip_sigmoid, custom_gelu, mish, mod_sigmoid, swish
from opforge.schema import registry


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
    other = model([n("Sigmoid", ["x"], "g"), n("Relu", ["g"], "y")], [])
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


def attributes(m):
    return {a.name: helper.get_attribute_value(a) for a in m.graph.node[-1].attribute}


def test_attributes_are_solved_for():
    nodes = [n("Sigmoid", ["x"], "g"), n("Clip", ["g", "lo", "hi"], "y")]
    after = of.onnx.raise_formulas(model(nodes, [const("lo", 0.2), const("hi", 0.9)]), [clip_sigmoid])
    assert kinds(after) == ["com.example::ClipSigmoid"]
    assert attributes(after) == {"lo": np.float32(0.2)}
    nodes = [n("Mul", ["x", "b"], "bx"), n("Sigmoid", ["bx"], "g"), n("Mul", ["g", "x"], "y")]
    after = of.onnx.raise_formulas(model(nodes, [const("b", 1.702)]), [swish])
    assert attributes(after) == {"beta": np.float32(1.702)}


@of.formula("test.raising::Ramp")
def ramp(x, *, slope: float, shift: float = 0.5):
    """Two attributes, one of them without a default and in two places."""
    return of.tanh(slope * x + shift) ** 2 * (1 / slope)


@of.formula("test.raising::ThreeSum")
def three_sum(a, b, c):
    """A sum whose order matters."""
    return (a + b) + c


@of.formula("test.raising::Gauss")
def gauss(x, *, width: float = 1.0):
    """Squares, a quotient and a sign."""
    return of.exp(-(x * x) / (2 * width * width))


OWN = [ramp, three_sum, gauss]
for _operator in OWN:
    registry.unregister(_operator)


@pytest.fixture(autouse=True)
def _registered_here_only():
    for operator in OWN:
        registry.register(operator)
    yield
    for operator in OWN:
        registry.unregister(operator)


def check(nodes, constants, operator, expected, inputs=("x",)):
    before = model(nodes, constants, inputs)
    after = of.onnx.raise_formulas(before, [operator])
    assert kinds(after) == [operator.qualified_name]
    got = attributes(after)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=3e-7)


def test_equations_with_several_attributes():
    nodes = [
        n("Mul", ["x", "s"], "m"), n("Sub", ["m", "t"], "a"), n("Tanh", ["a"], "h"), n("Mul", ["h", "h"], "q"),
        n("Div", ["q", "s"], "y"),
    ]  # fmt: skip
    check(nodes, [const("s", 3.0), const("t", 0.75)], ramp, {"slope": 3.0, "shift": -0.75})


GAUSSES = {
    "squares": [n("Mul", ["x", "x"], "q"), n("Neg", ["q"], "m"), n("Div", ["m", "two_w2"], "e"), n("Exp", ["e"], "y")],
    "a power, a factor": [n("Pow", ["x", "two"], "q"), n("Mul", ["q", "minus"], "e"), n("Exp", ["e"], "y")],
    "a difference": [n("Mul", ["x", "x"], "q"), n("Mul", ["q", "half_w2"], "m"), n("Sub", ["zero", "m"], "e"),
                     n("Exp", ["e"], "y")],
    "a constant computed": [n("Sqrt", ["w2_squared"], "r"), n("Mul", ["r", "two"], "d"), n("Mul", ["x", "x"], "q"),
                            n("Div", ["q", "d"], "m"), n("Neg", ["m"], "e"), n("Exp", ["e"], "y")],
    "one rounding off": [n("Mul", ["x", "x"], "q"), n("Mul", ["q", "off"], "e"), n("Exp", ["e"], "y")],
}  # fmt: skip


@pytest.mark.parametrize("name", GAUSSES)
def test_forms_of_a_quotient(name):
    w = 1.7
    constants = {
        "two_w2": 2 * w * w, "two": 2.0, "minus": -1 / (2 * w * w), "half_w2": 1 / (2 * w * w), "zero": 0.0,
        "w2_squared": w**4, "off": np.nextafter(np.float32(-1 / (2 * w * w)), np.float32(0)),
    }  # fmt: skip
    used = {i for node in GAUSSES[name] for i in node.input}
    check(GAUSSES[name], [const(k, v) for k, v in constants.items() if k in used], gauss, {"width": w})


def test_a_sum_in_another_order_is_left_alone():
    inputs = ("x", "b", "c")
    as_written = [n("Add", ["x", "b"], "s"), n("Add", ["s", "c"], "y")]
    assert kinds(of.onnx.raise_formulas(model(as_written, [], inputs), [three_sum])) == ["test.raising::ThreeSum"]
    otherwise = [n("Add", ["b", "c"], "s"), n("Add", ["x", "s"], "y")]
    after = of.onnx.raise_formulas(model(otherwise, [], inputs), [three_sum])
    (found,) = after.graph.node if len(after.graph.node) == 1 else (None,)
    # Only with its inputs named otherwise does it compute what stands there, digit for digit.
    assert found is not None and set(found.input[:2]) == {"b", "c"} and found.input[2] == "x"
