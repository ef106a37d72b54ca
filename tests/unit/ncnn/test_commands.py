"""The command line and the engine protocol."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.cli import main
from opforge.engines import Writer, writers
from opforge.engines.ncnn import Ncnn
from opforge.engines.ncnn._convert import RULES
from opforge.errors import UnsupportedError
from opforge.onnx import one_node_model
from tests.unit.ncnn.conftest import draw, model_of

ROOT = Path(__file__).parents[3]


@pytest.fixture
def invoke(capfd):
    """Run ``opforge WORDS...``: exit code, standard output, standard error."""

    def run(*words):
        code = main([str(word) for word in words])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def conv(onnx_file):
    model = model_of(
        [("Conv", "x w", "a", {}), ("com.example::CustomGELU", "a", "y", {})],
        {"x": (["N", 3, "H", 9], "f")},
        constants={"w": draw((4, 3, 3, 3))},
        imports=[("com.example", 1)],
    )
    return onnx_file(model)


def test_compile_writes_the_files_of_an_engine(invoke, conv, tmp_path):
    code, out, err = invoke("compile", conv, "--target", "ncnn", "--size", "H=7", "--package", "opforge.ops")
    assert code == 0, err
    assert "N is 1: ncnn has no batch, and Conv needs one" in out
    for suffix in ("param", "bin", "json"):
        assert f"model.ncnn.{suffix}" in out and (tmp_path / f"model.ncnn.{suffix}").is_file()
    _, out, _ = invoke("compile", conv, "--target", "ncnn", "-o", tmp_path / "to" / "net.param", "--json")
    said = json.loads(out)
    assert [Path(row["path"]).name for row in said["files"]] == ["net.param", "net.bin", "net.json"]
    model = Ncnn().load(tmp_path / "model.ncnn.param", threads=1)
    (info,) = model.inputs
    assert (info.name, info.dtype, info.shape) == ("x", np.float32, (1, 3, 7, 9))
    assert model.outputs == ["y"]
    assert model.run({"x": draw((1, 3, 7, 9))})["y"].shape == (1, 4, 5, 7)


def test_options_that_do_not_go_together_are_refused(invoke, conv):
    code, _, err = invoke("compile", conv, "--target", "ncnn", "--precision", "f16")
    assert code == 2 and "an option of opforge's own files" in err
    code, _, err = invoke("compile", conv, "--size", "H=7")
    assert code == 2 and "engines take sizes" in err and "--target" in err and "ncnn" in err


def test_nothing_is_written_of_a_model_that_cannot_be_converted(invoke, onnx_file, tmp_path):
    path = onnx_file(model_of([("Sign", "x", "y", {})], {"x": ([3], "f")}))
    code, _, err = invoke("compile", path, "--target", "ncnn")
    assert code == 2 and "Sign (y): ncnn has no layer for it" in err
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_compare_holds_it_against_onnx_runtime(invoke, onnx_file):
    path = onnx_file(one_node_model(of.load("opforge.ops:Swish")[0]))
    code, out, err = invoke("compare", path, "--engine", "ncnn", "--engine", "onnxruntime")
    assert code == 0, err
    assert "ncnn" in out


def test_the_engine_says_what_it_is(monkeypatch):
    engine = Ncnn()
    assert isinstance(engine, Writer) and writers()["ncnn"].name == "ncnn"
    assert engine.availability().version
    assert engine.traits().suffixes == (".onnx", ".param") and engine.traits().operators == ("kernels",)
    monkeypatch.setattr("opforge.engines.ncnn._engine.metadata.version", lambda name: "1.0.20250503")
    state = engine.availability()
    assert not state.ok and state.reason == "version 1.0.20250503 is too old, 1.0.20260114 is needed" and state.hint
    monkeypatch.setattr("opforge.engines.ncnn._engine.util.find_spec", lambda name: None)
    state = engine.availability()
    assert not state.ok and state.reason == "the package is not installed" and "opforge[ncnn]" in state.hint


def test_converting_imports_no_ncnn(conv, tmp_path):
    code = (
        "import sys, opforge as of; of.load('opforge.ops')\n"
        f"print(of.ncnn.convert({str(conv)!r}, {str(tmp_path / 'n.param')!r})); print('ncnn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['N is 1: ncnn has no batch, and Conv needs one']", "False"]


def test_the_page_names_every_operator_that_has_a_layer():
    words = set((ROOT / "docs" / "ncnn.md").read_text().replace(",", " ").replace("|", " ").split())
    assert set(RULES) <= words


def test_branches_have_no_form(onnx_file):
    from onnx import TensorProto, helper

    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])],
    )
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    path = onnx_file(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    with pytest.raises(UnsupportedError, match=r"(?s)input c: BOOL.*If \(y\): ncnn has no layer for it"):
        Ncnn().load(path)
