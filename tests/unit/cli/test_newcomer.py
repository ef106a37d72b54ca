"""The first hour: every command on a new operator, and what it prints."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler


def test_help_teaches(opforge):
    result = opforge()
    assert result.code == 0
    assert "opforge new MyGate" in result.out
    assert "Exit codes: 0 good, 1 a check or comparison failed, 2 wrong use or bad input." in result.out
    names = ["new", "check", "build", "export", "simplify", "compile", "run", "compare", "inspect", "doctor"]
    for name in names:
        text = opforge(name, "--help")
        assert text.code == 0
        assert "--json" in text.out, name
    assert [line.split()[0] for line in result.out.split("Commands:")[1].splitlines()[1:11] if line.strip()][
        :2
    ] == names[:2]


def test_what_frameworks_tell_their_developers_is_not_shown(opforge, folder):
    """JAX warns of every fork, PyTorch of what it deprecates; the place is a file of theirs."""
    text = """
import warnings

import opforge as of

warnings.warn_explicit("os.fork() was called", RuntimeWarning, "/lib/jax/_src/xla_bridge.py", 1)
warnings.warn_explicit("os.fork() was called. It may", RuntimeWarning, "/lib/python3/subprocess.py", 1)
warnings.warn_explicit("a step is ill-conditioned", RuntimeWarning, "/home/me/op.py", 1)


@of.formula("local.test::Shown")
def shown(x):
    return x + 1
"""
    (folder / "shown.py").write_text(text)
    result = opforge("check", "shown.py", "--level", "quick")
    assert result.code == 0, result.out + result.err
    assert "os.fork" not in result.err
    assert "warning: a step is ill-conditioned" in result.err


def test_version(opforge):
    assert opforge("--version").out.startswith("opforge, version ")


def test_new_writes_a_formula(opforge, folder):
    result = opforge("new", "MyGate")
    assert result.code == 0
    assert "next: edit my_gate/op.py, then opforge check my_gate" in result.out
    assert sorted(p.name for p in (folder / "my_gate").iterdir()) == ["README.md", "cases.py", "op.py"]
    assert [p.name for p in folder.iterdir()] == ["my_gate"], "no temporary folder stays"


def test_new_writes_a_project_that_can_be_checked_before_it_is_installed(opforge, folder):
    result = opforge("new", "PackedGate", "--package")
    assert result.code == 0
    assert "opforge build packed_gate --wheel makes a wheel of it" in result.out
    source = folder / "packed_gate" / "src" / "packed_gate_op"
    assert (source / "packed_gate" / "op.py").is_file()
    entry = (folder / "packed_gate" / "pyproject.toml").read_text()
    assert '[project.entry-points."opforge.operators"]\npacked_gate_op = "packed_gate_op"' in entry
    result = opforge("check", "packed_gate", "--level", "quick")
    assert result.code == 0, result.out + result.err


def test_headers_go_into_the_wheel(opforge, folder):
    """A kernel that is built where the package is installed reads them."""
    assert opforge("new", "PackedGate", "--package").code == 0
    written = folder / "packed_gate" / "pyproject.toml"
    example = Path(__file__).parents[3] / "examples" / "operator_package" / "pyproject.toml"
    for project in (written, example):
        data = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["*"]
        assert {"*.cc", "*.cu", "*.h", "*.hh", "*.hpp", "*.cuh", "*.inc", "_lib/*"} <= set(data), project


def test_new_refuses_what_is_there(opforge, folder):
    (folder / "my_gate").mkdir()
    (folder / "my_gate" / "op.py").write_text("mine")
    result = opforge("new", "MyGate")
    assert result.code == 2
    assert "the folder is not empty" in result.err
    assert (folder / "my_gate" / "op.py").read_text() == "mine"


@pytest.mark.parametrize(("name", "hint"), [("my_gate", "write MyGate"), ("3bad", "CamelCase"), ("Class", "CamelCase")])
def test_new_names(opforge, folder, name, hint):
    result = opforge("new", name)
    assert result.code == 2
    assert "this is no operator name" in result.err
    assert hint in result.err
    assert not list(folder.iterdir())


def test_new_domain(opforge, folder):
    result = opforge("new", "Ok", "--domain", "Two Words")
    assert (result.code, "this is no operator domain" in result.err) == (2, True)


def test_check_of_both_kinds(opforge, gate):
    for name, count in (("my_gate", 1), ("row_scale", 2)):
        result = opforge("check", gate / name, "--level", "quick")
        assert result.code == 0, result.out
        assert result.out.count("checks passed") == count
    assert "all 2 operators passed" in result.out


def test_check_as_json(opforge, gate):
    content = opforge("check", f"{gate}/my_gate:MyGate", "--level", "quick", "--json").json
    assert content["passed"] is True
    (report,) = content["reports"]
    assert report["subject"] == "local.test::MyGate"
    assert {"check", "case", "host", "dtype", "passed", "detail"} == set(report["rows"][0])


def test_build_puts_the_library_where_it_is_found(opforge, folder, gate):
    result = opforge("build", gate / "row_scale", "--out", folder / "libraries")
    assert result.code == 0
    assert "made libraries/local_test.so (" in result.out
    shown = opforge("inspect", folder / "libraries" / "local_test.so")
    assert "local.test::RowScale:1" in shown.out
    assert "(x: T[m, n], w: T[m]; scale: float = 1.0) -> (y: T[m, n])" in shown.out
    content = opforge("inspect", folder / "libraries" / "local_test.so", "--json").json
    assert {o["name"] for o in content["operators"]} == {"RowScale", "RowScaleGradW"}


def test_export_of_an_operator(opforge, folder, gate):
    target = f"{gate}/my_gate:MyGate"
    result = opforge("export", target, "--dtype", "T=f16", "--attribute", "scale=0.5")
    assert result.code == 0
    assert "wrote MyGate.onnx (" in result.out
    assert "1 node, 1 function body" in result.out
    assert "domains: ai.onnx 20, local.test 1" in result.out
    import onnx

    model = onnx.load("MyGate.onnx")
    assert model.graph.node[0].attribute[0].f == 0.5
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_export_says_what_there_is(opforge, gate):
    result = opforge("export", gate / "my_gate")
    assert result.code == 2
    assert f"write {gate}/my_gate:MyGate" in result.err


def test_simplify_leaves_the_node(opforge, folder, gate):
    result = opforge("simplify", gate / "gate.onnx", "-o", "small.onnx", "--package", gate / "my_gate")
    assert result.code == 0
    assert "nothing to simplify: 1 node" in result.out
    content = opforge("simplify", gate / "gate.onnx", "-o", "small.onnx", "--json").json
    assert content["nodes"] == {"before": 1, "after": 1}
    assert content["kinds"] == {"local.test::MyGate": [1, 1]}


def test_run_and_its_figures(opforge, folder, gate):
    np.save("x.npy", np.array([[0.0, 1.0]], np.float32))
    result = opforge("run", gate / "gate.bin", "--input", "x=x.npy", "--output", "y.npz")
    assert result.code == 0, result.err
    assert "input x: float32[1, 2]" in result.out
    y = np.load("y.npz")["y"]
    np.testing.assert_allclose(y, [[0.0, 1 / (1 + np.exp(-1))]], rtol=1e-6)
    content = opforge("run", gate / "gate.bin", "--random", "--size", "S0=3", "--repeat", "3", "--json").json
    assert content["outputs"]["y"]["shape"] == [3, 2]
    assert content["runs"] == 3


def test_run_writes_nan_as_text(opforge, folder, gate):
    np.save("x.npy", np.full((1, 2), np.nan, np.float32))
    figures = opforge("run", gate / "gate.bin", "--input", "x=x.npy", "--json").json["outputs"]["y"]
    assert (figures["non_finite"], figures["max"]) == (2, None)


def test_run_of_a_kernel_operator_compiles_what_its_package_declares(opforge, gate):
    result = opforge("run", gate / "row.bin", "--random", "--package", gate / "row_scale", "--size", "m=5")
    assert result.code == 0, result.err
    assert "float32[5]" in result.out


def test_compare_of_both_kinds(opforge, gate):
    result = opforge("compare", gate / "gate.onnx", "--bin", gate / "gate.bin", "--size", "S1=7")
    assert result.code == 0, result.err
    assert "against onnxruntime, allowed |error| <= 1e-05 + 0.0001*|expected|" in result.out
    result = opforge("compare", gate / "row.onnx", "--package", gate / "row_scale")
    assert result.code == 0, result.err
    assert "against reference" in result.out, "ONNX Runtime has no body for a kernel operator"


def test_compare_fails_by_tolerance(opforge, gate):
    words = [
        "compare",
        gate / "gate.onnx",
        "--package",
        gate / "my_gate",
        "--rtol",
        "0",
        "--atol",
        "0",
        "--size",
        "S1=999",
    ]
    result = opforge(*words)
    assert result.code == 1
    assert "FAILED opforge, y: max |error|" in result.out
    content = opforge(*words, "--json").json
    assert content["passed"] is False
    assert content["rows"][0]["engine"] == "opforge"


def test_inspect_of_a_bin(opforge, gate):
    result = opforge("inspect", gate / "gate.bin", "--nodes")
    assert result.code == 0
    for text in ("bytecode", "opforge::Formula", "[S0, S1]", "made with local.test::MyGate:1"):
        assert text in result.out
    content = opforge("inspect", gate / "gate.bin", "--sections", "--json").json
    sections = {section["name"]: section for section in content["sections"]}
    assert sections["program"]["offset"] % 64 == 0
    needs = opforge("inspect", gate / "row.bin", "--json").json["required_operators"]
    assert [(n["domain"], n["name"], n["since_version"]) for n in needs] == [("local.test", "RowScale", 1)]


def test_inspect_of_a_model(opforge, gate):
    content = opforge("inspect", gate / "gate.onnx", "--json").json
    assert content["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["S0", "S1"], "kind": "tensor"}]
    assert content["functions"] == ["local.test::MyGate"]
    assert content["problems"] == []


def test_doctor(opforge):
    result = opforge("doctor", "--json")
    names = {row["name"] for row in result.json["rows"]}
    assert {"python", "C++ compiler", "build cache", "torch", "onnxruntime", "engine opforge"} <= names
    assert result.code == (0 if result.json["ok"] else 1)
    assert "C++ compiler" in opforge("doctor").out


_NET = """
import torch
import opforge as of

(gate,) = of.load({gate!r})

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 8)

    def forward(self, x):
        return gate(self.fc(x), scale=0.5)

def make():
    options = {{"dynamic_shapes": ({{0: "N"}},), "input_names": ["x"], "output_names": ["y"]}}
    return Net(), (torch.zeros(2, 16),), options
"""


@pytest.mark.torch
@pytest.mark.parametrize("exporter", [[], ["--no-dynamo"]], ids=["dynamo", "torchscript"])
def test_a_torch_module_to_a_bin(opforge, folder, gate, exporter):
    (folder / "net.py").write_text(_NET.format(gate=f"{gate}/my_gate:MyGate"))
    result = opforge("export", "net.py:make", "-o", "net.onnx", *exporter)
    assert result.code == 0, result.err
    assert "custom nodes: local.test::MyGate x 1" in result.out
    assert opforge("inspect", "net.onnx", "--json").json["inputs"] == [
        {"name": "x", "dtype": "f32", "shape": ["N", 16], "kind": "tensor"}
    ]
    result = opforge("compile", "net.onnx")
    assert "MatMul + local.test::MyGate 1" in result.out, "the activation runs inside the matrix product"
    content = opforge(
        "compare", "net.onnx", "--torch", "net.py:make", "--bin", "net.bin", "--size", "N=5", "--json"
    ).json
    assert content["passed"]
    assert [row["engine"] for row in content["rows"]] == ["torch", "opforge"]
