"""Comparing engines: several sets of inputs, data from folders, tolerances, crashes, precision."""

import json
import signal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.cli import main
from opforge.engines import TensorInfo
from opforge.errors import ArgumentError, CheckFailure, EngineCrash, OpforgeError
from opforge.verify import _engines, compare, random_inputs
from opforge.verify._measures import measure, ulps
from opforge.verify._process import EngineProcess
from opforge.verify._tolerances import Tolerances
from opforge.verify.precision import precision
from tests.unit.verify.engines_with_faults import Planted


def small(dtype=TensorProto.FLOAT, nodes=None, outputs=("y",)):
    nodes = nodes or [helper.make_node("Tanh", ["x"], ["t"], "tanh"), helper.make_node("Exp", ["t"], ["y"], "exp")]
    x = helper.make_tensor_value_info("x", dtype, ["n", 3])
    made = [helper.make_tensor_value_info(name, dtype, ["n", 3]) for name in outputs]
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], made), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )


@pytest.fixture
def path(tmp_path):
    onnx.save(small(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def shifted(by):
    """An engine as a function: exp(tanh(x)), and something added where x is large."""

    def run(inputs):
        x = inputs["x"]
        return {"y": np.exp(np.tanh(x)) + np.where(np.abs(x) > 50, np.float32(by), np.float32(0))}

    return run


def test_ulps_count_the_numbers_between():
    one = np.float32([1.0, -2.0, 0.0, np.nan])
    near = np.float32([np.nextafter(np.float32(1), np.float32(2)), -2.0, 1e-45, 3.0])
    found = ulps(near, one)
    assert found.largest == 1 and found.median == 1
    assert ulps(np.float16([1.0]), np.float64([1.0 + 2**-11])).largest == 0.5
    assert ulps(np.int32([1]), np.int32([2])) is None
    assert ulps(np.float32([np.nan]), np.float32([np.nan])) is None


def test_margin_and_places_of_not_a_number():
    a, b = np.array([1.0, np.nan, 3.0, np.inf]), np.array([1.5, 2.0, np.nan, np.inf])
    found = measure(a, b, rtol=0, atol=1)
    assert (found.misplaced, found.same_pattern, found.margin) == (2, False, np.inf)
    assert measure(a[:1], b[:1], rtol=0, atol=1).margin == 0.5
    assert measure(a[:1], a[:1], rtol=0, atol=0).margin == 0


@pytest.mark.parametrize(
    "dtype, passes", [("float64", False), ("float32", True), ("float16", True), ("int64", False), ("bool", False)]
)
def test_each_dtype_has_its_tolerance(dtype, passes):
    limit = Tolerances().of("y", np.dtype(dtype))
    assert measure(np.array([1.00005]), np.array([1.0]), rtol=limit.rtol, atol=limit.atol).passed == passes


def test_codes_may_be_one_step_apart_where_they_are_made():
    limits = Tolerances(makers={"y": "QuantizeLinear"})
    assert limits.of("y", np.dtype("uint8")).atol == 1
    assert limits.of("z", np.dtype("uint8")).atol == 0
    assert limits.of("y", np.dtype("int64")).atol == 0


def test_tolerances_by_name():
    def near(inputs):
        return {"y": inputs["x"] * np.float32(1.01)}

    def right(inputs):
        return {"y": inputs["x"]}

    x = {"x": np.float32([1, 2])}
    both = {"near": near, "right": right}
    assert not compare("unused", x, engines=both)
    assert compare("unused", x, engines=both, tolerances={"y": (0.02, 0)})
    assert compare("unused", x, engines=both, tolerances={"float32": (0.02, 0)})
    assert compare("unused", x, engines=both, rtol=0.02)
    with pytest.raises(
        ArgumentError, match=r"a tolerance is given for z(?s:.*)an output or an operator of the model: y"
    ):
        compare("unused", x, engines=both, tolerances={"z": (0.02, 0)})


def test_the_operator_that_makes_an_output_gives_its_tolerance(path):
    engines = {"shifted": shifted(0), "reference": path}
    result = compare(path, engines=engines, tolerances={"Exp": (0.5, 0.25)})
    assert (result.rows[0].limit.rtol, result.rows[0].limit.atol) == (0.5, 0.25)


def test_of_several_sets_the_worst_is_kept(path):
    engines = {"shifted": shifted(1), "reference": path}
    result = compare(path, engines=engines, sets=3)
    assert result and result.input_sets == ["seed 0", "seed 1", "seed 2"]
    sets = [
        {"x": np.zeros((1, 3), np.float32)},
        {"x": np.full((2, 3), 60, np.float32)},
        {"x": np.ones((1, 3), np.float32)},
    ]
    result = compare(path, sets, engines=engines)
    (row,) = result.rows
    assert not result and row.input_set == "1: given" and row.difference.max_abs == pytest.approx(1, rel=1e-5)


def test_folders_of_data(path, tmp_path):
    engines = {"shifted": shifted(0), "reference": path}
    arrays = {"x": np.float32([[1, 2, 3]])}
    for k in range(2):
        (tmp_path / "npz").mkdir(exist_ok=True)
        np.savez(tmp_path / "npz" / f"{k}.npz", **arrays)
    (tmp_path / "npy").mkdir()
    np.save(tmp_path / "npy" / "x.npy", arrays["x"])
    assert compare(path, tmp_path / "npz", engines=engines).input_sets == ["0.npz", "1.npz"]
    assert compare(path, tmp_path / "npy", engines=engines).input_sets == ["npy"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="the folder holds no inputs"):
        compare(path, tmp_path / "empty", engines=engines)


def test_stored_outputs_are_the_reference(path, tmp_path):
    for k, wrong in enumerate((0, 1)):
        folder = tmp_path / "data" / f"test_data_set_{k}"
        folder.mkdir(parents=True)
        x = np.float32([[k, 1, 2]])
        for name, array in (("input_0", x), ("output_0", np.exp(np.tanh(x)) + np.float32(wrong))):
            (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    result = compare(path, tmp_path / "data", engines=["reference"])
    assert result.reference == "stored" and not result
    assert result.rows[0].input_set == "test_data_set_1"
    assert compare(path, tmp_path / "data" / "test_data_set_0", engines=["reference"])
    (folder / "input_1.pb").write_bytes(b"\x00nonsense")
    with pytest.raises(ArgumentError, match="the folder holds more tensors than the model"):
        compare(path, tmp_path / "data", engines=["reference"])
    (folder / "input_1.pb").unlink()
    (folder / "input_0.pb").write_bytes(b"\xff\xff")
    with pytest.raises(ArgumentError, match="not a stored value"):
        compare(path, tmp_path / "data", engines=["reference"])


def test_ranges_and_classes_of_values():
    infos = [TensorInfo("x", np.dtype("f4"), (1000,)), TensorInfo("k", np.dtype("i4"), (1000,))]
    made = random_inputs(infos, ranges={"*": (-3, 7)})
    assert made["x"].min() < -2 and 6 < made["x"].max() <= 7 and set(made["k"]) == set(range(-3, 8))
    special = random_inputs(infos, values={"x": "special"})["x"]
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    tiny = np.abs(random_inputs(infos, values={"*": "tiny"})["x"])
    assert 0 < np.median(tiny) < np.finfo(np.float32).smallest_normal
    assert np.isfinite(np.square(random_inputs(infos, values={"*": "large"})["x"])).all()
    wide = np.log10(np.abs(random_inputs(infos, values={"*": "wide"})["x"]))
    assert wide.min() < -35 and wide.max() > 35
    assert (random_inputs(infos, values={"x": "normal"}, ranges={"x": (0, 1)})["x"] >= 0).all()
    with pytest.raises(ArgumentError, match="there is no class of values 'odd'"):
        random_inputs(infos, values={"x": "odd"})
    with pytest.raises(ArgumentError, match="there is no input 'z' to draw values for"):
        random_inputs(infos, ranges={"z": (0, 1)})
    with pytest.raises(ArgumentError, match="the range is empty"):
        random_inputs(infos, ranges={"x": (1, 0)})


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "float16"])
def test_values_without_dimensions_are_arrays(dtype):
    info = TensorInfo("c", np.dtype(dtype), ())
    for options in ({}, {"ranges": {"*": (0, 1)}}, {"values": {"*": "special"}}):
        made = random_inputs([info], **options)["c"]
        assert isinstance(made, np.ndarray) and made.dtype == dtype and made.shape == ()


def test_dtypes_and_missing_outputs_are_findings(path, monkeypatch):
    class Double(Planted):
        def load(self, model, *, threads=None):
            made = super().load(model, threads=threads)
            run = made.run
            made.run = lambda inputs: {"y": run(inputs)["y"].astype(np.float64)}
            return made

    known = _engines.engines()
    monkeypatch.setattr(_engines, "engines", lambda: {**known, "planted": Double("wrong", "nowhere")})
    result = compare(path, engines=["planted", "reference"])
    assert not result and result.rows[0].detail.startswith("dtype float64, expected float32; max |error|")
    # A function may well compute in float64.
    assert compare(
        path, engines={"wide": lambda i: {"y": np.exp(np.tanh(i["x"].astype(np.float64)))}, "reference": path}
    )
    more = {"more": lambda i: {"y": np.exp(np.tanh(i["x"])), "z": i["x"]}, "reference": path}
    assert [row.detail for row in compare(path, engines=more).rows if not row.passed] == [
        "the reference has no such output"
    ]
    less = {"less": lambda i: {"y": i["x"]}, "more": lambda i: {"y": i["x"], "z": i["x"]}}
    assert [row.detail for row in compare(path, {"x": np.ones(2)}, engines=less).rows if not row.passed] == [
        "there is no such output"
    ]


def test_an_engine_in_a_process_gives_the_same(path):
    pytest.importorskip("onnxruntime")
    x = {"x": np.float32([[1, 2, 3]])}
    with EngineProcess("onnxruntime") as held:
        loaded = held.load(path)
        assert [i.name for i in loaded.inputs] == ["x"] and list(loaded.outputs) == ["y"]
        np.testing.assert_allclose(loaded.run(x)["y"], np.exp(np.tanh(x["x"])), rtol=1e-6)
        with pytest.raises(ArgumentError, match="ONNX Runtime refused these inputs") as caught:
            loaded.run({"z": x["x"]})
        assert caught.value.where == "onnxruntime" and "z" in caught.value.got
        (path.parent / "broken.onnx").write_bytes(b"nonsense")
        with pytest.raises(OpforgeError, match="not an ONNX model"):
            held.load(path.parent / "broken.onnx")
        assert held.load(path).run(x)["y"].shape == (1, 3)


SAFE = """
import opforge as of

@of.formula("test.comparisons::Nothing")
def nothing(x):
    return x
"""


@pytest.mark.parametrize("fault", [signal.SIGSEGV, signal.SIGABRT, "exit", "hang"])
def test_a_process_that_is_lost_is_an_error(path, fault, tmp_path):
    """The fault is in an operator package that the process loads, so that it is lost as by an engine's fault."""
    action = {"exit": "os._exit(3)", "hang": "time.sleep(60)"}.get(fault) or f"os.kill(os.getpid(), {int(fault)})"
    package = tmp_path / "fault.py"
    package.write_text(f"import os, sys, time\nprint('last words', file=sys.stderr, flush=True)\n{action}\n{SAFE}")
    expected = {"exit": "ended with status 3", "hang": "no answer after 1 s"}
    words = expected.get(fault) or f"crashed, signal {int(fault)} .{signal.Signals(fault).name}"
    with EngineProcess("reference", packages=[str(package)], timeout=1 if fault == "hang" else None) as held:
        with pytest.raises(EngineCrash, match=words) as caught:
            held.load(path)
        assert fault == "hang" or "last words" in str(caught.value)
        if fault == "exit":  # the next load starts anew
            package.write_text(SAFE)
            assert list(held.load(path).outputs) == ["y"]


def test_a_crash_takes_nothing_else_down(path, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    package = tmp_path / "fault.py"
    fault = "import os, sys\nif 'opforge.verify._worker' in sys.orig_argv: os.kill(os.getpid(), 11)\n"
    package.write_text(fault + SAFE)
    words = [str(path), "--engine", "onnxruntime", "--engine", "opforge", "--engine", "reference"]
    code = main(["compare", *words, "--package", str(package), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 1 and not result["passed"]
    assert "crashed, signal 11 (SIGSEGV)" in result["crashed"]["onnxruntime"]
    assert [(row["engine"], row["passed"]) for row in result["rows"]] == [("opforge", True)]
    assert main(["compare", *words, "--package", str(package), "--in-process"]) == 0
    result = compare(path, engines=["onnxruntime", "opforge", "reference"], isolate=True, packages=[str(package)])
    with pytest.raises(CheckFailure, match="onnxruntime: the engine crashed"):
        result.require()


def test_precision_tells_own_errors_from_those_of_inputs(monkeypatch):
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], "sine"),
        helper.make_node("Exp", ["a"], ["b"], "exp"),
        helper.make_node("Mul", ["b", "b"], ["y"], "square"),
    ]
    known = _engines.engines()
    monkeypatch.setattr(_engines, "engines", lambda: {**known, "planted": Planted("half", "exp")})
    x = {"x": np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)}
    found = precision(small(nodes=nodes), x, ["planted", "reference"])
    rows = {(row.engine, row.node): row for row in found.rows}
    assert found.worst(1)[0].node == "exp" and found.worst(1)[0].engine == "planted"
    exp, square = rows["planted", "exp"], rows["planted", "square"]
    assert 100 < exp.roundings < 2**13 and exp.own == pytest.approx(exp.error, rel=0.01)
    assert square.roundings < 2 and square.error > 1e-5 and 1 < square.amplification < 2.5
    assert all(row.roundings < 2 for key, row in rows.items() if key[0] == "reference")
    assert found.as_dict()["rows"][0]["engine"] == "planted"


def test_precision_of_operators_of_ours(tmp_path):
    (gelu,) = (o for o in of.load("opforge.ops") if o.name == "CustomGELU")
    proto = of.onnx.one_node_model(gelu)
    found = precision(proto, {"x": np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)}, ["opforge"])
    (row,) = found.rows
    assert (row.operator, row.dtype) == ("com.example::CustomGELU", "float32") and 0 < row.roundings < 2


def test_the_command_writes_reports(path, tmp_path, capsys):
    words = ["compare", str(path), "--engine", "opforge", "--engine", "reference", "--sets", "2", "--values", "special"]
    code = main([*words, "--precision", "--bisect", "-o", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.md")])
    out = capsys.readouterr().out
    assert code == 0 and "ulp 50/99/100%" in out and "largest errors of their own against float64" in out
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["bisection"] == [] and {row["node"] for row in written["precision"]["rows"]} == {"tanh", "exp"}
    assert written["input_sets"] == ["seed 0", "seed 1"] and written["rows"][0]["ulps"]["largest"] < 4
    text = (tmp_path / "r.md").read_text()
    assert text.startswith("# m.onnx") and "| opforge | y |" in text and "## Precision" in text
    assert main([*words, "-o", str(tmp_path / "r.html")]) == 2
    assert "this kind of report is not written" in capsys.readouterr().err
    assert main([*words, "--range", "x=1"]) == 2 and "the range of x is no two numbers" in capsys.readouterr().err


def test_the_command_bisects(path, tmp_path, capsys, monkeypatch):
    known = _engines.engines()
    monkeypatch.setattr(_engines, "engines", lambda: {**known, "planted": Planted("wrong", "tanh")})
    words = ["compare", str(path), "--engine", "planted", "--engine", "reference", "--in-process", "--bisect"]
    assert main([*words, "--output", str(tmp_path / "r.md")]) == 1
    out = capsys.readouterr().out
    assert "first difference of planted, y: reference and planted part at Tanh tanh: max |error| 0.01" in out
    assert "part at Tanh tanh" in (tmp_path / "r.md").read_text()
