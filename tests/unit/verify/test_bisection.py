"""A planted fault is found, at the exact node, and what it is."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.errors import ArgumentError, UnsupportedError
from opforge.verify import _engines
from opforge.verify.bisection import first_difference
from tests.unit.verify.engines_with_faults import Planted
from tests.unit.verify.faulty import forget

OURS = "com.example"
KINDS = ("Add", "Mul", "Sub", "Div")


def model(nodes, constants=(), functions=(), domains=(), inputs=("x",), outputs=("y",)):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 5]) for n in (*inputs, *outputs)]
    graph = helper.make_graph(nodes, "g", infos[: len(inputs)], infos[len(inputs) :], list(constants))
    imports = [helper.make_opsetid("", 20), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def hundred():
    """100 nodes in two strands that cross at every fifth and join; every error reaches the output, about as it is."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.uniform(0.9, 1.1, 5).astype(np.float32), f"w{k}") for k in range(100)]
    ends = ["x", "x"]
    nodes = []
    for k in range(99):
        side = k % 2
        kind, other = ("Mean", ends[1 - side]) if k % 5 == 4 else (KINDS[k % len(KINDS)], f"w{k}")
        nodes.append(helper.make_node(kind, [ends[side], other], [f"v{k}"], f"n{k}"))
        ends[side] = f"v{k}"
    nodes.append(helper.make_node("Add", ends, ["y"], "n99"))
    return model(nodes, weights)


@pytest.fixture
def plant(monkeypatch):
    """Make an engine with a fault known: plant(kind, node)."""
    known = _engines.engines()

    def add(*arguments, **options):
        engine = Planted(*arguments, **options)
        monkeypatch.setattr(_engines, "engines", lambda: {**known, engine.name: engine})
        return engine

    return add


def x(seed=1):
    return {"x": np.random.default_rng(seed).uniform(0.2, 1.0, (4, 5)).astype(np.float32)}


def search(proto, inputs=None, **options):
    return first_difference(
        proto, x() if inputs is None else inputs, engine="planted", reference="reference", **options
    )


@pytest.mark.parametrize("node", ["n0", "n13", "n58", "n97", "n99"])
def test_a_wrong_node_among_a_hundred(plant, node):
    plant("wrong", node)
    found = search(hundred())
    assert [n["name"] for n in found.nodes] == [node]
    assert found.verdict == "wrong" and found.own > 1e-3 and all(error == 0 for error in found.inputs.values())
    assert found.loads < 20
    assert f"part at {found.nodes[0]['operator']} {node}: max |error| 0.01" in str(found)


def test_not_a_number(plant):
    plant("nan", "n31")
    found = search(hundred(), {"x": -x()["x"] * np.float32([[9], [1], [1], [-9]])})
    assert found.nodes[0]["name"] == "n31" and found.verdict == "wrong"
    assert "NaN or infinity at other places" in found.detail


def test_another_shape(plant):
    nodes = [helper.make_node("Sin", ["x"], ["v0"], "n0")]
    nodes += [helper.make_node("Sin", [f"v{k - 1}"], [f"v{k}" if k < 29 else "y"], f"n{k}") for k in range(1, 30)]
    plant("shape", "n17")
    found = search(model(nodes))
    assert found.nodes[0]["name"] == "n17" and found.detail == "shape [8, 5], expected [4, 5]"


def test_an_amplifier_is_told_from_what_is_wrong(plant):
    """A difference of nearly equal values makes a rounding to float16 large; the rounding is the origin."""
    constants = [numpy_helper.from_array(np.float32([1.0]), "one"), numpy_helper.from_array(np.float32([1e4]), "large")]
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["a"], "scale"),
        helper.make_node("Add", ["a", "one"], ["b"], "rounded"),
        helper.make_node("Sub", ["b", "one"], ["c"], "difference"),
        helper.make_node("Mul", ["c", "large"], ["y"], "enlarge"),
    ]
    plant("half", "rounded")
    inputs = {"x": x()["x"] * 1e-3}
    found = search(model(nodes, constants), inputs, tolerances={"float32": (1e-2, 1e-3)})
    assert (found.nodes[0]["name"], found.verdict) == ("enlarge", "amplifies")
    assert found.own < 1e-6 < found.error
    assert found.origin["node"] == "rounded" and found.origin["roundings"] > 1000
    text = str(found)
    assert "by itself is right: it amplifies" in text and "the largest error of its own before it: Add rounded" in text


def test_a_difference_that_vanishes_when_values_are_marked(plant):
    """An engine that fuses n40 and n42 wrongly, and does not while v40 is an output."""
    plant("wrong", "n42", unless="v40")
    found = search(hundred())
    names = [n["name"] for n in found.nodes]
    assert found.verdict == "fused" and {"n40", "n42"} <= set(names) and len(names) < 6
    assert "the difference vanishes when values between" in str(found)


def branching():
    of.load("opforge.ops")
    function = helper.make_function(
        "test.local", "Two", ["a"], ["b"],
        [
            helper.make_node("Tanh", ["a"], ["t"], "inner_tanh"),
            helper.make_node("CustomGELU", ["t"], ["b"], "inner_gelu", domain=OURS),
        ],
        [helper.make_opsetid("", 20), helper.make_opsetid(OURS, 1)],
    )  # fmt: skip

    def branch(kind, name):
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [4, 5])
        call = helper.make_node("Two", ["h"], [f"{name}_in"], f"{name}_call", domain="test.local")
        return helper.make_graph(
            [call, helper.make_node(kind, [f"{name}_in"], [out.name], f"{name}_last")], name, [], [out]
        )

    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    choice = helper.make_node(
        "If", ["flag"], ["z"], "choice", then_branch=branch("Sin", "then"), else_branch=branch("Cos", "else")
    )
    nodes = [helper.make_node("Sin", ["x"], ["h"], "first"), choice, helper.make_node("Neg", ["z"], ["y"], "last")]
    proto = model(nodes, functions=[function], domains=(OURS, "test.local"))
    proto.graph.input.append(flag)
    return of.onnx.complete_model(proto)


@pytest.mark.parametrize(
    "node, operator, flag, inside",
    [
        ("then_last", "Sin", True, ["choice, then branch"]),
        ("else_last", "Cos", False, ["choice, else branch"]),
        ("inner_gelu", "com.example::CustomGELU", True, ["choice, then branch", "function test.local::Two"]),
    ],
)
def test_inside_branches_and_functions(plant, node, operator, flag, inside):
    plant("wrong", node)
    found = search(branching(), {**x(), "flag": np.array(flag)})
    assert (found.verdict, found.inside) == ("wrong", inside)
    assert [n["operator"] for n in found.nodes] == [operator]


@pytest.mark.parametrize("name", ["Scan", "Loop"])
def test_a_body_that_is_not_entered_is_said_so(plant, name):
    """The node is found, by itself the body is not: it runs several times."""
    row = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [5]) for n in ("item", "made")]
    body = [helper.make_node("Sin", ["item"], ["made"], "inner")]
    if name == "Scan":
        graph = helper.make_graph(body, "body", row[:1], row[1:])
        rows = helper.make_node("Scan", ["h"], ["z"], "rows", num_scan_inputs=1, body=graph)
        constants = []
    else:
        state = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("going", "goes")]
        index = helper.make_tensor_value_info("k", TensorProto.INT64, [])
        body = [
            helper.make_node("Gather", ["h", "k"], ["item"], "pick", axis=0),
            *body,
            helper.make_node("Identity", ["going"], ["goes"], "go"),
        ]
        graph = helper.make_graph(body, "body", [index, state[0]], [state[1], row[1]])
        rows = helper.make_node("Loop", ["four", "on"], ["z"], "rows", body=graph)
        constants = [numpy_helper.from_array(v, n) for n, v in (("four", np.array(4)), ("on", np.array(True)))]
    nodes = [helper.make_node("Neg", ["x"], ["h"], "first"), rows, helper.make_node("Neg", ["z"], ["y"], "last")]
    plant("wrong", "inner")
    found = search(model(nodes, constants))
    assert [n["name"] for n in found.nodes] == ["rows"] and found.verdict == "wrong", str(found)
    assert f"part at {name} rows" in str(found)
    assert "its body was not entered: it runs any number of times, and the search follows one run" in str(found)
    assert not found.inside and found.as_dict()["closed"]


def test_an_engine_that_refuses_what_it_ran(plant, monkeypatch):
    plant("wrong", "n42")

    def refuse(self, graph, names, inputs):
        raise UnsupportedError("no outputs in the middle", where=self.engine)

    monkeypatch.setattr("opforge.verify._marking.Probe.values", refuse)
    found = search(hundred())
    assert found.verdict == "failed"
    assert str(found) == "planted, y: the search failed: planted: no outputs in the middle"


def test_engines_that_agree(plant):
    plant("wrong", "nowhere")
    found = search(hundred())
    assert found.verdict == "agrees" and not found.nodes
    with pytest.raises(ArgumentError, match="the model has no such output"):
        search(hundred(), output="z")


def test_of_two_outputs_the_one_that_differs(plant):
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], "sine"),
        helper.make_node("Cos", ["x"], ["b"], "cosine"),
        helper.make_node("Exp", ["a"], ["y"], "left"),
        helper.make_node("Exp", ["b"], ["z"], "right"),
    ]
    plant("wrong", "cosine")
    found = search(model(nodes, outputs=("y", "z")))
    assert found.output == "z" and found.nodes[0]["name"] == "cosine"


def test_onnx_models_are_left_as_they_are(plant, tmp_path):
    plant("wrong", "n20")
    proto = hundred()
    before = proto.SerializeToString()
    search(proto)
    assert proto.SerializeToString() == before
    onnx.save(proto, tmp_path / "m.onnx")
    assert search(tmp_path / "m.onnx").nodes[0]["name"] == "n20"


_KERNEL = """
#include "opforge/kernel.h"
using namespace opforge;
Status twist(Context&, View<const float, 2> x, View<float, 2> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    for (int64_t j = 0; j < x.shape(1); ++j) y(i, j) = x(i, j) * (j == 4 && i == 2 ? 1.05f : 1.0f) + 0.25f;
  }
  return kOk;
}
"""
_DECLARED = """
import opforge as of

twist = of.kernel(
    "test.bisection::Twist", "(x: T[m, n]) -> (y: T[m, n])", types={"T": ["f32"]}, sources=["cpu.cc"],
    reference=lambda x: x + 0.25, differentiable=False,
)
"""


@pytest.mark.compiler
@pytest.mark.long
def test_a_kernel_that_is_wrong_at_one_element(tmp_path):
    """The kernel of an author, in opforge's own engine, between 99 nodes that the compiler fuses as it likes."""
    (tmp_path / "op.py").write_text(_DECLARED)
    (tmp_path / "cpu.cc").write_text(_KERNEL)
    (operator,) = of.load(tmp_path / "op.py")
    try:
        proto = hundred()
        node = proto.graph.node[58]
        node.CopyFrom(helper.make_node("Twist", node.input[:1], node.output, node.name, domain="test.bisection"))
        proto.opset_import.append(helper.make_opsetid("test.bisection", 1))
        found = first_difference(proto, x(), engine="opforge", reference="reference")
    finally:
        forget(operator)
    assert [n["name"] for n in found.nodes] == ["n58"] and found.verdict == "wrong"
    assert found.nodes[0]["operator"] == "test.bisection::Twist" and "at [2, 4]" in found.detail
