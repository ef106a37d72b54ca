"""`opforge stress` finds planted faults and says what they are; a crash, an interrupt or a hang leaves the report."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.errors import ArgumentError, MissingOperatorError
from opforge.schema import registry
from opforge.verify.stress import Spec, stress
from tests.notices import without_notices
from tests.unit.stress import planted

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = planted.write(tmp_path_factory.mktemp("planted") / "faults")
    first = of.load(place)[0]
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(first(x), 2 * x)  # built here, once, for every process
    yield place
    for operator in list(registry.operators().values()):
        if operator.domain == "test.stress":
            registry.unregister(operator)


@pytest.fixture
def run(folder, tmp_path):
    def stressed(name, seconds=1.0, **options):
        spec = Spec(f"{folder}:{name}", seconds=seconds, threads=options.pop("threads", 3), **options)
        report = stress(spec, tmp_path / "out")
        assert json.loads((tmp_path / "out" / "stress.json").read_text())["passed"] == report.passed
        assert (tmp_path / "out" / "stress.txt").read_text() == report.text()
        return report

    return stressed


def words(report):
    return {verdict.check: verdict.words for verdict in report.verdicts}


def failed(report):
    return {verdict.check for verdict in report.verdicts if verdict.passed is False}


def test_a_sound_operator_passes(run):
    report = run("Sound")
    assert report.passed, report.text()
    said = words(report)
    assert said["threads"] == "thread-safe: 3 callers at once get the first results, bit for bit"
    assert said["repeatable"].startswith("repeatable")
    assert said["errors"] == "no errors"
    figures = report.as_dict()
    assert figures["alone"]["runs"] >= 3
    assert figures["together"]["runs"] >= 9
    assert figures["alone"]["runs"] + figures["together"]["runs"] == figures["runs"]
    assert {case["name"] for case in figures["cases"]} == {f"Sound · n={n} · f32" for n in (300, 7, 1)}
    latency = figures["together"]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    rows = figures["memory"]["samples_bytes"]
    assert rows and rows[0][2], "RSS, and at the first PSS too"
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_a_run_that_is_too_short_calls_every_case_all_the_same(run):
    figures = run("Sound", 1e-9).as_dict()
    assert (figures["alone"]["runs"], figures["together"]["runs"]) == (3, 9)
    assert [(row["alone"]["runs"], row["together"]["runs"]) for row in figures["cases"]] == [(1, 3)] * 3


def test_a_leak(run):
    for seconds in (1.5, 6, 24, 96):  # so long as the report asks for: a busy machine may call it seldom
        report = run("Leak", seconds)
        if "run longer" not in report.text() and figures_of_calls(report) > 2000:
            break
    assert "memory" in failed(report), report.text()
    assert words(report)["memory"].startswith("MEMORY GROWS: about")
    per_call = float(words(report)["memory"].split()[3])
    assert 1500 < per_call < 3500


def figures_of_calls(report):
    return report.as_dict()["memory"]["span"]


def test_scratch_that_calls_share(run):
    report = run("Race", 1.5)
    assert failed(report) == {"threads"}, report.text()
    assert "NOT THREAD-SAFE" in words(report)["threads"]
    assert "alone the same cases always give the first results" in words(report)["threads"]
    (failure,) = report.failures
    assert failure["kind"] == "mismatch"
    assert "elements differ" in failure["text"]


def test_results_that_are_never_twice_the_same(run):
    report = run("Drift", 0.6)
    assert failed(report) == {"repeatable"}, report.text()
    assert "NOT REPEATABLE" in words(report)["repeatable"]
    assert words(report)["threads"].startswith("threads not judged")


def test_a_crash_is_reported_with_its_inputs(run, folder, tmp_path):
    report = run("Crash")
    assert failed(report) == {"process"}, report.text()
    assert words(report)["process"] == "CRASHED (SIGSEGV)"
    assert "while it computed Crash · n=" in report.text()
    assert "a kernel reads or writes beyond a tensor" in report.text()
    assert ":Crash --sanitize address names the line" in report.text()
    assert "RuntimeWarning" not in report.text()
    failure = report.failures[0]
    assert failure["kind"] == "crash"
    assert "Segmentation fault" in failure["text"]
    with np.load(failure["npz"]) as data:
        assert data["x"].dtype == np.float32
    # What the report says repeats it: here with the sound operator, which ends well.
    code = failure["reproduce"].replace('"Crash"', '"Sound"').replace(":Crash", ":Sound")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_an_interrupt_leaves_the_report(folder, tmp_path, number, name):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "opforge", "stress", f"{folder}:Sound", "--duration", "5m", "--out", str(out)]
    (tmp_path / "tmp").mkdir()
    own = environment() | {"TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)
    while process.poll() is None and not list((tmp_path / "tmp").glob("opforge-stress-*")):
        time.sleep(0.02)  # until it watches, it dies as every process does
    time.sleep(2.0)
    process.send_signal(number)
    said, problems = process.communicate(timeout=120)
    content = json.loads((out / "stress.json").read_text())
    assert content["interrupted"] == name
    assert process.returncode == (130 if content["passed"] else 1), said + problems
    if content["runs"]:  # a slow machine may not have begun
        assert f"ended early by {name}" in (out / "stress.txt").read_text()
    assert without_notices(problems) == ""


def test_a_hang_is_ended_and_reported(run):
    report = run("Hang", 600, patience=4.0)
    assert failed(report) == {"process"}, report.text()
    assert words(report)["process"] == "HUNG"
    failure = report.failures[0]
    assert failure["kind"] == "hang"
    assert "invoke.py" in failure["text"], "where its threads were"
    assert failure["npz"].endswith(".npz")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Rows that are gathered by indices, so that a wrong index is an error at run time."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"], axis=0), helper.make_node("Softmax", ["g"], ["y"], axis=-1)]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"]),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["picked"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["picked", "columns"])],
    )
    path = tmp_path_factory.mktemp("model") / "rows.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    of.compile(path, path.with_suffix(".bin"))
    return path


def test_errors_are_counted_and_the_first_is_kept(opforge, model, tmp_path):
    inputs = {"x": np.ones((4, 3), np.float32), "i": np.array([0, 3])}
    np.savez(tmp_path / "good.npz", **inputs)
    np.savez(tmp_path / "bad.npz", **(inputs | {"i": np.array([0, 9])}))
    words = ["--npz", tmp_path / "good.npz", "--npz", tmp_path / "bad.npz"]
    out = tmp_path / "out"
    done = opforge("stress", model.with_suffix(".bin"), *words, "--duration", "0.5", "--threads", 2, "--out", out)
    assert done.code == 1
    assert "ERRORS: ArgumentError" in done.out
    assert without_notices(done.err) == "", "no progress where there is no terminal"
    content = json.loads((out / "stress.json").read_text())
    (failure,) = content["failures"]
    assert failure["case"] == "bad.npz"
    assert sum(content["errors"].values()) > 1
    with np.load(failure["npz"]) as data:
        assert data["i"].tolist() == [0, 9]
    again = opforge(*failure["reproduce"].split()[1:])
    assert again.code == 2
    assert "index 9 is out of range" in again.err


def test_shapes_change_and_other_engines_run(opforge, model, tmp_path):
    run = partial(opforge, "stress", model, "--duration", "0.4", "--threads", 2, "--out", tmp_path / "out", "--json")
    content = run("--shapes", "rows=100,120", "--shapes", "columns=1,7", "--engine", "onnxruntime").json
    assert content["passed"], content["verdicts"]
    assert [case["name"] for case in content["cases"]] == [f"rows={r} columns={c}" for r in (100, 120) for c in (1, 7)]
    assert content["engine"] == "onnxruntime"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--duration", "soon"], "this is no time"),
        (["--shapes", "rows=a"], "the sizes of rows are no numbers"),
        (["--shapes", "lines=1,2"], "no input has a dimension lines"),
        (["--shapes", "rows=" + ",".join(map(str, range(1, 80)))], "too many combinations of sizes"),
    ],
)
def test_wrong_use(opforge, model, words, said):
    done = opforge("stress", model, "--out", model.parent / "out", *words)
    assert done.code == 2, done.out
    assert said in done.err


def test_wrong_targets(opforge, tmp_path, folder):
    assert "there is no such model" in opforge("stress", tmp_path / "no.bin").err
    assert "--shapes and --npz are for models" in opforge("stress", f"{folder}:Sound", "--shapes", "n=1").err
    with pytest.raises(MissingOperatorError, match="no such operator"):
        stress(Spec(f"{folder}:Nothing"), tmp_path)
    with pytest.raises(ArgumentError, match="there is no such host"):
        stress(Spec(f"{folder}:Sound", host="nowhere"), tmp_path)
