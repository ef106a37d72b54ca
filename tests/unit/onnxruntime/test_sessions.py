"""Sessions that a model's own words open: bodies, versions, domains, names, errors, simplifiers."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.build import library_for
from opforge.errors import ArgumentError, MissingOperatorError, ToolchainError, UnsupportedError
from opforge.onnx import one_node_model
from opforge.schema import registry
from tests.unit.onnxruntime.conftest import DOMAIN, FLOAT, formula_model, gelu, make_model

ort = pytest.importorskip("onnxruntime")
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
pytestmark = pytest.mark.compiler


def executed(model, **options):
    """Names of the operators that ran, by ONNX Runtime's profile."""
    made = ort.SessionOptions()
    made.enable_profiling = True
    session = of.onnxruntime.session(model, made, **options)
    session.run(None, {"x": np.ones((2, 5), np.float32)})
    path = session.end_profiling()
    with open(path) as file:  # noqa: PTH123
        events = json.load(file)
    return [e["args"]["op_name"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_every_floating_dtype(name):
    of.load("opforge.ops")
    element = getattr(TensorProto, {"float64": "DOUBLE", "float32": "FLOAT"}.get(name, name.upper()))
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=element),
        helper.make_node("CustomGELU", ["a"], ["b"], domain=DOMAIN),
        helper.make_node("Cast", ["b"], ["y"], to=FLOAT),
    ]
    model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}, ((DOMAIN, 1),))
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    (y,) = of.onnxruntime.session(model).run(None, {"x": x})
    tolerance = {"float16": 4e-3, "bfloat16": 4e-2}.get(name, 1e-6)
    np.testing.assert_allclose(y, gelu(x), rtol=tolerance, atol=tolerance)


def test_our_kernel_runs_where_the_model_brings_a_body(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = one_node_model(of.load("opforge.ops:CustomGELU")[0])
    assert model.functions
    assert executed(model) == ["CustomGELU"]
    bodies = executed(model, bodies=True)
    assert "CustomGELU" not in bodies and bodies
    assert len(model.functions) == 1, "the caller's model is left alone"


def test_a_file_with_tensors_beside_it(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("CustomGELU", ["t"], ["y"], domain=DOMAIN),
    ]
    weights = np.random.default_rng(0).standard_normal((5, 300)).astype(np.float32)
    model = make_model(nodes, {"x": (FLOAT, ["N", 5])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),),
                       constants=[onnx.numpy_helper.from_array(weights, "w")])  # fmt: skip
    of.onnx.complete_model(model)
    onnx.save_model(model, str(tmp_path / "m.onnx"), save_as_external_data=True, size_threshold=0, location="m.data")
    x = np.random.default_rng(1).standard_normal((2, 5)).astype(np.float32)
    (y,) = of.onnxruntime.session(tmp_path / "m.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, gelu(x @ weights), rtol=1e-4, atol=1e-5)


def test_two_domains_and_two_versions(monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")  # formulas are interpreted: nothing to compile
    first = of.formula("test.ort::Shift")(lambda x: x + 1)
    second = of.formula("test.ort::Shift", since=2)(lambda x: x + 2)
    other = of.formula("test.ort.other::Shift")(lambda x: x + 100)
    try:
        for version, step in ((1, 1), (2, 2), (3, 2)):
            nodes = [
                helper.make_node("Shift", ["x"], ["t"], domain="test.ort"),
                helper.make_node("Shift", ["t"], ["y"], domain="test.ort.other"),
            ]
            model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])},
                               (("test.ort", version), ("test.ort.other", 1)))  # fmt: skip
            (y,) = of.onnxruntime.session(model).run(None, {"x": np.zeros(2, np.float32)})
            assert y.tolist() == [100 + step] * 2
        function = helper.make_function(
            "local", "F", ["a"], ["b"], [helper.make_node("Shift", ["a"], ["b"], domain="test.ort")],
            [helper.make_opsetid("", 20), helper.make_opsetid("test.ort", 1)],
        )  # fmt: skip
        nodes = [
            helper.make_node("Shift", ["x"], ["t"], domain="test.ort"),
            helper.make_node("F", ["t"], ["y"], domain="local"),
        ]
        model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}, (("test.ort", 2), ("local", 1)),
                           functions=[function])  # fmt: skip
        with pytest.raises(UnsupportedError, match=r"(?s)one version of an operator per session.*got: 2 and 1"):
            of.onnxruntime.session(model)
    finally:
        for operator in (first, second, other):
            registry.unregister(operator)


def test_the_library_for_those_who_make_their_sessions_themselves():
    operator = of.load("opforge.ops:CustomGELU")[0]
    for path in (of.onnxruntime.library(operator), of.onnxruntime.library(model=formula_model())):
        options = ort.SessionOptions()
        options.register_custom_ops_library(path)
        session = ort.InferenceSession(formula_model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        x = np.ones((2, 5), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], gelu(x), rtol=1e-6)


def test_a_program_without_python_names_its_libraries(tmp_path):
    """The library finds kernels by OPFORGE_LIBRARY_PATH where nobody told it any: in a process of its own."""
    built = library_for(of.load("opforge.ops:CustomGELU")).path
    onnx.save(formula_model(), tmp_path / "m.onnx")
    (tmp_path / "kernels").mkdir()
    shutil.copy(built, tmp_path / "kernels")
    code = (
        "import sys, numpy, onnxruntime as ort\n"
        "o = ort.SessionOptions(); o.register_custom_ops_library(sys.argv[1])\n"
        "s = ort.InferenceSession(sys.argv[2], o, providers=['CPUExecutionProvider'])\n"
        "print(s.run(None, {'x': numpy.zeros((1, 5), numpy.float32)})[0].tolist())\n"
    )
    words = [sys.executable, "-c", code, str(of.onnxruntime.adapter_path()), str(tmp_path / "m.onnx")]

    def run(path):
        return subprocess.run(words, env=os.environ | {"OPFORGE_LIBRARY_PATH": path}, capture_output=True, text=True)

    result = run(str(tmp_path / "kernels"))
    assert result.stdout.strip() == "[[0.0, 0.0, 0.0, 0.0, 0.0]]", result.stderr
    words_of_failure = run("").stderr
    assert "opforge: no operator is known" in words_of_failure and "OPFORGE_LIBRARY_PATH" in words_of_failure


def test_outputs_that_a_node_leaves_out():
    split = of.kernel(
        "test.ort::Both", "(x: T[n]) -> (sum: T[n], product: T[n])", types={"T": of.f32},
        sources=[__file__.replace("test_sessions.py", "both.cc")], reference=lambda x: (x + x, x * x),
    )  # fmt: skip
    try:
        for outputs, expected in ((["y"], [6, 8]), (["y", ""], [6, 8]), (["", "y"], [9, 16])):
            model = make_model([helper.make_node("Both", ["x"], outputs, domain="test.ort")], {"x": (FLOAT, [2])},
                               {"y": (FLOAT, [2])}, (("test.ort", 1),))  # fmt: skip
            (y,) = of.onnxruntime.session(model).run(None, {"x": np.array([3, 4], np.float32)})
            assert y.tolist() == expected
    finally:
        registry.unregister(split)


# ---- errors


def test_operators_of_onnxruntime_itself_may_stand_beside_ours():
    of.load("opforge.ops")
    nodes = [
        helper.make_node("CustomGELU", ["x"], ["h"], domain=DOMAIN),
        helper.make_node("QuickGelu", ["h"], ["y"], domain="com.microsoft", alpha=1.0),
    ]
    sides = ({"x": (FLOAT, ["N", 5])}, {"y": (FLOAT, None)})
    domains = ((DOMAIN, 1), ("com.microsoft", 1))
    x = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
    for options in ({}, {"provider": True})[: 2 if VERSION >= (1, 23) else 1]:  # older ones take no provider
        (y,) = of.onnxruntime.session(make_model(nodes, *sides, domains), **options).run(None, {"x": x})
        np.testing.assert_allclose(y, gelu(x) / (1 + np.exp(-gelu(x))), rtol=1e-5, atol=1e-6)
    nodes[1].op_type = "QuickGela"  # one that it does not have
    with pytest.raises(MissingOperatorError, match=r"(?s)QuickGela.*is not a registered function/op"):
        of.onnxruntime.session(make_model(nodes, *sides, domains))


def test_shapes_that_contradict():
    nodes = [helper.make_node("ModSigmoid", ["x", "t"], ["y"], domain=DOMAIN)]
    model = make_model(nodes, {"x": (FLOAT, [2, 4]), "t": (FLOAT, [3])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),))
    with pytest.raises(ArgumentError, match=r"(?s)a node does not fit its operator.*shapes do not broadcast"):
        of.onnxruntime.session(model)


def test_no_compiler(monkeypatch):
    operator = of.kernel(
        "test.ort::Uncompiled", "(x: T[n]) -> (sum: T[n], product: T[n])", types={"T": of.f32},
        sources=[__file__.replace("test_sessions.py", "both.cc")], reference=lambda x: (x + x, x * x),
    )  # fmt: skip
    monkeypatch.setenv("OPFORGE_JIT", "off")
    try:
        with pytest.raises(ToolchainError, match=r"(?s)a kernel operator runs compiled code only"):
            of.onnxruntime.library(operator)
    finally:
        registry.unregister(operator)


def test_the_adapter_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("opforge.engines.onnxruntime._adapter.library_dir", lambda: tmp_path)
    with pytest.raises(MissingOperatorError, match=r"(?s)the ONNX Runtime adapter is not there.*install opforge again"):
        of.onnxruntime.adapter_path()


def test_an_old_onnx_runtime(monkeypatch):
    from opforge.engines.onnxruntime import _engine, engines

    monkeypatch.setattr(_engine, "_version", lambda: "1.16.3")
    state = engines[0].availability()
    assert not state.ok and state.reason == "version 1.16.3 is too old, 1.20 is needed"
    assert state.hint == "pip install --upgrade onnxruntime"
