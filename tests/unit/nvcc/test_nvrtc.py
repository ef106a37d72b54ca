"""Formulas compiled by NVRTC: without nvcc, without g++, without a driver; every kernel of each."""

import re
import time
from dataclasses import replace

import pytest

from opforge.build import load_library
from opforge.build.cache import compiler_words
from opforge.build.cuda import builder, launcher
from opforge.build.cuda import nvrtc as module
from opforge.build.cuda.launcher import build_with_nvrtc
from opforge.build.cuda.nvrtc import compile_formula, find_nvrtc
from opforge.codegen.cuda import formula_kernels
from opforge.codegen.units import dtype_choices
from opforge.cuda import measure
from opforge.cuda.resources import read_resources
from opforge.errors import BuildError, ToolchainError
from opforge.ops import mish, sparse_matmul
from opforge.schema.dtypes import DType
from tests.unit.nvcc.test_build import every_plan, gate

SECONDS = 0.2


def test_it_is_found_with_cudas_headers():
    found = find_nvrtc()
    assert found.version == "13.0"
    assert "sm_80" in found.architectures()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_machine_code_of_every_kernel(dtype):
    compiled = compile_formula(gate.gradient_operator, dtype, "sm_80")
    assert compiled.image[:4] == b"\x7fELF"
    assert "warning" not in compiled.words
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
    """Processor time, the least of a few: what else runs on a machine, on the other half of a core too, only adds."""
    took = []
    for dtypes in dtype_choices(mish):
        kernels = formula_kernels(mish, dtypes)
        for _ in range(3):
            started = time.thread_time()
            find_nvrtc().compile(kernels.source, "sm_80", kernels.names, mish.key)
            took.append((time.thread_time() - started) / len(kernels.names))
    assert min(took) < SECONDS


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_headers_of_cuda_12_0_are_enough_for_older_gpus(dtype):
    """Those have these functions from sm_80 on only."""
    kernels = formula_kernels(gate, (DType.parse(dtype),))
    later = ("__bfloat1622float2", "__low2float", "__high2float", "__hadd2", "__hmul2", "__hfma2")
    poison = "".join(f"#define {name} not_in_cuda_12_0\n" for name in later)
    source = f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n{poison}{kernels.source}"
    assert find_nvrtc().compile(source, "sm_75", kernels.names, gate.key).image


def test_its_words():
    with pytest.raises(BuildError, match=r"broken: NVRTC refuses the kernel(?s:.*)undefined_thing"):
        find_nvrtc().compile('extern "C" __global__ void k() { undefined_thing(); }', "sm_80", [], "broken")


def every_formula():
    """Plan the library of all formula operators of the package."""
    return replace(every_plan(), operators=tuple(o for o in every_plan().operators if o.is_formula))


@pytest.mark.xdist_group("every formula")
def test_every_formula_for_two_architectures_and_later_ones(monkeypatch):
    """One dtype of each operator; nvcc compiles the same source for all."""
    plan = every_formula()
    chosen = {o.key: list(dtype_choices(o))[k % 4] for k, o in enumerate(plan.operators)}
    monkeypatch.setattr(launcher, "dtype_choices", lambda operator: iter([chosen[operator.key]]))
    path = build_with_nvrtc(plan, architectures=["sm_80", "sm_90"])
    library = load_library(path)
    assert library.architectures == ("sm_80", "sm_90", "compute_90")
    assert set(library.operators) == {operator.key for operator in plan.operators}
    kernels = sum(len(row.kernels) for row in library.operators.values())
    content = path.read_bytes()
    of_cuda = bytes([190, 0])  # e_machine of an ELF image
    assert sum(part[14:16] == of_cuda for part in content.split(b"\x7fELF")[1:]) == 2 * kernels
    assert content.count(b".target sm_90") == kernels
    assert {row.architecture for row in read_resources(compiler_words(path))} == {80, 90}


def named(ptx):
    """Leave out of names what they have of the compilation."""
    return re.sub(rb"_[0-9a-f]{8}_", b"_", ptx)


def test_what_pytorchs_packages_bring_is_enough(tmp_path):
    """CUDA's headers without CCCL's: what they ask nv/target is answered alike."""
    found = find_nvrtc()
    for folder in found.include_folders:
        for header in folder.iterdir():
            if header.name not in ("nv", "cccl") and not (tmp_path / header.name).exists():
                (tmp_path / header.name).symlink_to(header)
    bare = module.Nvrtc(found.path, (tmp_path,))
    assert "nv/target" in bare.headers and "nv/target" not in found.headers
    for dtypes in dtype_choices(mish):
        for architecture in ("sm_75", "sm_90"):
            kernels = formula_kernels(mish, dtypes)
            made, right = (one.compile(kernels.source, architecture, kernels.names, "mish") for one in (bare, found))
            assert named(made.ptx) == named(right.ptx)


def test_occupancy_without_nvcc(monkeypatch):
    def nothing():
        raise ToolchainError("no CUDA toolkit serves")

    monkeypatch.setattr(builder, "find_toolkit", nothing)
    rows = measure.resources_of_operators([gate], ["sm_80"])
    assert any("dense<Gate, float, 4>" in measure.demangled(row.kernel) for row in rows)
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves"):
        measure.resources_of_operators([sparse_matmul], ["sm_80"])
