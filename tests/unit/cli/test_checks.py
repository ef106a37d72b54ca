"""`opforge check` of a .bin, of functions that others made, with random calls and sanitizers; and what it refuses."""

import pytest

_OPS = """
import numpy as np
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g

def reference(x):
    return 2 * x

CASES = [(np.linspace(-1, 1, 6).reshape(2, 3),), {"name": "empty", "inputs": [np.zeros((0, 3))]}]
"""


@pytest.mark.compiler
def test_a_bin_alone_and_against_its_model(opforge, folder, gate):
    result = opforge("check", gate / "gate.bin", "--model", gate / "gate.onnx", "--package", gate / "my_gate")
    assert result.code == 0, result.out
    assert "parity" in result.out and "structure" in result.out
    content = bytearray((gate / "gate.bin").read_bytes())
    (folder / "cut.bin").write_bytes(content[:-16])
    result = opforge("check", "cut.bin")
    assert result.code == 1
    assert "FAILED structure: cut.bin, header: the file is cut or too long" in result.out
    assert f"expected: {len(content)} bytes" in result.out and f"got: {len(content) - 16} bytes" in result.out


@pytest.mark.torch
def test_a_function_of_others(opforge, folder):
    pytest.importorskip("torch", reason="needs torch")
    (folder / "ops.py").write_text(_OPS)
    words = ["check", "ops.py:Double", "--reference", "ops.py:reference", "--cases", "ops.py:CASES", "--level", "quick"]
    result = opforge(*words, "--dtype", "f64")
    assert result.code == 1
    assert "the derivative by x0 along a random direction is" in result.out
    result = opforge(*words[:4], "--json")
    assert result.code == 2
    assert "--cases module.py:NAME" in str(result.json)
    result = opforge("check", "torch.ops.aten.reluu", *words[2:6])
    assert result.code == 2
    assert "PyTorch knows no such operator" in result.err and "did you mean aten::relu" in result.err
    result = opforge("check", "my.ops::Node", *words[2:6])
    assert result.code == 2
    assert "what registers the operator is missing" in result.err


@pytest.mark.compiler
def test_random_calls_and_a_sanitizer(opforge, gate):
    result = opforge(
        "check", f"{gate}/row_scale:RowScale", "--level", "quick", "--property", "--sanitize", "undefined", "--json"
    )
    rows = result.json["reports"][0]["rows"]
    assert result.code == 0, [row for row in rows if not row["passed"]]
    assert {"property", "sanitize undefined"} <= {row["check"] for row in rows}


def test_what_does_not_go_together(opforge, folder, gate):
    result = opforge("check", gate / "gate.onnx", "--sanitize", "address")
    assert result.code == 2 and "--sanitize is for operators" in result.err
    result = opforge("check", gate / "gate.onnx", "--model", gate / "gate.onnx")
    assert result.code == 2 and "--model is what a .bin is held against" in result.err
