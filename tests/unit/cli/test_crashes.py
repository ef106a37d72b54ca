"""`opforge check` of what crashes or hangs, and of what cannot be built: words, one row, exit code 1."""

import json
import os
import subprocess
import sys

import pytest
from onnx import parser, save

pytestmark = pytest.mark.compiler

_OP = """
import numpy as np

import opforge as of

wild = of.kernel(
    "local.test::Wild",
    "(x: T[n]) -> (y: T[n])",
    types={"T": (of.f32,)},
    sources=["cpu.cc"],
    reference=lambda x: x,
    differentiable=False,
)
"""
_KERNEL = """
#include <unistd.h>

#include "opforge/kernel.h"

template <class T>
opforge::Status wild(opforge::Context&, opforge::View<const T, 1> x, opforge::View<T, 1> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    *(&y(0) + i + OFFSET) = x(i);
  }
  return opforge::kOk;
}
"""
_FAR = "(int64_t{1} << 44)"  # no process has memory there


@pytest.fixture
def wild(folder):
    """Write the operator; `offset` is how far beside its place an element is written."""

    def write(offset):
        place = folder / "wild"
        place.mkdir()
        (place / "op.py").write_text(_OP)
        (place / "cpu.cc").write_text(_KERNEL.replace("OFFSET", offset))
        (place / "cases.py").write_text('CASES = [{"name": "few", "inputs": {"x": {"shape": [5], "normal": 1.0}}}]\n')
        return place

    return write


def _check(*words):
    return _run("check", *words)


def _run(*words):
    """Run it as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "opforge", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OPFORGE_JIT": "auto"},
    )


def test_a_kernel_that_crashes_is_a_finding(wild):
    found = _check(wild(_FAR), "--level", "quick")
    assert found.returncode == 1, found.stderr
    words = "FAILED process (few, numpy, f32): local.test::Wild CRASHED the process (SIGSEGV) during 'values': "
    assert words in found.stdout
    assert "a kernel reads or writes beyond a tensor" in found.stdout
    assert "  to reproduce: opforge check wild/op.py:Wild --host numpy --level quick --seed 0\n" in found.stdout
    assert "--sanitize address names the line" in found.stdout
    assert "1 of 5 checks FAILED" in found.stdout


def test_a_crash_as_json_and_the_line_of_the_sanitizer(wild):
    found = _check(wild(_FAR), "--level", "quick", "--sanitize", "address", "--json")
    assert found.returncode == 1, found.stderr
    (report,) = json.loads(found.stdout)["reports"]
    rows = {row["check"]: row["detail"] for row in report["rows"] if not row["passed"]}
    assert "CRASHED the process (SIGSEGV)" in rows["process"] and "to do" not in rows["process"]
    assert "cpu.cc:9" in rows["sanitize address"]


def test_what_passes_and_what_is_wrong_in_cases(wild):
    place = wild("0")
    found = _check(place, "--level", "quick")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "local.test::Wild: " in found.stdout and " checks passed (" in found.stdout
    (place / "cases.py").write_text("CASES = [1 / 0]\n")
    found = _check(place, "--level", "quick")
    assert found.returncode == 1, found.stderr
    assert "FAILED schema (cases): " in found.stdout
    assert "ZeroDivisionError" in found.stdout and "cases.py:1" in found.stdout


def test_no_compiler_is_not_taken_for_comparisons_with_nan(wild, opforge, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")
    result = opforge("check", wild("0"), "--level", "quick")
    assert result.code == 1
    assert "missing compiler" in result.out or "a kernel operator runs compiled code only" in result.out
    assert "comparisons with NaN" not in result.out
    groups = [line for line in result.out.splitlines() if line.startswith("FAILED ")]
    assert groups and all(line.startswith("FAILED library: ") for line in groups), "each operator says it once"


def test_a_kernel_that_does_not_compile_is_told_once(wild):
    found = _check(wild("nowhere"), "--host", "torch", "--host", "numpy")
    assert found.returncode == 1, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("FAILED ")]
    assert line.startswith("FAILED library: local.test::Wild:1: ")
    assert "'nowhere' was not declared" in found.stdout and "to do: correct the line" in found.stdout
    assert "fault of opforge" not in found.stderr


def test_a_wrong_profile_is_wrong_use(wild, opforge, monkeypatch):
    monkeypatch.setenv("OPFORGE_PROFILE", "fst")
    result = opforge("check", wild("0"), "--level", "quick")
    assert result.code == 2
    assert "OPFORGE_PROFILE: unknown profile" in result.err


_STRANGER = """
import ctypes
import sys

import numpy as np
import torch

print("from the author's file")


class Wild(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.numel() == 5:
            ctypes.string_at(0)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def reference(x):
    return x * 2


CASES = [{"name": "good", "inputs": (np.ones(3),)}, {"name": "few", "inputs": (np.ones(5),)}]
"""


@pytest.mark.torch
def test_a_function_of_others_that_crashes_is_a_finding(folder):
    (folder / "others.py").write_text(_STRANGER)
    words = ("others.py:Wild", "--reference", "others.py:reference", "--cases", "others.py:CASES", "--dtype", "f32")
    found = _check(*words, "--json")
    assert found.returncode == 1, found.stderr
    (report,) = json.loads(found.stdout)["reports"]
    (row,) = [row for row in report["rows"] if not row["passed"]]
    assert (row["check"], row["case"], row["host"], row["dtype"]) == ("process", "few", "torch", "f32")
    assert "others.py:Wild CRASHED the process (SIGSEGV) during 'values': " in row["detail"]
    assert f"  to reproduce: opforge check {' '.join(words)} --level default --seed 0\n" in row["detail"]
    assert "  to do: build its library with -g -fsanitize=address" in row["detail"]
    assert "from the author's file" in found.stderr, "an author finds what they print"
    (folder / "others.py").write_text("1 / 0\n")
    found = _check(*words)
    assert found.returncode == 2 and "ZeroDivisionError" in found.stderr and "others.py:1" in found.stderr


def _compile(place, shape):
    """Write a model of the operator."""
    text = f'<ir_version: 9, opset_import: ["" : 20, "local.test" : 1]> graph (float[{shape}] x) => (float[{shape}] y)'
    save(parser.parse_model(f"{text} {{ y = local.test.Wild(x) }}"), place / "model.onnx")
    words = [place / "model.onnx", "-o", place / "model.bin", "--package", place]
    made = _run("compile", *words)
    assert made.returncode == 0, made.stdout + made.stderr


def test_a_model_with_a_kernel_that_crashes_is_a_finding(wild):
    place = wild(_FAR)
    _compile(place, 5)
    found = _check("wild/model.bin", "--package", "wild", "--model", "wild/model.onnx")
    assert found.returncode == 1, found.stderr
    words = "FAILED process (random inputs, opforge): wild/model.bin CRASHED the process (SIGSEGV) during 'model': "
    assert words in found.stdout
    again = "opforge check wild/model.bin --package wild/op.py --model wild/model.onnx --level default --seed 0"
    assert f"  to reproduce: {again}\n" in found.stdout
    assert "  to do: opforge check wild/op.py --sanitize address names the line\n" in found.stdout
    assert found.stdout.endswith("wild/model.bin: 1 of 2 checks FAILED (seed 0)\n")


def test_in_a_comparison_the_crash_of_a_kernel_is_a_finding(wild):
    place = wild(_FAR)
    _compile(place, 5)
    report = place / "report.md"
    found = _run("compare", "wild/model.onnx", "--package", "wild", "--output", report)
    assert found.returncode == 1, found.stderr
    words = (
        "FAILED opforge: crashed, signal 11 (SIGSEGV); got local.test::Wild (output 'y'): the kernel ends the process"
    )
    assert words in found.stdout
    assert "  to do: opforge check wild/op.py --sanitize address names the line\n" in found.stdout
    assert "crashed, signal 11 (SIGSEGV)" in report.read_text()


def test_a_kernel_that_never_returns_is_a_finding(wild):
    # The limit may come before the call on a slow machine: what hangs is a finding then as well.
    place = wild("[]() -> int64_t { for (;;) ::pause(); }()")
    found = _check(place, "--level", "quick", "--patience", "4s")
    assert found.returncode == 1, found.stderr
    assert "local.test::Wild HUNG" in found.stdout and "a loop of a kernel does not end" in found.stdout
    assert "  got: nothing for 4 s\n" in found.stdout
    assert "  to do: give what only takes long more time with --patience\n" in found.stdout
    assert _check(place, "--patience", "soon").returncode == 2
