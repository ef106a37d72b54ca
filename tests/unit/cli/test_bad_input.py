"""Wrong use and bad input: exit code, words, no traceback, nothing half-written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from tests.unit.verify.faulty import declare, forget

pytestmark = pytest.mark.compiler

SOURCE = Path(of.__file__).parents[1]


def model(path, nodes, *, imports=(("", 20),), inputs=("x",), output="y", tensors=()):
    """A small float model."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in inputs]
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", values, [result], list(tensors))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*i) for i in imports], ir_version=10)
    onnx.save(made, path)
    return path


def refused(result, *texts, code=2):
    """Assert an error with these words on standard error, and nothing on standard output."""
    assert result.code == code, (result.out, result.err)
    assert result.out == ""
    # A notice (what is compiled, what torch logs) may stand before it.
    assert any(line.startswith("error: ") for line in result.err.splitlines())
    assert "Traceback" not in result.err
    for text in texts:
        assert text in result.err
    return result


def nothing_new(folder, *known):
    """Assert that nothing but these files lies in the folder."""
    assert sorted(p.name for p in folder.iterdir()) == sorted(known)


def test_unknown_command(opforge):
    refused(opforge("chekc", "x"), "there is no command 'chekc'; did you mean check?")


def test_missing_argument(opforge):
    refused(opforge("check"), "Missing argument 'TARGET'", "see opforge check --help")


def test_errors_as_json(opforge, folder):
    result = opforge("check", "nothere", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == "ArgumentError"
    assert "nothere: no such package" in result.json["error"]["message"]
    result = opforge("run", "nothere.bin", "--json")
    assert result.json["error"]["type"] == "UsageError"


def test_undeclared_dtype(opforge, folder, gate):
    words = refused(opforge("export", f"{gate}/my_gate:MyGate", "--dtype", "T=i32"), "expected: f16, bf16, f32, f64")
    assert "local.test::MyGate: the type variable T cannot be i32" in words.err
    refused(opforge("export", f"{gate}/my_gate:MyGate", "--dtype", "U=f32"), "there is no type variable 'U'")
    nothing_new(folder)


def test_dtype_of_an_input(opforge, folder, gate):
    np.save("x.npy", np.zeros((2, 2)))
    refused(opforge("run", gate / "gate.bin", "--input", "x=x.npy"), "input 'x'", "float32", "float64")


def test_wrong_rank(opforge, folder, gate):
    np.save("x.npy", np.zeros((2, 2, 2), np.float32))
    refused(opforge("run", gate / "gate.bin", "--input", "x=x.npy"), "x", "rank", "2", "3")


def test_files_that_are_no_arrays(opforge, folder, gate):
    for name, content in (("empty.npy", b""), ("text.npy", b"x = 1\n"), ("cut.npy", b"PK\x03\x04cut")):
        (folder / name).write_bytes(content)
        refused(opforge("run", gate / "gate.bin", "--input", f"x={name}"), "input 'x'", "not an array file")


def test_conflicting_dimensions(opforge, folder, gate):
    np.savez("in.npz", x=np.zeros((3, 4), np.float32), w=np.zeros(5, np.float32))
    result = refused(opforge("run", gate / "row.bin", "--npz", "in.npz", "--package", gate / "row_scale"), "m")
    assert "3" in result.err
    assert "5" in result.err


def test_wrong_input_names(opforge, folder, gate):
    np.save("x.npy", np.zeros((2, 2), np.float32))
    refused(opforge("run", gate / "gate.bin", "--input", "X=x.npy"), "'X'", "did you mean 'x'?")
    result = opforge("compare", gate / "gate.onnx", "--bin", gate / "gate.bin", "--input", "X=x.npy")
    refused(result, "there is no such input", "'X'", "did you mean 'x'?")
    result = opforge("run", gate / "row.bin", "--input", "x=x.npy", "--package", gate / "row_scale")
    refused(result, "inputs are missing", "nothing for 'w'")


def test_inputs_that_are_not_given(opforge, gate):
    refused(opforge("run", gate / "gate.bin"), "the inputs are missing", "x: float32[S0, S1]", "--random")
    refused(opforge("run", gate / "gate.bin", "--random", "--size", "N=3"), "no input has a dimension N")
    refused(opforge("run", gate / "gate.bin", "--random", "--size", "N=x"), "the size of N is no number")


def test_output_is_not_left_half_written(opforge, folder, gate):
    np.save("x.npy", np.zeros((2, 2, 2), np.float32))
    refused(opforge("run", gate / "gate.bin", "--input", "x=x.npy", "--output", "y.npz"))
    nothing_new(folder, "x.npy")


def test_bad_csr(opforge, folder):
    assert opforge("export", "opforge.ops:SparseMatMul", "-o", "s.onnx").code == 0
    assert opforge("compile", "s.onnx").code == 0
    parts = {
        "values": np.ones(4, np.float32),
        "indices": np.array([0, 2, 1, 7]),
        "indptr": np.array([0, 2, 2, 4]),
        "dense": np.ones((3, 5), np.float32),
    }
    np.savez("in.npz", **parts)
    texts = ("com.example::SparseMatMul", "indices[3] (row 2) is 7, expected 0 <= index < 3")
    refused(opforge("run", "s.bin", "--npz", "in.npz"), *texts)
    np.savez("in.npz", **{**parts, "indices": np.array([0, 2, 1, 0]), "indptr": np.array([0, 3, 2, 4])})
    refused(opforge("run", "s.bin", "--npz", "in.npz"), "indptr[2] is 2")


def test_unknown_domain(opforge, folder):
    node = helper.make_node("MyGat", ["x"], ["y"], name="n", domain="nobody.knows")
    model("m.onnx", [node], imports=(("", 20), ("nobody.knows", 1)))
    result = opforge("check", "m.onnx")
    assert result.code == 1
    assert "nobody registered this operator and the model has no body for it" in result.out
    refused(opforge("compile", "m.onnx"), "nobody.knows::MyGat", "(1 node: n)", "--package")
    nothing_new(folder, "m.onnx")


def test_missing_opset_import(opforge, folder, gate):
    model("m.onnx", [helper.make_node("MyGate", ["x"], ["y"], name="n", domain="local.test")])
    result = opforge("check", "m.onnx", "--package", gate / "my_gate")
    assert result.code == 1
    assert "the model does not import the domain 'local.test'" in result.out


def test_unsupported_operators_are_listed_at_once(opforge, folder):
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], name="first"),
        helper.make_node("SVMRegressor", ["x"], ["b"], name="second", domain="ai.onnx.ml"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model("m.onnx", nodes, imports=(("", 20), ("ai.onnx.ml", 3)))
    refused(opforge("compile", "m.onnx", "-o", "out.bin"), "ImageDecoder", "first", "SVMRegressor", "second")
    nothing_new(folder, "m.onnx")


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_truncated_bin(opforge, folder, gate, command):
    content = (gate / "gate.bin").read_bytes()
    words = ["--random"] if command == "run" else []
    for size in (0, 10, 63, 64, 600, len(content) - 1):
        (folder / "cut.bin").write_bytes(content[:size])
        refused(opforge(command, "cut.bin", *words), "cut.bin", "header")


def test_one_flipped_byte(opforge, folder, gate):
    content = bytearray((gate / "gate.bin").read_bytes())
    content[700] ^= 4
    (folder / "flip.bin").write_bytes(content)
    refused(opforge("run", "flip.bin", "--random"), "flip.bin", "strings", "checksum")


def test_files_that_are_something_else(opforge, folder):
    for name in ("text.onnx", "text.bin"):
        (folder / name).write_text("hello")
    refused(opforge("compile", "text.onnx"), "ONNX model")
    refused(opforge("simplify", "text.onnx", "-o", "out.onnx"), "not an ONNX model")
    refused(opforge("check", "text.onnx"), "not an ONNX model", "cut or damaged, or of another format: export or fetch")
    refused(opforge("compare", "text.onnx"), "not an ONNX model")
    refused(opforge("inspect", "text.bin"), "the file is too short")
    result = opforge("check", "text.bin")
    assert result.code == 1, "a damaged file is what check looks for"
    assert "FAILED structure: text.bin" in result.out
    (folder / "text.txt").write_text("hello")
    refused(opforge("inspect", "text.txt"), "unknown kind of file", ".bin, .onnx, .so")
    nothing_new(folder, "text.onnx", "text.bin", "text.txt")


def test_the_authors_mistakes_have_file_and_line(opforge, folder):
    (folder / "syntax.py").write_text("import opforge as of\n@of.formula('a.b::Bad'\ndef bad(x): return x\n")
    refused(opforge("check", "syntax.py"), "'(' was never closed", "syntax.py:2")
    (folder / "missing.py").write_text("import opforge as of\nimport not_there_at_all\n")
    refused(opforge("check", "missing.py"), "No module named 'not_there_at_all'", "missing.py:2: import not_there")
    text = "import math\nimport opforge as of\n@of.formula('a.b::Bad')\ndef bad(x):\n    return math.exp(x)\n"
    (folder / "mathematics.py").write_text(text)
    refused(opforge("check", "mathematics.py"), "mathematics.py:5", "use of.exp")
    (folder / "net.py").write_text("def make():\n    return 1 / 0\ndef nothing():\n    return 5\n")
    refused(opforge("export", "net.py:make", "-o", "n.onnx"), "ZeroDivisionError", "net.py:2: return 1 / 0")
    refused(opforge("export", "net.py:nothing"), "the factory must return (module, example inputs)")
    refused(opforge("export", "net.py:mak"), "there is no mak in this module", "did you mean make?")
    assert not list(folder.glob("*.onnx"))


def test_a_module_that_torch_cannot_export(opforge, folder):
    text = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x
def make():
    return Net(), (torch.zeros(1, 4),)
"""
    (folder / "net.py").write_text(text)
    refused(opforge("export", "net.py:make", "-o", "n.onnx"), "torch cannot export this module")
    assert not list(folder.glob("*.onnx*"))


def test_a_compilers_words_reach_the_author(opforge, folder):
    operator = declare(folder / "op", "compiler", sum_type="undeclared_type")
    try:
        refused(opforge("build", folder / "op"), "undeclared_type", "cpu.cc")
    finally:
        forget(operator)
    assert not (folder / "op" / "_lib").exists()


def alone(folder, *words, **environment):
    """Run the command line in a process of its own with another environment."""
    done = subprocess.run(
        [sys.executable, "-m", "opforge", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_missing_compiler(folder, gate):
    environment = {"CXX": "/no/such/compiler", "OPFORGE_CACHE": str(folder / "cache")}
    code, out, err = alone(folder, "build", gate / "row_scale", "--out", folder / "lib", **environment)
    assert (code, out) == (2, "")
    for text in ("no C++ compiler works", "CXX=/no/such/compiler: not found on PATH", "apt-get install g++"):
        assert text in err
    assert not list((folder / "lib").glob("*")) if (folder / "lib").exists() else True
    # A formula needs none.
    code, out, err = alone(folder, "check", gate / "my_gate", "--level", "quick", **environment)
    assert code == 0, err + out


def test_cache_that_cannot_be_written(folder, gate):
    (folder / "file").write_text("no folder")
    code, out, err = alone(
        folder, "check", gate / "row_scale:RowScale", "--level", "quick", OPFORGE_CACHE=str(folder / "file" / "x")
    )
    assert code == 0, err + out
    assert "checks passed" in out


def test_closed_pipe(folder, gate):
    command = f"{sys.executable} -m opforge inspect {gate}/gate.bin --nodes --json | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert done.stdout.startswith("{")
    assert done.stderr == ""
    # Closed long before the command has said what it has to say: no failure either.
    command = f"{sys.executable} -m opforge inspect {gate}/gate.bin --nodes | true"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_model_that_is_no_valid_onnx_is_shown_and_refused(opforge, folder):
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["y"], name="two"),
        helper.make_node("Neg", ["a"], ["b"], name="three"),
    ]
    model("circle.onnx", nodes)
    done = opforge("inspect", "circle.onnx")
    assert done.code == 2
    assert "Relu" in done.out
    assert "problem: model: ONNX's checker refuses it" in done.out
    assert "input 'b'" in done.out
    shown = json.loads(opforge("inspect", "circle.onnx", "--json").out)
    assert not shown["valid"]
    assert "topologically sorted" in shown["problems"][0]
    for dtype, code in ((0, 2), (77, 0)):  # ONNX's checker has nothing to say of the second
        tensor = TensorProto(name="w", dims=[1], data_type=dtype, raw_data=bytes(4))
        model("odd.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], tensors=[tensor])
        done = opforge("inspect", "odd.onnx")
        assert done.code == code, (done.out, done.err)
        assert ("problem: model: ONNX's checker refuses it" in done.out) == bool(code)
        assert "Add" in done.out
    model("sound.onnx", [helper.make_node("Relu", ["x"], ["y"])])
    assert opforge("inspect", "sound.onnx").code == 0


def test_a_wrong_mode_is_wrong_use(opforge, folder, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "sometimes")
    refused(opforge("check", "opforge.ops:custom_gelu", "--level", "quick"), "OPFORGE_JIT", "auto, off or require")


def test_a_bin_where_a_model_is_wanted(opforge, gate):
    for command in (("compile",), ("run", "--random", "--engine", "onnxruntime")):
        refused(opforge(command[0], str(gate / "gate.bin"), *command[1:]), "name the .onnx that it was made from")
