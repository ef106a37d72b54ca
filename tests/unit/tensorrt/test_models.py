"""Models for TensorRT's parser: names, fields, bodies, and what is said before the parser says "Plugin not found"."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.engines.tensorrt import _fields
from opforge.engines.tensorrt._prepare import check, prepare
from opforge.engines.tensorrt._register import register
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.ops import mish
from opforge.schema import Operator, registry
from tests.unit.tensorrt import double
from tests.unit.tensorrt.conftest import gate


def model_of(*nodes, inputs=("x",), outputs=("y",), initializers=(), opsets=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in inputs]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "net", values, results, list(initializers))
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(*one) for one in opsets)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def gate_model(**attributes):
    node = helper.make_node("Gate", ["x", "w"], ["y"], domain="test.trt", name="g", **attributes)
    return model_of(node, inputs=("x", "w"), opsets=[("test.trt", 1)])


def texts(node):
    return {a.name: a.s.decode() for a in node.attribute if a.type == onnx.AttributeProto.STRING}


@pytest.fixture
def declared():
    """Operators that are registered for one test."""
    made = []

    def declare(name, signature, types="", sources=("cuda.cu",), domain="test.trt", **options):
        operator = Operator(domain, name, signature, types=types, sources=sources, **options)
        registry.register(operator)
        made.append(operator)
        return operator

    yield declare
    for operator in made:
        registry.unregister(operator)


def test_nodes_say_what_the_parser_looks_up():
    made = prepare(gate_model(slope=0.25), route="plugins")
    (node,) = made.graph.node
    assert (node.op_type, node.domain, list(node.input)) == ("test_trt_Gate", "test.trt", ["x", "w"])
    assert texts(node) == {
        "plugin_version": "1", "plugin_namespace": "test.trt", "opforge_inputs": "1 1",
        "opforge_schema": gate.schema_hash,
    }  # fmt: skip
    assert {a.name: a.f for a in node.attribute if a.type == onnx.AttributeProto.FLOAT} == {"slope": 0.25, "bias": 0.0}
    assert not made.functions
    (other,) = prepare(gate_model(), route="plugins", plugins="decorators").graph.node
    assert (other.op_type, texts(other)["plugin_version"]) == ("test_trt_Gate_v1", "1")
    assert texts(other)["plugin_namespace"] == "test_trt"


def test_a_name_of_a_standard_operator_is_not_taken_for_it(kernels):
    """The parser looks at no domain: a node Mish of ours would be ONNX's Mish."""
    node = helper.make_node("Mish", ["x"], ["y"], domain=mish.domain)
    model = model_of(node, opsets=[(mish.domain, mish.since_version)])
    assert "Mish" in double.BUILT_IN
    (made,) = prepare(model, route="plugins").graph.node
    assert made.op_type.endswith("_Mish")
    assert made.op_type != "Mish"


def test_bodies_stand_in_the_place_of_formulas_and_no_function_is_left():
    made = prepare(gate_model(), route="auto")
    assert {node.domain for node in made.graph.node} == {""}
    assert not made.functions
    x, w = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), np.zeros((2, 4), np.float32)
    (result,) = onnx.reference.ReferenceEvaluator(made).run(None, {"x": x, "w": w})
    np.testing.assert_allclose(result, gate.reference(x, w), atol=1e-6)


def test_the_model_itself_is_left_alone():
    model = gate_model()
    before = model.SerializeToString()
    prepare(model, route="plugins")
    check(model)
    assert model.SerializeToString() == before


def test_a_body_that_the_parser_does_not_know_becomes_a_plugin():
    model = gate_model()
    function = of.onnx.complete_model(model).functions[0]
    function.node.append(helper.make_node("Unique", [function.input[0]], ["unread"]))
    assert prepare(model, route="auto").graph.node[0].op_type == "test_trt_Gate"


def test_attributes_that_the_parser_would_change_are_written_as_texts(declared, trt):
    operator = declared(
        "Texts", "(x: f32[n, m]; big: int = 0, many: ints = [], names: strings = [], on: bool = false, s: string = '')"
        .replace("''", '""') + " -> (y: f32[n, m])",
    )  # fmt: skip
    values = {"big": 2**40, "many": [1, 2**33], "names": ["a", 'b"c'], "on": 1, "s": "free text"}
    node = helper.make_node("Texts", ["x"], ["y"], domain="test.trt", **values)
    (made,) = prepare(model_of(node, opsets=[("test.trt", 1)])).graph.node
    register(trt, [operator])
    names = [one.name for one in trt.get_plugin_registry().all_creators[0].field_names]
    content = _fields.read_fields(trt, operator, double.load_fields(made, names))
    assert content.values == {
        "big": 2**40, "many": (1, 2**33), "names": ("a", 'b"c'), "on": True, "s": "free text",
    }  # fmt: skip
    # Without that, the parser narrows and joins.
    raw = double.load_fields(node, names)
    assert next(one.data.tolist() for one in raw if one.name == "big") == [0]


def test_absent_inputs_are_left_out_and_counted(declared):
    declared("Maybe", "(x: f32[n, m], w?: f32[m], b?: f32[n]) -> (y: f32[n, m])")
    node = helper.make_node("Maybe", ["x", "", "b"], ["y"], domain="test.trt")
    bias = helper.make_tensor("b", TensorProto.FLOAT, [4], [0.0] * 4)
    (made,) = prepare(model_of(node, initializers=[bias], opsets=[("test.trt", 1)])).graph.node
    assert list(made.input) == ["x", "b"]
    assert texts(made)["opforge_inputs"] == "1 0 1"


def test_nodes_in_subgraphs_are_rewritten_too():
    inner = helper.make_graph(
        [helper.make_node("Gate", ["x", "x"], ["z"], domain="test.trt")], "then",
        [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z2"])], "else", [],
        [helper.make_tensor_value_info("z2", TensorProto.FLOAT, None)],
    )  # fmt: skip
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    made = prepare(model_of(node, initializers=[condition], opsets=[("test.trt", 1)]), route="plugins")
    branch = next(a.g for a in made.graph.node[0].attribute if a.name == "then_branch")
    assert branch.node[0].op_type == "test_trt_Gate"


# ---- fault 52: "Plugin not found, are the plugin name, version, and namespace correct?"


def foreign_model():
    graph = helper.make_graph(
        [helper.make_node("X", ["x"], ["y"], domain="my.ops", name="x1")], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize(("version", "namespace"), [("1", ""), ("2", "my.ops")])
def test_a_creator_under_another_version_or_namespace_is_named(declared, trt, version, namespace):
    operator = declared("X", "(x: f32[n, m]) -> (y: f32[n, m])", domain="my.ops")
    register(trt, [operator])
    registry_ = trt.get_plugin_registry()
    (creator,) = registry_.all_creators
    registry_.creators.clear()
    creator.plugin_version, creator.plugin_namespace = version, namespace
    registry_.register_creator(creator, namespace)
    (problem,) = check(foreign_model(), trt=trt)
    assert problem.what == "no plugin is registered under this name, version and namespace"
    assert problem.expected == "my_ops_X version 1 namespace 'my.ops'"
    assert problem.got == f"my_ops_X version {version} namespace {namespace!r}"
    assert "of.tensorrt.register()" in problem.hint
    parser = double.OnnxParser(double.Network(), None)
    assert not parser.parse(prepare(foreign_model()).SerializeToString())
    assert parser.errors == ["Plugin not found, are the plugin name, version, and namespace correct?"]


def test_with_the_plugin_registered_the_parser_finds_it(declared, trt):
    register(trt, [declared("X", "(x: f32[n, m]) -> (y: f32[n, m])", domain="my.ops")])
    assert check(foreign_model(), trt=trt) == []
    network = double.Network()
    assert double.OnnxParser(network, None).parse(prepare(foreign_model()).SerializeToString())
    assert network.plugins["y"].plugin_name == "my_ops_X"
    assert not double.OnnxParser(double.Network(), None).parse(foreign_model().SerializeToString())


def test_operators_that_nobody_registered_are_listed_before_the_parser_is_asked(trt):
    (problem,) = check(foreign_model(), trt=trt)
    assert "nobody registered this operator" in problem.what
    with pytest.raises(MissingOperatorError, match=r"TensorRT cannot read this model(.|\n)*my.ops::X"):
        prepare(foreign_model())


def test_standard_operators_that_the_parser_does_not_know_are_listed():
    node = helper.make_node("Unique", ["x"], ["y"], name="u")
    (problem,) = check(model_of(node))
    assert "does not know this standard operator" in problem.what
    assert "node u (Unique)" in problem.where
    with pytest.raises(UnsupportedError, match="Unique"):
        prepare(model_of(node))


def test_what_has_neither_body_nor_plugin_is_listed(declared):
    declared("Bare", "(x: f32[n, m]) -> (y: f32[n, m])", sources=("cpu.cc",))
    declared("Found", "(x: f32[n, m]) -> (y: f32[_])")
    declared("Wide", "(x: T[n, m]) -> (y: T[n, m])", types="T: f64")
    declared("Version", '(x: f32[n, m]; plugin_version: string = "") -> (y: f32[n, m])')
    nodes = [
        helper.make_node(kind, ["x"], [f"y{k}"], domain="test.trt", name=kind)
        for k, kind in enumerate(["Bare", "Found", "Version"])
    ]
    model = model_of(*nodes, outputs=("y0", "y1", "y2"), opsets=[("test.trt", 1)])
    words = [str(problem) for problem in check(model)]
    assert len(words) == 3
    assert "neither body nor plugin: it has no CUDA kernel" in words[0]
    assert "neither body nor plugin: the size of an output depends on data" in words[1]
    assert "may not be called 'plugin_version'" in words[2]
    double_node = helper.make_node("Wide", ["x"], ["y"], domain="test.trt")
    wide = model_of(double_node, opsets=[("test.trt", 1)])
    wide.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    (problem,) = check(wide)
    assert problem.what == "TensorRT has none of the dtypes of T"
    problem, _ = check(model_of(nodes[2], outputs=("y2",), opsets=[("test.trt", 1)]), route="bodies")
    assert problem.what == "it has no body"


def test_nodes_that_contradict_their_operators_are_refused():
    with pytest.raises(UnsupportedError, match="there is no attribute 'slop'"):
        prepare(gate_model(slop=1.0))
    with pytest.raises(ArgumentError, match="unknown route"):
        prepare(gate_model(), route="plugin")
