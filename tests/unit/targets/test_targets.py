"""Toolchains' lists, what is said of a model that they do not take, and the parts that it is cut into."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opforge.errors import ArgumentError
from opforge.onnx import complete_model, simplify
from opforge.onnx.inline import inline_functions
from opforge.onnx.one_node import one_node_model
from opforge.ops import custom_gelu, mish, sparse_matmul
from opforge.targets import TOOLCHAINS, target_report
from tests.unit.cli.conftest import opforge as opforge

FLOAT = onnx.TensorProto.FLOAT


def model(nodes, outputs=("y",), opset=18, domains=()):
    infos = [helper.make_tensor_value_info("x", FLOAT, [2, 3])]
    results = [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in outputs]
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "main", infos, results)
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def node(kind, reads, gives, **attributes):
    return helper.make_node(kind, reads.split(), gives.split(), name=gives.split()[0], **attributes)


def states(report):
    return {found.node: found.state for found in report.nodes}


@pytest.mark.parametrize("row", TOOLCHAINS.values(), ids=lambda row: row.name)
def test_the_lists_name_operators_of_onnx(row):
    """A misspelt name would be an operator that no model has."""
    for name in row.operators:
        schema = onnx.defs.get_schema(name, row.opsets[1], "")
        assert schema.since_version <= row.opsets[1]
    assert row.source.startswith("https://")


def test_listed_operators_pass():
    report = target_report(model([node("Relu", "x", "r"), node("Sigmoid", "r", "y")]), "vitis-ai")
    assert report.passed
    assert states(report) == {"r": "kernel", "y": "kernel"}
    assert [(part.device, part.nodes, part.inputs, part.outputs) for part in report.parts] == [
        (True, ("r", "y"), ("x",), ("y",))
    ]


def test_an_opset_that_is_not_read_is_said():
    report = target_report(model([node("Relu", "x", "y")], opset=20), "cann")
    assert states(report) == {"y": "kernel"}
    assert not report.opset_fits
    assert not report.passed


def test_a_body_of_listed_operators_is_rewritten():
    """CustomGELU's body for ONNX casts and names constants; simplified, only arithmetic is left of it."""
    for operator in (custom_gelu, sparse_matmul):  # a kernel whose author gave a body, too
        report = target_report(one_node_model(operator), "cann")
        (found,) = report.nodes
        assert (found.state, found.operator) == ("rewritten", operator.qualified_name)
        assert found.to_do == "opforge simplify MODEL --inline"
        assert all(part.device for part in report.parts)


def test_a_body_that_needs_more_names_what():
    report = target_report(one_node_model(mish), "vitis-ai")
    (found,) = report.nodes
    assert found.state == "none"
    assert found.reason.startswith("no available kernel implementation is listed, nor for ")
    assert "Tanh" in found.reason
    assert "CastLike" not in found.reason  # it goes


def test_a_kernel_of_an_author_is_the_hosts():
    made = model([node("Relu", "x", "r"), node("Foo", "r", "y", domain="com.author")], domains=("com.author",))
    report = target_report(made, "cann")
    assert [found.state for found in report.nodes] == ["kernel", "none"]
    assert report.nodes[1].reason == "no available kernel implementation is listed"
    assert "Ascend C" in report.nodes[1].to_do
    assert [part.device for part in report.parts] == [True, False]


def test_what_simplification_takes_away_is_no_fault():
    report = target_report(model([node("Identity", "x", "i"), node("Relu", "i", "y")]), "vitis-ai")
    assert states(report) == {"i": "rewritten", "y": "kernel"}
    assert [part.nodes for part in report.parts] == [("y",)]


def test_a_subgraph_with_a_node_of_the_host_is_the_hosts():
    def branch(name, kind, **more):
        made = node(kind, "x", name, **more)
        return helper.make_graph([made], name, [], [helper.make_tensor_value_info(name, FLOAT, [2, 3])])

    branches = {"then_branch": branch("a", "Relu"), "else_branch": branch("b", "Foo", domain="com.example")}
    made = model([node("If", "c", "y", **branches)], domains=("com.example",))
    made.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    report = target_report(made, "cann")
    assert states(report) == {"y": "kernel", "a": "kernel", "b": "none"}
    assert [(part.device, set(part.inputs)) for part in report.parts] == [(False, {"c", "x"})]


def test_parts_run_one_after_the_other_to_the_models_results():
    """Cut at random: each part alone, fed by those before it, gives what the whole model does."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = ["x"]
        nodes = []
        for k in range(12):
            kind = str(rng.choice(["Relu", "Sigmoid", "Erf", "Tanh", "Add", "Mul"]))
            reads = " ".join(rng.choice(values, 2 if kind in ("Add", "Mul") else 1))
            nodes.append(node(kind, reads, f"v{k}"))
            values.append(f"v{k}")
        made = model(nodes, outputs=("v11", "v7"))
        report = target_report(made, "vitis-ai")
        plain = simplify(made)
        by_name = {one.name: one for one in plain.graph.node}
        assert sorted(name for part in report.parts for name in part.nodes) == sorted(by_name)
        x = rng.standard_normal((2, 3)).astype(np.float32)
        known = {"x": x}
        for part in report.parts:
            graph = helper.make_graph(
                [by_name[name] for name in part.nodes],
                "part",
                [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in part.inputs],
                [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in part.outputs],
            )
            alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
            onnx.checker.check_model(alone)
            results = ReferenceEvaluator(alone).run(None, {name: known[name] for name in part.inputs})
            known.update(zip(part.outputs, results, strict=True))
            assert part.device == all(by_name[name].op_type in TOOLCHAINS["vitis-ai"].operators for name in part.nodes)
        for name, expected in zip(("v11", "v7"), ReferenceEvaluator(made).run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(known[name], expected)


def test_an_unknown_toolchain():
    with pytest.raises(ArgumentError) as caught:
        target_report(model([node("Relu", "x", "y")]), "tpu")
    assert "there is no such toolchain" in str(caught.value)
    assert "cann, vitis-ai" in str(caught.value)


def test_the_command(opforge, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(model([node("Relu", "x", "r"), node("Erf", "r", "e"), node("Add", "r e", "y")]), path)
    assert opforge("check", path, "--target", "cann").code == 0
    said = opforge("check", path, "--target", "vitis-ai")
    assert said.code == 1
    assert "no available kernel implementation is listed" in said.out
    assert "against the list of AMD Vitis AI 3.5 (vai_q_onnx), which was not run" in said.out
    parts = opforge("check", path, "--target", "vitis-ai", "--json").json["parts"]
    assert [(part["device"], part["nodes"]) for part in parts] == [(True, ["r"]), (False, ["e"]), (True, ["y"])]
    assert parts[2]["inputs"] == ["r", "e"]
    assert opforge("check", tmp_path / "none.onnx", "--target", "cann").code == 2
    refused = opforge("check", "opforge.ops:CustomGELU", "--target", "cann")
    assert refused.code == 2
    assert "--target is for ONNX models" in refused.err


def test_simplify_inlines_bodies(opforge, tmp_path):
    onnx.save(one_node_model(custom_gelu), tmp_path / "gelu.onnx")
    said = opforge("simplify", tmp_path / "gelu.onnx", "-o", tmp_path / "plain.onnx", "--inline")
    assert said.code == 0, said.err
    plain = onnx.load(tmp_path / "plain.onnx")
    assert {one.domain for one in plain.graph.node} == {""}
    assert not plain.functions
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)
    whole = complete_model(one_node_model(custom_gelu))
    (name,) = (info.name for info in plain.graph.input)
    results = [ReferenceEvaluator(m).run(None, {name: x}) for m in (plain, inline_functions(whole))]
    np.testing.assert_allclose(*results, rtol=1e-6)
    assert json.loads(opforge("check", tmp_path / "plain.onnx", "--target", "cann", "--json").out)["nodes"]
