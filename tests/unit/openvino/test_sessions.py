"""Models that OpenVINO runs with our kernels: bodies, functions, versions, domains, IRs, both routes, errors."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.build import library_for
from opforge.engines.openvino import _adapter, _operators, _session, engines
from opforge.errors import (
    ArgumentError,
    BuildError,
    DtypeError,
    ToolchainError,
    UnsupportedError,
)
from opforge.onnx import one_node_model
from opforge.schema import registry
from tests.unit.onnxruntime.conftest import DOMAIN, FLOAT, INT32, INT64, formula_model, gelu, make_model
from tests.unit.openvino.conftest import branches

openvino = pytest.importorskip("openvino")
pytestmark = [pytest.mark.compiler, pytest.mark.usefixtures("extension")]
BOTH = Path(__file__).parents[1] / "onnxruntime" / "both.cc"
F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


def run(compiled, **feeds):
    """Run once; the outputs in order."""
    request = compiled.create_infer_request()
    request.start_async({name: np.asarray(value, order="C") for name, value in feeds.items()})
    request.wait()
    return [request.get_output_tensor(k).data.copy() for k in range(len(compiled.outputs))]


def layers(compiled):
    """What OpenVINO runs: the original types of the executed nodes."""
    ops = compiled.get_runtime_model().get_ops()
    return [op.get_rt_info()["layerType"].astype(str) for op in ops]


@pytest.mark.parametrize("route", ["adapter", "python"])
@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_every_floating_dtype(name, route):
    of.load("opforge.ops")
    element = getattr(TensorProto, {"float64": "DOUBLE", "float32": "FLOAT"}.get(name, name.upper()))
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=element),
        helper.make_node("CustomGELU", ["a"], ["b"], domain=DOMAIN),
        helper.make_node("Cast", ["b"], ["y"], to=FLOAT),
    ]
    model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}, ((DOMAIN, 1),))
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    (y,) = run(of.openvino.session(model, config=F32, route=route), x=x)
    tolerance = {"float16": 4e-3, "bfloat16": 4e-2}.get(name, 1e-6)
    np.testing.assert_allclose(y, gelu(x), rtol=tolerance, atol=tolerance)


def test_our_kernel_runs_where_the_model_brings_a_body():
    model = one_node_model(of.load("opforge.ops:CustomGELU")[0])
    assert model.functions
    assert "Reference" in layers(of.openvino.session(model))
    assert "Reference" not in layers(of.openvino.session(model, bodies=True))
    assert len(model.functions) == 1, "the caller's model is left alone"


@branches
def test_a_branch_and_a_function_that_hold_our_nodes():
    yes = helper.make_graph([helper.make_node("CustomGELU", ["x"], ["t"], domain=DOMAIN)], "yes", [],
                            [helper.make_tensor_value_info("t", FLOAT, None)])  # fmt: skip
    no = helper.make_graph([helper.make_node("Swish", ["x"], ["n"], domain="org.opforge")], "no", [],
                           [helper.make_tensor_value_info("n", FLOAT, None)])  # fmt: skip
    function = helper.make_function(
        "local", "Twice", ["a"], ["c"],
        [helper.make_node("CustomGELU", ["a"], ["b"], domain=DOMAIN), helper.make_node("CustomGELU", ["b"], ["c"],
                                                                                       domain=DOMAIN)],
        [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["w"], then_branch=yes, else_branch=no),
        helper.make_node("Twice", ["w"], ["y"], domain="local"),
    ]
    of.load("opforge.ops")
    model = make_model(nodes, {"x": (FLOAT, ["N"]), "c": (TensorProto.BOOL, [])}, {"y": (FLOAT, ["N"])},
                       ((DOMAIN, 1), ("org.opforge", 1), ("local", 1)), functions=[function])  # fmt: skip
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    compiled = of.openvino.session(model, config=F32)
    np.testing.assert_allclose(run(compiled, x=x, c=np.array(True))[0], gelu(gelu(gelu(x))), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        run(compiled, x=x, c=np.array(False))[0], gelu(gelu(x / (1 + np.exp(-x)))), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("route", ["adapter", "python"])
def test_two_domains_and_two_versions(monkeypatch, tmp_path, route):
    monkeypatch.setenv("OPFORGE_JIT", "off")  # formulas are interpreted: nothing to compile
    first = of.formula("test.ov::Shift")(lambda x: x + 1)
    second = of.formula("test.ov::Shift", since=2)(lambda x: x + 2)
    other = of.formula("test.ov.other::Shift")(lambda x: x + 100)
    try:
        for version, step in ((1, 1), (2, 2), (3, 2)):
            nodes = [
                helper.make_node("Shift", ["x"], ["t"], domain="test.ov"),
                helper.make_node("Shift", ["t"], ["y"], domain="test.ov.other"),
            ]
            model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])},
                               (("test.ov", version), ("test.ov.other", 1)))  # fmt: skip
            (y,) = run(of.openvino.session(model, route=route), x=np.zeros(2, np.float32))
            assert y.tolist() == [100 + step] * 2
            read = of.openvino.read_model(model, route=route)
            openvino.save_model(read, tmp_path / f"{version}.xml", compress_to_fp16=False)
        for version, step in ((1, 1), (2, 2), (3, 2)):  # an IR names the operator's own version
            (y,) = run(of.openvino.session(tmp_path / f"{version}.xml", route=route), x=np.zeros(2, np.float32))
            assert y.tolist() == [100 + step] * 2
        function = helper.make_function(
            "local", "F", ["a"], ["b"], [helper.make_node("Shift", ["a"], ["b"], domain="test.ov")],
            [helper.make_opsetid("", 20), helper.make_opsetid("test.ov", 1)],
        )  # fmt: skip
        nodes = [
            helper.make_node("Shift", ["x"], ["t"], domain="test.ov"),
            helper.make_node("F", ["t"], ["y"], domain="local"),
        ]
        model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}, (("test.ov", 2), ("local", 1)),
                           functions=[function])  # fmt: skip
        with pytest.raises(UnsupportedError, match=r"(?s)OpenVINO keeps one version.*got: 2 and 1"):
            of.openvino.session(model)
    finally:
        for operator in (first, second, other):
            registry.unregister(operator)


def sparse_network():
    """A SparseMatMul between standard nodes, indices in i64, an optional bias left out, values constant."""
    sparse = helper.make_node("SparseMatMul", ["v", "i", "p", "d"], ["s"], domain=DOMAIN)
    nodes = [helper.make_node("Relu", ["x"], ["d"]), sparse, helper.make_node("Add", ["s", "s"], ["y"])]
    constants = [
        helper.make_tensor("v", FLOAT, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("i", INT64, [3], [0, 2, 1]),
        helper.make_tensor("p", INT64, [4], [0, 2, 2, 3]),
    ]
    return make_model(nodes, {"x": (FLOAT, [3, "K"])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),), constants=constants)


@pytest.mark.parametrize("route", ["adapter", "python"])
def test_a_sparse_network_through_ir(tmp_path, route):
    of.load("opforge.ops")
    model = sparse_network()
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = [[16, 22], [0, 0], [12, 18]]
    compiled = of.openvino.session(model, config=F32, route=route)
    assert run(compiled, x=x)[0].tolist() == expected
    read = of.openvino.read_model(model, route=route)
    assert str(read.outputs[0].get_partial_shape()) == "[3,?]"
    openvino.save_model(read, tmp_path / "m.xml", compress_to_fp16=False)
    other = {"adapter": "python", "python": "adapter"}[route]
    for reader in (route, other):
        assert run(of.openvino.session(tmp_path / "m.xml", config=F32, route=reader), x=x)[0].tolist() == expected


def test_the_file_for_those_who_read_models_themselves(tmp_path):
    operator = of.load("opforge.ops:CustomGELU")[0]
    x = np.ones((2, 5), np.float32)
    core = openvino.Core()
    of.openvino.add_to(core, operator)
    read = core.read_model(formula_model().SerializeToString())
    np.testing.assert_allclose(run(core.compile_model(read, "CPU", F32), x=x)[0], gelu(x), rtol=1e-6)
    onnx.save(formula_model(), tmp_path / "m.onnx")
    read = openvino.convert_model(tmp_path / "m.onnx", extension=of.openvino.library(model=tmp_path / "m.onnx"))
    np.testing.assert_allclose(run(of.openvino.session(read, config=F32), x=x)[0], gelu(x), rtol=1e-6)
    with pytest.raises(Exception, match="CustomGELU"):
        openvino.Core().compile_model(openvino.Core().read_model(tmp_path / "m.onnx"), "CPU")


def test_ovc_in_a_process_of_its_own(tmp_path):
    """The file finds kernels by OPFORGE_LIBRARY_PATH where nobody told it any."""
    built = library_for(of.load("opforge.ops:ClipSigmoid")).path
    onnx.save(formula_model("ClipSigmoid", lo=0.1, hi=0.7), tmp_path / "m.onnx")
    (tmp_path / "kernels").mkdir()
    shutil.copy(built, tmp_path / "kernels")
    ovc = Path(sys.executable).with_name("ovc")
    words = [str(ovc), "m.onnx", "--extension", str(_adapter.build_adapter()), "--output_model", "made.xml",
             "--compress_to_fp16", "False"]  # fmt: skip

    def call(path):
        given = os.environ | {"OPFORGE_LIBRARY_PATH": path}
        return subprocess.run(words, env=given, capture_output=True, text=True, cwd=tmp_path)

    failed = call("")
    assert "opforge: no operator is known" in failed.stdout + failed.stderr, failed
    done = call(str(tmp_path / "kernels"))
    assert (tmp_path / "made.bin").exists(), done.stdout + done.stderr
    x = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    (y,) = run(of.openvino.session(tmp_path / "made.xml", config=F32), x=x)
    np.testing.assert_array_equal(y, run(of.openvino.session(tmp_path / "m.onnx", config=F32), x=x)[0])
    assert re.search(r'lo="0\.1".*', (tmp_path / "made.xml").read_text())


def test_outputs_that_a_node_leaves_out():
    split = of.kernel(
        "test.ov::Both", "(x: T[n]) -> (sum: T[n], product: T[n])", types={"T": of.f32},
        sources=[str(BOTH)], reference=lambda x: (x + x, x * x),
    )  # fmt: skip
    try:
        for outputs, expected in ((["y"], [6, 8]), (["y", ""], [6, 8]), (["", "y"], [9, 16])):
            model = make_model([helper.make_node("Both", ["x"], outputs, domain="test.ov")], {"x": (FLOAT, [2])},
                               {"y": (FLOAT, [2])}, (("test.ov", 1),))  # fmt: skip
            (y,) = run(of.openvino.session(model), x=np.array([3, 4], np.float32))
            assert y.tolist() == expected
    finally:
        registry.unregister(split)


@pytest.mark.parametrize("route", ["adapter", "python"])
def test_an_output_of_a_fixed_dtype_meets_others(route):
    """The plugin makes i32 of the model's i64, and asks no node of ours."""
    operator = of.kernel(
        "test.ov::Rows", "(x: T[n]) -> (y: i64[n])", types={"T": of.f32},
        sources=[str(BOTH.parents[1] / "openvino" / "rows.cc")], reference=lambda x: 10 + (x != 0).astype(np.int64),
    )  # fmt: skip
    nodes = [
        helper.make_node("Rows", ["x"], ["r"], domain="test.ov"),
        helper.make_node("Add", ["r", "k"], ["s"]),
        helper.make_node("Sub", ["s", "ten"], ["i"]),
        helper.make_node("Gather", ["x", "i"], ["g"]),
    ]
    sides = ({"x": (FLOAT, ["N"]), "k": (INT64, [1])}, {"r": (INT64, None), "g": (FLOAT, None)})
    model = make_model(nodes, *sides, (("test.ov", 1),), constants=[helper.make_tensor("ten", INT64, [], [10])])
    try:
        compiled = of.openvino.session(model, config=F32, route=route)
        rows, gathered = run(compiled, x=np.array([0, 5, 7], np.float32), k=np.array([1]))
        assert (rows.tolist(), rows.dtype, gathered.tolist()) == ([10, 11, 11], np.int64, [5, 7, 7])
    finally:
        registry.unregister(operator)


def test_names_of_openvinos_own_operations_are_ours(monkeypatch):
    """The plugin knows operations by name; a Relu of another domain must not be taken for its own."""
    monkeypatch.setenv("OPFORGE_JIT", "off")  # formulas are interpreted: nothing to compile
    kinds = [
        of.formula(f"test.ov::{name}")(lambda x: x + 1) for name in ("Relu", "MatMul", "Gather", "Result", "Swish")
    ]
    try:
        for kind in kinds:
            model = formula_model(kind.name, domains=(("test.ov", 1),))
            (y,) = run(of.openvino.session(model, config=F32), x=np.zeros((2, 5), np.float32))
            assert (y == 1).all(), kind.name
    finally:
        for kind in kinds:
            registry.unregister(kind)


def test_elementwise_operators_take_any_order_of_axes():
    """OpenVINO moves transposes through what it knows to be elementwise."""
    of.load("opforge.ops")
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 1]),
        helper.make_node("CustomGELU", ["a"], ["b"], domain=DOMAIN),
        helper.make_node("ModSigmoid", ["b", "k"], ["c"], domain=DOMAIN),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 1]),
    ]
    model = make_model(nodes, {"x": (FLOAT, ["N", 3, 4]), "k": (FLOAT, [3])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),))
    x, k = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32), np.ones(3, np.float32)
    k[1] = 0.5
    expected = of.ops.mod_sigmoid(gelu(x).astype(np.float32).transpose(0, 2, 1), k).transpose(0, 2, 1)
    np.testing.assert_allclose(run(of.openvino.session(model, config=F32), x=x, k=k)[0], expected, rtol=1e-5, atol=1e-6)


# ---- errors


@pytest.mark.parametrize("route", ["adapter", "python"])
def test_dtypes_that_do_not_fit(route):
    nodes = [
        helper.make_node("Cast", ["x"], ["t"], to=INT32),
        helper.make_node("CustomGELU", ["t"], ["y"], domain=DOMAIN),
    ]
    model = make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (INT32, None)}, ((DOMAIN, 1),))
    with pytest.raises(DtypeError, match=r"(?s)a node does not fit its operator.*argument x: wrong dtype.*got: i32"):
        of.openvino.session(model, route=route)


@pytest.mark.parametrize("route", ["adapter", "python"])
def test_shapes_that_contradict(route):
    nodes = [helper.make_node("ModSigmoid", ["x", "t"], ["y"], domain=DOMAIN)]
    model = make_model(nodes, {"x": (FLOAT, [2, 4]), "t": (FLOAT, [3])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),))
    of.load("opforge.ops")
    with pytest.raises(ArgumentError, match=r"(?s)a node does not fit its operator.*shapes do not broadcast"):
        of.openvino.session(model, route=route)


def test_no_compiler(monkeypatch, tmp_path):
    """The adapter cannot be built: operators run through Python, which is said; asked for by name it is an error."""
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    state = engines[1].availability()
    assert state.ok and "our kernels run through Python" in state.reason and "no C++ compiler" in state.reason
    x = np.ones((2, 5), np.float32)
    with pytest.warns(RuntimeWarning, match=r"run through Python in OpenVINO.*no C\+\+ compiler"):
        compiled = of.openvino.session(formula_model(), config=F32)
    np.testing.assert_allclose(run(compiled, x=x)[0], gelu(x), rtol=1e-6)
    with pytest.raises(ToolchainError, match=r"(?s)no C\+\+ compiler works.*no-such-compiler"):
        of.openvino.session(formula_model(), route="adapter")
    monkeypatch.setenv("OPFORGE_JIT", "off")
    assert "OPFORGE_JIT=off" in _operators.python_reason()


def test_a_failed_build_is_told_and_remembered(monkeypatch, tmp_path):
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    whole = _adapter._recipe
    monkeypatch.setattr(
        _adapter,
        "_recipe",
        lambda *a: type(whole(*a))(**(vars(whole(*a)) | {"flags": ("-include", "no_such_header.h")})),
    )
    with pytest.raises(BuildError, match=r"(?s)no_such_header\.h"):
        of.openvino.build_adapter()
    with pytest.raises(BuildError, match=r"an earlier build of the adapter for OpenVINO"):
        of.openvino.build_adapter()
    with pytest.raises(BuildError, match=r"no_such_header"):
        of.openvino.session(formula_model(), route="adapter")
    with pytest.warns(RuntimeWarning, match=r"(?s)run through Python.*no_such_header"):
        of.openvino.session(formula_model())


def test_an_openvino_without_headers(monkeypatch, tmp_path):
    with pytest.raises(UnsupportedError, match=r"(?s)no C\+\+ headers and libraries.*install OpenVINO from its wheels"):
        _adapter._recipe(tmp_path, "2026.4")


def test_an_old_openvino(monkeypatch):
    monkeypatch.setattr(_adapter, "version", lambda: "2023.3.0")
    state = engines[0].availability()
    assert not state.ok and state.reason == "version 2023.3.0 is too old, 2025.0 is needed"
    assert state.hint == "pip install --upgrade openvino"
    monkeypatch.setattr(_session, "version", lambda: "2023.3.0")
    with pytest.raises(
        UnsupportedError, match=r"(?s)this OpenVINO is too old.*2025.0 or newer.*got: 2023.3.0.*upgrade"
    ):
        of.openvino.session(formula_model())


def test_no_openvino(monkeypatch):
    monkeypatch.setattr(_adapter, "find_spec", lambda name: None)
    state = engines[0].availability()
    assert not state.ok and state.hint == "pip install 'opforge[openvino]'"


def test_an_unknown_route():
    with pytest.raises(ArgumentError, match=r"(?s)unknown route.*auto, adapter or python.*'native'"):
        of.openvino.session(formula_model(), route="native")
