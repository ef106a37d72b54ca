"""The command line over every engine that is here: run, compare, bench."""

import json
import re

import numpy as np
import onnx
import pytest

import opforge as of
from opforge.cli import main
from opforge.cli._output import left_out
from opforge.onnx import one_node_model
from opforge.verify import _engines

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Three engines stand for all: tests/conformance/test_models.py runs the commands with every one."""
    known = {n: e for n, e in _engines.engines().items() if n in ("opforge", "onnxruntime", "reference")}
    monkeypatch.setattr(_engines, "engines", lambda: known)


@pytest.fixture(scope="module")
def swish(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "swish.onnx"
    onnx.save(one_node_model(of.load("opforge.ops:Swish")[0]), path)
    return path


def said(capsys, *words):
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_run_in_all_engines(swish, capsys):
    code, result = said(capsys, "run", str(swish), "--random", "--engine", "all")
    assert code == 0
    names = [run["engine"] for run in result["engines"]]
    assert names[0] == "opforge" and names[-1] == "reference"
    means = [run["outputs"]["y"]["mean"] for run in result["engines"]]
    assert max(means) - min(means) < 1e-6


def test_run_in_all_engines_writes_no_single_file(swish, capsys, tmp_path):
    code, result = said(capsys, "run", str(swish), "--random", "--engine", "all", "--output", str(tmp_path / "o.npz"))
    assert code == 2 and "--output keeps the outputs of one engine" in result["error"]["message"]


def test_run_without_inputs_names_them_once(swish, capsys):
    code, result = said(capsys, "run", str(swish), "--engine", "all")
    assert code == 2 and "the inputs are missing" in result["error"]["message"]


@pytest.mark.parametrize("command", ["run", "bench", "compare"])
def test_wrong_inputs_are_wrong_for_every_engine(command, swish, capsys, tmp_path):
    np.savez(tmp_path / "other.npz", z=np.zeros((2, 4), np.float32))
    code, result = said(capsys, command, str(swish), "--engine", "all", "--npz", str(tmp_path / "other.npz"))
    assert code == 2 and "there is no such input\n  expected: 'x'\n  got: 'z'" in result["error"]["message"]
    drawn = ["--random"] if command == "run" else []
    code, result = said(capsys, command, str(swish), *drawn, "--engine", "all", "--size", "M=3")
    assert code == 2 and "no input has a dimension M" in result["error"]["message"]


@pytest.mark.parametrize("command", ["run", "bench"])
def test_no_engine_runs_the_model(command, swish, capsys, tmp_path):
    np.savez(tmp_path / "text.npz", x=np.array(["a", "b"]))
    code, result = said(capsys, command, str(swish), "--engine", "all", "--npz", str(tmp_path / "text.npz"))
    assert code == 2 and "no engine runs the model" in result["error"]["message"]
    assert re.search(r"(got:|;) opforge: ", result["error"]["message"])
    assert "; reference: " in result["error"]["message"]


def test_compare_all_engines(swish, capsys):
    code, result = said(capsys, "compare", str(swish), "--engine", "all")
    assert code == 0 and result["passed"] and result["reference"] == "reference"
    assert {"opforge", "onnxruntime"} <= {row["engine"] for row in result["rows"]}


def test_an_engine_that_is_left_out_says_why_on_one_line(capsys):
    left_out(
        {"reference": "reference: it fails\n  expected: f32\n  got: " + "x" * 200 + "\nmore", "other": "takes .onnx"}
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first == "left out reference: it fails; got " + "x" * 160 + "..."
    assert second == "left out other: takes .onnx"
    left_out({"ncnn": "m: it cannot\n  expected: f32\n  got: \n    If (a): no layer\n    Abs: none\n  to do: simplify"})
    assert capsys.readouterr().out == "left out ncnn: m: it cannot; got If (a): no layer; Abs: none\n"


def test_bench_all_engines(swish, capsys):
    code, result = said(capsys, "bench", str(swish), "--engine", "all", "--threads", "1", "--rounds", "3")
    assert code == 0 and result["rounds"] == 3
    assert result["rows"][0]["engine"] == "opforge" and result["rows"][0]["ratio"] == 1
    assert main(["bench", str(swish), "--rounds", "3", "--threads", "1", "--size", "S0=8"]) == 0
    text = capsys.readouterr().out
    assert "opforge / it" in text and "medians of 3 interleaved blocks" in text


def test_bench_names_an_unknown_engine(swish, capsys):
    code, result = said(capsys, "bench", str(swish), "--engine", "nowhere")
    assert code == 2 and "there is no engine 'nowhere'" in result["error"]["message"]


@pytest.mark.parametrize("command", ["run", "bench"])
def test_an_engine_that_crashes_is_left_out(command, swish, capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    package = tmp_path / "fault.py"
    package.write_text(
        "import os, sys\nimport opforge as of\n"
        "if 'opforge.verify._worker' in sys.orig_argv: os.kill(os.getpid(), 11)\n"
        "@of.formula('test.crashing::Nothing')\ndef nothing(x):\n    return x\n"
    )
    more = ["--random"] if command == "run" else ["--rounds", "3", "--threads", "1"]
    code, result = said(capsys, command, str(swish), "--engine", "all", "--package", str(package), *more)
    assert code == 0 and "crashed, signal 11 (SIGSEGV)" in result["skipped"]["onnxruntime"]
    assert [row["engine"] for row in result["engines" if command == "run" else "rows"]] == ["opforge", "reference"]
