"""Engines: what they say of themselves, what they run, and their words."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.bin.engine import OpforgeEngine
from opforge.errors import (
    ArgumentError,
    CandidateError,
    DtypeError,
    MissingOperatorError,
    OpforgeError,
    UnsupportedError,
)
from opforge.onnx import one_node_model
from opforge.schema import registry
from opforge.verify import choose_engines, default_engines, engines, find_engine, random_inputs
from opforge.verify.benchmark import time_engines

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def swish(tmp_path_factory):
    """A one-node model of a formula operator."""
    path = tmp_path_factory.mktemp("models") / "swish.onnx"
    onnx.save(one_node_model(of.load("opforge.ops:Swish")[0]), path)
    return path


@pytest.fixture(scope="module")
def unknown(tmp_path_factory):
    """A model of a node that nobody knows."""
    path = tmp_path_factory.mktemp("models") / "unknown.onnx"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("What", ["x"], ["y"], domain="no.where")], "g", [x], [y])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("no.where", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def test_opforge_comes_first_and_all_say_whether_they_can_be_used():
    known = engines()
    assert next(iter(known)) == "opforge"
    assert {"onnxruntime", "reference"} <= set(known)
    for name, engine in known.items():
        state = engine.availability()
        assert engine.name == name
        assert state.version if state.ok else (state.reason and state.hint)


@pytest.mark.parametrize("name", ["opforge", "onnxruntime", "reference"])
def test_every_engine_runs_an_exported_operator(name, swish):
    model = find_engine(name).load(swish, threads=1)
    (info,) = model.inputs
    assert (info.name, info.dtype, len(info.shape)) == ("x", np.float32, 2)
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    (y,) = model.run({"x": x}).values()
    assert list(model.outputs) == ["y"]
    np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-6)


def test_a_loaded_model_may_be_run_by_several_threads_at_once(swish):
    """As a server does; `opforge stress` holds the same for longer."""
    shapes = [(2, 3), (40, 50), (1, 1), (7, 300)]
    arrays = [np.linspace(-3, 3, rows * columns, dtype=np.float32).reshape(rows, columns) for rows, columns in shapes]
    tried = []
    for name, engine in engines().items():
        if not engine.availability().ok or ".onnx" not in engine.traits().suffixes:
            continue
        try:
            run = find_engine(name).load(swish, threads=1).run
            first = [run({"x": x})["y"].copy() for x in arrays]
        except OpforgeError:
            continue  # other tests say which engine runs what
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda k, run=run: run({"x": arrays[k % 4]})["y"], range(200)))
        assert all(np.array_equal(y, first[k % 4]) for k, y in enumerate(found)), name
        tried.append(name)
    assert {"opforge", "onnxruntime", "reference"} <= set(tried)


@pytest.mark.parametrize("name", ["opforge", "onnxruntime", "reference"])
def test_every_engine_names_a_node_that_nobody_knows(name, unknown):
    with pytest.raises(MissingOperatorError) as caught:
        find_engine(name).load(unknown)
    assert "What" in str(caught.value)


@pytest.mark.parametrize("name", ["opforge", "onnxruntime", "reference"])
def test_a_wrong_input_is_the_callers_mistake(name, swish):
    model = find_engine(name).load(swish)
    with pytest.raises((ArgumentError, TypeError)):
        model.run({"z": np.zeros((2, 2), np.float32)})


def test_the_reference_computes_kernel_operators(tmp_path):
    sparse = of.load("opforge.ops:SparseMatMul")[0]
    model = one_node_model(sparse, dtypes={"T": "f64", "I": "i32"})
    del model.functions[:]
    onnx.save(model, tmp_path / "sparse.onnx")
    inputs = {
        "values": np.array([1.0, 2.0, 3.0]),
        "indices": np.array([0, 2, 1], np.int32),
        "indptr": np.array([0, 2, 2, 3], np.int32),
        "dense": np.arange(6.0).reshape(3, 2),
    }
    (out,) = find_engine("reference").load(tmp_path / "sparse.onnx").run(inputs).values()
    assert out.tolist() == [[8.0, 11.0], [0.0, 0.0], [6.0, 9.0]]
    assert default_engines(tmp_path / "sparse.onnx") == ("opforge", "reference")
    assert of.compare(tmp_path / "sparse.onnx", inputs, engines=("opforge", "reference"))


def test_the_reference_gives_declared_dtypes_where_an_input_is_absent(tmp_path):
    """The outputs' dtypes are the schema's, also those that no input has."""
    counted = registry.register(
        of.Operator(
            "test.engines",
            "Counted",
            "(x: T[n], w?: T[n], mask?: bool[n]) -> (y: T[n], count: i64[])",
            types="T: f32",
            reference_function=lambda x, w, mask: (x * (1 if w is None else w), np.sum(mask)),
        )
    )
    source = """
    <ir_version: 9, opset_import: ["" : 20, "test.engines" : 1]>
    graph (float[n] x, bool[n] mask) => (float[n] y, int64 count) { y, count = test.engines.Counted(x, "", mask) }
    """
    try:
        onnx.save(onnx.parser.parse_model(source), tmp_path / "counted.onnx")
        inputs = {"x": np.ones(3, np.float32), "mask": np.array([True, False, True])}
        y, count = find_engine("reference").load(tmp_path / "counted.onnx").run(inputs).values()
    finally:
        registry.unregister(counted)
    assert (y.dtype, count.dtype, count.tolist()) == (np.float32, np.int64, 2)


def test_the_reference_knows_the_defaults_of_bodies(tmp_path):
    gate = of.formula("test.engines::Gate")(lambda x, *, gain=2.0: x * gain)
    try:
        model = one_node_model(gate)
    finally:
        registry.unregister(gate)
    del model.graph.node[0].attribute[:]
    onnx.save(model, tmp_path / "gate.onnx")
    (y,) = find_engine("reference").load(tmp_path / "gate.onnx").run({"x": np.ones((2, 2), np.float32)}).values()
    assert y.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_model_with_bodies_is_held_against_onnx_runtime(swish):
    assert default_engines(swish) == ("opforge", "onnxruntime")


def test_every_engine_says_what_it_can_do():
    for engine in engines().values():
        if engine.availability().ok:
            engine.prepare()
            traits = engine.traits()
            assert "cpu" in traits.devices and "float32" in traits.dtypes and ".onnx" in traits.suffixes
            assert set(traits.operators) <= {"kernels", "bodies", "reference"} and traits.operators


@pytest.mark.parametrize("name", [n for n, e in engines().items() if n != "reference" and e.availability().ok])
def test_an_engine_measures_its_nodes(name, swish):
    x = {"x": np.ones((64, 64), np.float32)}
    times = find_engine(name).profile(swish, x, runs=3, threads=1)
    assert times and {t.runs for t in times} == {3}
    assert all(t.operator and t.device and t.nanoseconds >= 0 for t in times)
    with pytest.raises(ArgumentError, match=r"there is no such input|ONNX Runtime refused these inputs"):
        find_engine(name).profile(swish, {"z": x["x"]}, runs=3, threads=1)


@pytest.mark.parametrize("name", ["opforge", "openvino", "litert", "ncnn"])
def test_wrong_inputs_are_refused_in_the_same_words(name, swish):
    if not find_engine(name).availability().ok:
        pytest.skip(f"{name} is not installed")
    loaded = find_engine(name).load(swish, threads=1)
    x = np.ones((64, 64), np.float32)
    with pytest.raises(ArgumentError, match=r"(?s)there is no such input.*expected: 'x'.*got: 'X'.*did you mean 'x'"):
        loaded.run({"X": x})
    with pytest.raises(ArgumentError, match=r"(?s)inputs are missing.*expected: 'x'.*got: nothing for 'x'"):
        loaded.run({})
    with pytest.raises(DtypeError, match=r"(?s)input 'x': an input has the wrong dtype.*float32.*float64.*\.astype"):
        loaded.run({"x": x.astype(np.float64)})


def test_the_evaluator_measures_nothing(swish):
    with pytest.raises(UnsupportedError, match="measures no nodes"):
        find_engine("reference").profile(swish, {"x": np.ones((2, 2), np.float32)})


def test_all_stands_for_every_engine_that_is_here_with_the_evaluator_last(swish, monkeypatch):
    names, skipped = choose_engines(["all"], swish)
    assert names[0] == "opforge" and names[-1] == "reference" and "onnxruntime" in names
    assert set(names) | set(skipped) == set(engines())
    names, skipped = choose_engines(["reference", "all"], swish)
    assert names[0] == "reference" and names.count("reference") == 1
    monkeypatch.setattr("opforge._paths.runtime_library", lambda: Path("/nowhere/libopforge.so"))
    names, skipped = choose_engines(["all"], swish)
    assert "opforge" not in names and "make native" in skipped["opforge"]


def test_a_bin_is_for_opforge_alone(swish, tmp_path):
    of.compile(swish, tmp_path / "swish.bin")
    names, skipped = choose_engines(["all"], tmp_path / "swish.bin")
    assert names == ["opforge"]
    assert skipped["reference"] == "takes .onnx"


def test_comparing_all_leaves_out_what_cannot_run_the_model(swish, monkeypatch):
    def refuse(self, model, *, threads=None):
        raise UnsupportedError("no such node", where=self.name)

    monkeypatch.setattr("opforge.engines.onnxruntime.OnnxRuntime.load", refuse)
    result = of.compare(swish, engines=["all"])
    assert result and result.reference == "reference"
    assert {"opforge", "reference"} <= set(result.outputs)
    assert result.skipped["onnxruntime"] == "onnxruntime: no such node"
    with pytest.raises(UnsupportedError):
        of.compare(swish, engines=["onnxruntime", "reference"])
    with pytest.raises(ArgumentError, match=r"(?s)fewer than two engines run the model.*no such node"):
        of.compare(swish, engines={"onnxruntime": swish, "reference": swish}, optional=["onnxruntime"])


def test_a_node_without_a_body_runs_by_its_kernel_in_onnx_runtime(tmp_path):
    model = one_node_model(of.load("opforge.ops:Swish")[0])
    del model.functions[:]
    onnx.save(model, tmp_path / "bare.onnx")
    result = of.compare(tmp_path / "bare.onnx", engines=["all"])
    assert result and {"onnxruntime", "onnxruntime-kernels"} <= set(result.outputs)


def test_timing_names_every_engine_once_and_holds_them_against_the_first(swish):
    names = ["opforge", "onnxruntime"]
    result = time_engines(swish, lambda infos: random_inputs(infos, sizes={"S0": 64}), names, rounds=3, threads=1)
    assert [row.engine for row in result.rows] == names
    assert result.rows[0].ratio == 1 and result.rows[0].max_abs == 0
    assert all(0 < row.best_ms <= row.median_ms and row.max_abs < 1e-5 for row in result.rows)


def test_an_engine_that_cannot_be_used_says_why(monkeypatch):
    monkeypatch.setattr("opforge._paths.runtime_library", lambda: Path("/nowhere/libopforge.so"))
    assert not OpforgeEngine().availability().ok
    with pytest.raises(CandidateError) as caught:
        find_engine("opforge")
    assert "opforge: /nowhere/libopforge.so is missing" in str(caught.value)
    assert "make native" in str(caught.value)


@pytest.mark.parametrize("opset", [9, 12, 15])
def test_batch_normalization_is_not_in_training(opset, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    parts = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in ("scale", "bias", "mean", "var")}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3, 4]) for n in ("x", "y")]
    node = helper.make_node("BatchNormalization", ["x", *parts], ["y"], momentum=0.9)
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in parts.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), tmp_path / "b.onnx"
    )
    (y,) = find_engine("reference").load(tmp_path / "b.onnx").run({"x": x}).values()
    scale, bias, mean, var = (array[None, :, None] for array in parts.values())
    np.testing.assert_allclose(y, scale * (x - mean) / np.sqrt(var + 1e-5) + bias, rtol=1e-5, atol=1e-6)
