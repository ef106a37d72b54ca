"""The library of an operator's kernels for a device: built ahead, built now, or an error that names what is missing."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import opforge as of
from opforge.build import abi, device_library, library_for, load_library, manifest
from opforge.build.device import declaring, device_library_of_row
from opforge.build.plan import LibraryPlan, plan_library
from opforge.cuda import emulate_operators
from opforge.errors import ToolchainError
from opforge.frameworks._entries import Entries
from opforge.ops import mish, swish
from tests.unit.build.conftest import write_scale

pytestmark = pytest.mark.compiler


@of.formula("test.librarydevice::Gate")
def gate(x, w):
    """Have a gradient operator of two inputs."""
    return of.tanh(x * w)


def emulated(operators) -> Path:
    return emulate_operators(operators).path


@pytest.fixture
def built(tmp_path) -> Path:
    """Lay the emulated library where one that was built ahead would be."""
    plan = plan_library([gate])
    folder = tmp_path / "built"
    folder.mkdir()
    path = folder / "test_device_cuda.so"
    path.write_bytes(emulated(plan.operators).read_bytes())
    path.with_name("test_device_cuda.manifest.json").write_text(json.dumps(manifest(load_library(path))))
    return path


def builder(monkeypatch, build) -> None:
    """Put a function in the place of what builds with nvcc."""
    monkeypatch.setattr("opforge.build.device.build_cuda_library", build)


def test_built_ahead(built, monkeypatch):
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", str(built.parent))
    monkeypatch.setenv("OPFORGE_JIT", "off")
    library = device_library(gate)
    assert library.path == built
    kernels = [kernel for row in library.operators.values() for kernel in row.kernels]
    assert {kernel.device_type for kernel in kernels} == {abi.DEVICE_CUDA}
    assert set(library.operators) == {o.key for o in plan_library([gate]).operators}
    assert device_library(gate) is library


def test_the_library_for_the_cpu_is_not_taken_from_it(built, monkeypatch):
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", str(built.parent))
    rows = library_for([gate]).operator(gate.key)
    assert {kernel.device_type for kernel in rows.kernels} == {abi.DEVICE_CPU}


def test_built_now(monkeypatch):
    plans = []

    def build(plan: LibraryPlan) -> Path:
        plans.append(plan)
        return emulated(plan.operators)

    @of.formula("test.librarydevice::Now")
    def now(x):
        return of.exp(x)

    builder(monkeypatch, build)
    library = device_library(now)
    assert [o.key for o in plans[0].operators][:2] == ["test.librarydevice::Now:1", "test.librarydevice::NowGrad:1"]
    assert device_library(now) is library
    assert len(plans) == 1


def test_what_is_missing_is_named(monkeypatch):
    def build(plan: LibraryPlan) -> Path:
        raise ToolchainError("no CUDA toolkit serves", got="candidates:\n    PATH: none", hint="install nvcc")

    @of.formula("test.librarydevice::Missing")
    def missing(x):
        return of.exp(x)

    builder(monkeypatch, build)
    with pytest.raises(ToolchainError) as caught:
        device_library(missing)
    error = caught.value
    assert error.what == "the operator's kernels for cuda are not built"
    assert error.where == "test.librarydevice::Missing:1"
    assert error.got == "no CUDA toolkit serves: candidates:\n    PATH: none"
    assert error.hint.startswith("install nvcc; or opforge build")
    assert "opforge build PACKAGE --device cuda --out FOLDER" in error.hint
    assert "OPFORGE_LIBRARY_PATH" in error.hint
    assert "move the tensors to the CPU" in error.hint
    monkeypatch.setenv("OPFORGE_JIT", "off")
    with pytest.raises(ToolchainError, match="OPFORGE_JIT=off forbids compiling"):
        device_library(missing)


def test_a_kernel_operator_without_a_source_for_the_device(tmp_path):
    (operator,) = of.load(write_scale(tmp_path / "package", "DeviceLess"))
    with pytest.raises(ToolchainError, match="the operator has no kernel for cuda") as caught:
        device_library(operator)
    assert caught.value.expected == "a source cuda.cu among its sources"
    assert caught.value.got == "cpu.cc"


def test_operators_known_by_their_table_only(built, monkeypatch):
    row = load_library(built).operator(gate.key)
    assert device_library_of_row(row, built.parent).path == built
    with pytest.raises(ToolchainError, match="nothing declares the operator here"):
        device_library_of_row(row, None)


def test_whose_declaration_an_operator_is():
    plan = plan_library([gate])
    for operator in plan.operators:
        assert declaring(operator.key, operator.schema_hash) is gate
    assert declaring(gate.key, "another hash") is None


def test_a_library_for_a_device_makes_no_other_operator_known(monkeypatch):
    # A package's library for CUDA holds all its operators; one that was not used yet still gets its CPU kernels.
    library = load_library(emulate_operators([swish, mish]).path)
    monkeypatch.setattr("opforge.frameworks._entries.device_library", lambda operator, device: library)
    served = []
    entries = Entries(
        "a host",
        "opforge.torch",
        lambda row: SimpleNamespace(key=row.key, library=row, signature=row.signature),
        serve=lambda entry, row: served.append((entry.key, row.kernels[0].device_type)),
    )
    entries.register(library_for([swish]).operators.values())
    entries.load_device(swish.key, "cuda")
    assert entries.find(mish.key) is None
    assert (swish.key, abi.DEVICE_CUDA) in served
    assert entries.of_operator(mish).library.kernels[0].device_type == abi.DEVICE_CPU
