"""The compiler finds registered formulas in decomposed form, and changes nothing where none is registered."""

from __future__ import annotations

import numpy as np
import pytest

import opforge as of
from opforge.bin.lowering import raise_formulas
from opforge.onnx import raising
from opforge.schema import registry
from tests.unit.compiler.graphs import chain, compiled, model, native, node, ops, same

RNG = np.random.default_rng(9)


@of.formula("test.lowering::Bump")
def bump(x, *, width: float = 1.0, height: float):
    """Something that no standard operator is."""
    return height * of.exp(-of.square(x / width)) * of.tanh(x)


@of.formula("test.lowering::Scale")
def scale(x, *, by: float):
    """So simple that it stands everywhere."""
    return x * by


@of.formula("test.lowering::Gate")
def gate(x, y, z):
    """A formula of three inputs."""
    return of.tanh(x) * of.exp(y) + of.sqrt(z) * of.tanh(y) * of.exp(z)


OWN = [bump, scale, gate]
for _operator in OWN:
    registry.unregister(_operator)


@pytest.fixture(autouse=True)
def _registered_here_only():
    for operator in OWN:
        registry.register(operator)
    yield
    for operator in OWN:
        registry.unregister(operator)


def decomposed(width: float, height: float, **others) -> dict:
    nodes = chain("q = Mul x x; m = Mul q k; e = Exp m; t = Tanh x; p = Mul t e; y = Mul p h")
    constants = {"k": np.float32(-1 / width**2), "h": np.float32(height)}
    return {"nodes": nodes, "inputs": {"x": ["N", 8]}, "constants": constants, **others}


def test_a_formula_is_found_with_its_attributes():
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    program, report = same(model(**decomposed(1.5, 2.5)), {"x": x})
    assert ops(program) == ["Formula"]
    assert report.custom == {"test.lowering::Bump": "formula bytecode in 1 nodes"}
    assert report.passes["raise_formulas"] == 1
    (made,) = program.graphs[0].nodes
    assert len(made.origin) == 6
    expected = bump.reference(x.astype(np.float64), width=1.5, height=2.5)
    np.testing.assert_allclose(native(program, {"x": x})["y"], expected, rtol=1e-5)


def test_in_a_branch():
    then = model(**decomposed(1.0, 3.0)).graph
    del then.input[:]
    for initializer in list(then.initializer):
        initializer.name = f"inner_{initializer.name}"
    for made in then.node:
        made.input[:] = [f"inner_{i}" if i in ("k", "h") else i for i in made.input]
    other = model(chain("z = Neg x"), {"x": ["N", 8]}, outputs="z").graph
    del other.input[:]
    proto = model([node("If", "c", "y", then_branch=then, else_branch=other)], {"x": ["N", 8], "c": (9, [])})
    _, report = compiled(proto)
    assert report.custom == {"test.lowering::Bump": "formula bytecode in 1 nodes"}


def test_bodies_are_kept_where_the_caller_wants_them():
    _, report = compiled(model(**decomposed(1.5, 2.5)), operators="body")
    assert report.custom == {}


@pytest.mark.parametrize("kind", ["read elsewhere", "half types", "an output"])
def test_what_is_left_alone(kind):
    given = decomposed(1.5, 2.5)
    if kind == "read elsewhere":
        given["nodes"] += chain("z = Softmax e")
        given["outputs"] = "y z"
    elif kind == "an output":
        given["outputs"] = "y t"
    else:
        given["dtype"] = 10
        given["constants"] = {k: v.astype(np.float16) for k, v in given["constants"].items()}
    _, report = compiled(model(**given))
    assert bump.qualified_name not in report.custom


def test_products_and_sums_alone_are_not_looked_for():
    program, report = compiled(model(chain("y = Mul x k"), {"x": ["N", 8]}, {"k": np.float32(3)}))
    assert report.custom == {}
    assert scale.qualified_name in {o.qualified_name for o in registry.operators().values()}
    assert ops(program) == ["Formula"]


def test_nothing_changes_without_registered_formulas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "operators", lambda **_: {})
    _, report = compiled(model(**decomposed(1.5, 2.5)))
    assert raise_formulas.NAME not in report.passes
    assert report.custom == {}


@pytest.mark.parametrize("strands", [1, 2])
def test_three_inputs_are_few_trials_in_long_chains(monkeypatch: pytest.MonkeyPatch, strands: int):
    steps = "; ".join(f"a{k + 1} = Tanh a{k}; b{k + 1} = Exp b{k}" for k in range(50))
    end = "y = Add a50 b50" if strands == 2 else "y = Softmax a50; v = Softmax b50"
    nodes = chain(f"a0 = Mul x k; b0 = Mul x x; {steps}; {end}")
    given = model(nodes, {"x": ["N", 8]}, {"k": np.float32(3)}, outputs="y" if strands == 2 else "y v")
    trials = []
    monkeypatch.setattr(raising, "_expression", lambda *a: trials.append(a[2]))
    compiled(given)
    assert len([t for t in trials if len(t) == 3]) < 1000  # every choice of a node's 24 cuts would be 12,144


def test_three_inputs_are_found():
    nodes = chain("a = Tanh x; b = Exp z; c = Tanh z; d = Sqrt w; e = Exp w; f = Mul c d; g = Mul e f; h = Mul a b")
    nodes += chain("y = Add g h")
    program, report = compiled(model(nodes, {n: ["N", 8] for n in "xzw"}))
    assert report.custom == {gate.qualified_name: "formula bytecode in 1 nodes"}
    given = {n: RNG.uniform(0.1, 2, (3, 8)).astype(np.float32) for n in "xzw"}
    expected = gate.reference(*(given[n].astype(np.float64) for n in "xzw"))
    np.testing.assert_allclose(native(program, given)["y"], expected, rtol=1e-5)
