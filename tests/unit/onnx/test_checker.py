"""The checker finds every fault at once, says where, and names the nearest match."""

import importlib.util
from pathlib import Path

import onnx
import pytest

import opforge as of
from opforge.errors import ArgumentError
from opforge.onnx import check_model, repair_domains
from opforge.schema import unregister

_spec = importlib.util.spec_from_file_location("checker_graphs", Path(__file__).with_name("graphs.py"))
G = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(G)


def texts(model):
    return [str(p) for p in check_model(model)]


def one(op, domain=G.DOMAIN, inputs=("x",), opsets=(("", 21), (G.DOMAIN, 1)), elem=G.FLOAT, **attributes):
    m = G.model(
        [G.node(op, list(inputs), "y", domain, **attributes)],
        [("x", elem, ["N", 6])],
        [("y", elem, ["N", 6])],
        opsets=opsets,
    )
    return m


def test_sound_models_have_no_problems():
    for m in G.graphs().values():
        assert texts(m) == []


def test_missing_import_in_model_and_function():
    (problem,) = texts(one("Gelu2", opsets=(("", 21),)))
    assert "the model does not import the domain 'test.graphs'" in problem
    m = G.graphs()["function"]
    target = next(f for f in m.functions if f.domain == "test.fn")
    del target.opset_import[:]
    target.opset_import.add(domain="", version=21)
    assert any("function test.fn::G2 does not import the domain 'test.graphs'" in t for t in texts(m))


def test_a_fault_inside_a_branch_is_found():
    m = G.graphs()["if"]
    branches = {a.name: a.g for a in m.graph.node[0].attribute}
    branches["then_branch"].node[1].op_type = "Gelu3"
    found = [t for t in texts(m) if "did you mean test.graphs::Gelu2?" in t]
    assert found and "graph/if." in found[0]


@pytest.mark.parametrize(
    ("op", "domain"),
    [("gelu2", G.DOMAIN), ("Gelu22", G.DOMAIN), ("Gelu2", "test.graph")],
    ids=["case", "letter", "domain"],
)
def test_one_wrong_character_gets_the_nearest_match(op, domain):
    (problem,) = texts(one(op, domain, opsets=(("", 21), (domain, 1))))
    assert "nobody registered this operator and the model has no body for it" in problem
    assert "did you mean test.graphs::Gelu2?" in problem


def test_version_below_since_version():
    (problem,) = texts(one("Affine", "test.other", opsets=(("", 21), ("test.other", 1))))
    assert "the imported version of the domain is older than the operator" in problem
    assert "expected test.other version 2 or newer; got version 1" in problem


def test_attributes_of_wrong_type_unknown_and_missing():
    (problem,) = texts(one("Affine", alpha=2))
    assert "the attribute 'alpha' has the wrong type; expected float; got int" in problem
    (problem,) = texts(one("Affine", alfa=2.0))
    assert "there is no attribute 'alfa'; expected one of ['alpha', 'times']" in problem


def test_missing_attribute_and_arity():
    needs = of.kernel(
        "test.graphs::Needs",
        "(x: T[n], w: T[n]; mode: string) -> (y: T[n])",
        types={"T": of.floating},
        sources=[],
        reference=None,
    )
    try:
        found = texts(one("Needs"))
        assert any("the input 'w' is missing; expected (x, w)" in t for t in found)
        assert any("the attribute 'mode' is missing; expected string" in t for t in found)
        assert any("too many inputs" in t for t in texts(one("Gelu2", inputs=("x", "x"))))
    finally:
        unregister(needs)


def test_undeclared_and_mixed_dtypes():
    (problem,) = texts(one("Gelu2", elem=onnx.TensorProto.INT32))
    assert "the input 'x' has an undeclared dtype; expected f16, bf16, f32, f64; got int32" in problem


def test_all_problems_come_at_once():
    m = G.model(
        [
            G.node("Gelu3", ["x"], "a", G.DOMAIN),
            G.node("Affine", ["a"], "b", G.DOMAIN, alpha=1),
            G.node("Nothing", ["b"], "y", "no.where"),
        ],
        G.X,
        G.Y,
    )
    assert len(texts(m)) == 4  # an unknown operator, a wrong attribute, a missing import, another unknown operator


def test_the_rest_is_onnx_s_own_checker():
    m = G.model([G.node("Relu", ["nowhere"], "y")], G.X, G.Y)
    (problem,) = texts(m)
    assert "ONNX's checker refuses it" in problem


def test_repair_gives_custom_nodes_their_domain():
    m = one("Gelu2", "", opsets=(("", 21),))
    before = m.SerializeToString()
    fixed, changes = repair_domains(m)
    assert m.SerializeToString() == before
    assert changes == ["graph, node 'y_node': Gelu2 -> test.graphs::Gelu2"]
    assert texts(fixed) == []
    with pytest.raises(ArgumentError, match="several operators have this name"):
        repair_domains(one("Affine", "", opsets=(("", 21),)))
