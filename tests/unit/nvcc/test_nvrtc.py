"""Formulas compiled by NVRTC: without nvcc, without g++, without a driver; every kernel of each."""

import statistics
import time

import pytest

from opforge.build.cuda import nvrtc as module
from opforge.build.cuda.nvrtc import compile_formula, find_nvrtc
from opforge.codegen.cuda import kernel_source
from opforge.cuda import measure
from opforge.cuda.resources import read_resources
from opforge.errors import BuildError, ToolchainError
from opforge.ops import mish, sparse_matmul
from tests.unit.nvcc.test_build import gate

SECONDS = 2.0  # of a core, per kernel; docs/design/cuda.md has what it takes on its own


def test_it_is_found_with_cudas_headers():
    found = find_nvrtc()
    assert found.version == "13.0"
    assert "sm_80" in found.architectures()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_machine_code_of_every_kernel(dtype):
    compiled = compile_formula(gate.gradient_operator, dtype, "sm_80")
    assert compiled.image[:4] == b"\x7fELF"
    assert len(compiled.names) == 8
    kernels = {row.kernel: row for row in read_resources(compiled.words)}
    assert set(kernels) == set(compiled.names.values())
    assert all(row.architecture == 80 and 0 < row.registers < 128 for row in kernels.values())


def test_ptx():
    compiled = compile_formula(mish, "f32", "compute_80")
    assert b".target sm_80" in compiled.image
    assert len(compiled.names) == 4
    for name in compiled.names.values():
        assert f".entry {name}(".encode() in compiled.image


def test_compiled_once(monkeypatch):
    first = compile_formula(mish, "f32", "compute_80")
    monkeypatch.setattr(module.Nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    assert compile_formula(mish, "f32", "compute_80") == first


def test_time_per_kernel():
    source, kernels = kernel_source(mish, "f32")
    took = []
    for _ in range(3):
        started = time.process_time()
        find_nvrtc().compile(source, "sm_80", kernels, mish.key)
        took.append((time.process_time() - started) / len(kernels))
    assert statistics.median(took) < SECONDS


def test_its_words():
    with pytest.raises(BuildError, match=r"broken: NVRTC refuses the kernel(?s:.*)undefined_thing"):
        find_nvrtc().compile('extern "C" __global__ void k() { undefined_thing(); }', "sm_80", [], "broken")


def test_occupancy_without_nvcc(monkeypatch):
    def nothing():
        raise ToolchainError("no CUDA toolkit serves")

    monkeypatch.setattr(measure, "find_toolkit", nothing)
    rows = measure.resources_of_operators([gate], ["sm_80"])
    assert any("dense<Gate, float, 4>" in measure.demangled(row.kernel) for row in rows)
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves"):
        measure.resources_of_operators([sparse_matmul], ["sm_80"])
