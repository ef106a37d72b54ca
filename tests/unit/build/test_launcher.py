"""Libraries of NVRTC's images behind the launcher: which compiler is taken, what is built, kept, named and refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import opforge as of
from opforge.build import abi, build_package, device_library, load_library
from opforge.build.cache import compiler_words
from opforge.build.cuda import build_cuda_library, launcher
from opforge.build.cuda import builder as of_builder
from opforge.build.cuda.nvrtc import find_nvrtc
from opforge.build.doctor import doctor_rows
from opforge.build.plan import plan_library
from opforge.cuda import measure
from opforge.errors import ArgumentError, ToolchainError
from tests import stub_nvrtc
from tests.stub_nvrtc import StubNvrtc, product, use_stub_nvrtc

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nvrtc(monkeypatch):
    return use_stub_nvrtc(StubNvrtc(), monkeypatch.setattr)


def build(*architectures):
    return build_cuda_library(plan_library([product]), architectures=architectures or None)


def test_one_file_with_code_for_each_architecture(nvrtc):
    path = build("sm_80", "sm_90")
    library = load_library(path)
    assert library.architectures == ("sm_80", "sm_90", "compute_90")
    assert set(library.operators) == {operator.key for operator in plan_library([product]).operators}
    assert {kernel.device_type for row in library.operators.values() for kernel in row.kernels} == {abi.DEVICE_CUDA}
    assert library.build.startswith("NVRTC 13.0; ") and "-fmad=false" in library.build and "-I" not in library.build
    operators = len(library.operators)
    assert len(nvrtc.made) == len(set(nvrtc.made)) * 4 == operators * 4 * 2  # four dtypes; PTX comes with sm_90
    content = path.read_bytes()
    assert content.startswith(launcher.find_launcher().read_bytes())
    assert [content.count(code) for code in (b"<sm_80>", b"<sm_90>", b"<compute_90>\0", b"<compute_80>")] == [
        operators * 4, operators * 4, operators * 4, 0,
    ]  # fmt: skip
    assert "test.stub::ProductGrad:1 for sm_80\n" in compiler_words(path)


def test_only_the_table_is_exported(nvrtc):
    listed = ["nm", "-D", "--defined-only", build("sm_80")]
    exported = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in exported.splitlines()] == ["opforge_library_v1"]


def test_it_is_built_once_and_follows_what_it_is_made_of(nvrtc, monkeypatch, tmp_path):
    path = build("sm_80")
    made = len(nvrtc.made)
    assert build("sm_80") == path and len(nvrtc.made) == made
    assert build("sm_90") != path
    made = len(nvrtc.made)
    other = tmp_path / "libopforge_launcher.so"
    other.write_bytes(launcher.find_launcher().read_bytes() + b"another build")
    monkeypatch.setattr(launcher, "find_launcher", lambda: other)
    again = build("sm_80")
    assert again != path and len(nvrtc.made) == made  # the images are kept by themselves
    assert load_library(again).content_hash == load_library(path).content_hash
    monkeypatch.setattr(nvrtc, "version", "13.1")
    newer = build("sm_80")
    assert newer not in (path, again) and len(nvrtc.made) > made
    made = len(nvrtc.made)
    monkeypatch.setattr(nvrtc, "path", tmp_path / "libnvrtc.so.13")
    seen = {newer}
    for content in (b"13.0.48", b"13.0.88, put in its place"):
        nvrtc.path.write_bytes(content)
        seen.add(build("sm_80"))
    assert len(seen) == 3 and len(nvrtc.made) == made + 2 * 4 * len(plan_library([product]).operators)


def test_a_machine_without_devices_gets_code_for_several(nvrtc):
    assert load_library(build()).architectures == ("sm_80", "sm_90", "compute_90")
    with pytest.raises(ArgumentError, match=r"no architecture that this compiler knows(?s:.*)sm_80, sm_90, sm_100"):
        build("sm_70")


def test_hosts_get_it_where_there_is_no_nvcc(nvrtc):
    @of.formula("test.stub::Now")
    def now(x):
        return of.exp(x)

    library = device_library(now)
    assert library.build.startswith("NVRTC")
    assert library.operator(now.key).schema_hash == now.schema_hash


def test_which_compiler_is_taken(monkeypatch):
    chosen = []
    use_stub_nvrtc(StubNvrtc(), monkeypatch.setattr, nvcc=True)
    toolkit = SimpleNamespace(misfit=None)
    monkeypatch.setattr(of_builder, "find_toolkit", lambda: toolkit)
    monkeypatch.setattr(of_builder, "find_host_compiler", lambda toolkit: "a compiler")
    monkeypatch.setattr(of_builder, "_build_with_nvcc", lambda *_: chosen.append("nvcc"))
    monkeypatch.setattr(of_builder, "build_with_nvrtc", lambda *_, **__: chosen.append("nvrtc"))
    for value in ("", "auto", "nvcc", "nvrtc"):
        monkeypatch.setenv("OPFORGE_CUDA_COMPILER", value)
        build()
    toolkit.misfit = "too new"  # nvcc is too new for the driver, NVRTC is not
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "auto")
    build()
    build("sm_90")  # for another machine, perhaps
    monkeypatch.setattr(of_builder, "find_toolkit", stub_nvrtc.no_toolkit)
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves"):
        build_cuda_library(plan_library([product]), extra=["-lineinfo"])  # a flag of nvcc's
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "nvcc")
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves"):
        build()
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "auto")
    build()
    assert chosen == ["nvcc", "nvcc", "nvcc", "nvrtc", "nvrtc", "nvcc", "nvrtc"]
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "clang")
    with pytest.raises(ArgumentError, match=r"OPFORGE_CUDA_COMPILER(?s:.*)auto, nvcc or nvrtc(?s:.*)clang"):
        build()


def test_what_is_missing_is_named(nvrtc, monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "library_dir", lambda: tmp_path)
    with pytest.raises(ToolchainError) as caught:
        build()
    assert caught.value.what == "no CUDA toolkit serves"
    assert caught.value.got == (
        "candidates: no bin/nvcc anywhere\n"
        f"  and the launcher of kernels is missing: {tmp_path / 'libopforge_launcher.so'}"
    )
    monkeypatch.undo()
    use_stub_nvrtc(None, monkeypatch.setattr)
    monkeypatch.setattr(launcher, "find_nvrtc", find_nvrtc.__wrapped__)
    monkeypatch.setattr("opforge.build.cuda.nvrtc._libraries", list)
    with pytest.raises(ToolchainError) as caught:
        build()
    assert caught.value.got.endswith("\n  and there is no NVRTC: candidates: no libnvrtc.so anywhere")


@pytest.mark.parametrize(
    ("library", "headers"),
    [
        ("cuda/lib64", "cuda/include"),
        ("nvidia/cu13/lib", "nvidia/cu13/include"),
        ("nvidia/cuda_nvrtc/lib", "nvidia/cuda_runtime/include"),
        ("conda/lib", "conda/targets/x86_64-linux/include"),
    ],
)
def test_where_headers_lie(tmp_path, monkeypatch, library, headers):
    made = tmp_path / library / "libnvrtc.so.13"
    for folder in (made.parent, tmp_path / headers):
        folder.mkdir(parents=True)
    made.touch()
    (tmp_path / headers / "cuda_fp16.h").touch()
    found = []
    monkeypatch.setattr("opforge.build.cuda.nvrtc._libraries", lambda: [made])
    monkeypatch.setattr("opforge.build.cuda.nvrtc.Nvrtc", lambda *given: found.append(given) or StubNvrtc())
    assert find_nvrtc.__wrapped__().misfit is None
    assert found == [(made, (tmp_path / headers,))]


def test_sources_of_authors_want_nvcc(nvrtc, tmp_path, monkeypatch):
    (tmp_path / "cuda.cu").touch()
    operator = of.kernel(
        "test.stub::Authored", "(x: T[n]) -> (y: T[n])", types={"T": [of.f32]}, sources=[tmp_path / "cuda.cu"],
        reference=lambda x: x,
    )  # fmt: skip
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves") as caught:
        build_cuda_library(plan_library([operator]))
    assert caught.value.got.endswith(
        "\n  and NVRTC compiles the kernels of formulas only: test.stub::Authored:1 with cuda.cu"
    )
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "nvrtc")
    with pytest.raises(ToolchainError) as caught:
        build_cuda_library(plan_library([operator]))
    assert caught.value.what == "NVRTC compiles the kernels of formulas only"
    assert (caught.value.where, caught.value.expected) == (operator.key, "nvcc for its .cu sources")


def test_ahead_of_time(nvrtc, tmp_path, monkeypatch):
    package = tmp_path / "half_package.py"
    package.write_text(
        "import opforge as of\n\n\n@of.formula('test.stub_package::Half')\ndef half(x):\n    return x / 2\n"
    )
    path = build_package(package, tmp_path / "out", device="cuda", architectures=["sm_90"])
    facts = json.loads(path.with_suffix(".manifest.json").read_text())
    assert facts["architectures"] == ["sm_90", "compute_90"]
    assert "test.stub_package::Half:1 for sm_90" in facts["compiler_words"]
    (operator,) = of.load(str(package))
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", str(tmp_path / "out"))
    monkeypatch.setenv("OPFORGE_JIT", "off")
    assert device_library(operator).path == path


def test_what_kernels_need_without_nvcc(nvrtc, monkeypatch):
    monkeypatch.setattr(nvrtc, "compile", lambda *a: StubNvrtc.compile(nvrtc, *a).__class__(b"", {}, _PTXAS, b"\0"))
    monkeypatch.setattr(launcher, "_built", lambda *_: None)
    monkeypatch.setattr(launcher, "payload", lambda *_: b"")
    rows = measure.resources_of_operators([product], ["sm_80"])
    assert {(row.kernel, row.registers) for row in rows} == {("k", 17)}


_PTXAS = """ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 17 registers, 400 bytes cmem[0]
"""


def start(cache, seconds):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPFORGE_CACHE": str(cache)}
    command = [sys.executable, "-m", "tests.stub_nvrtc", str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


def test_two_processes_and_a_killed_one(tmp_path):
    cache = tmp_path / "cache"
    killed = start(cache, 900)
    while not list(cache.glob("v1/*_cuda-*/tmp-*")):
        assert killed.poll() is None
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    processes = [start(cache, 0.01) for _ in range(2)]
    first, second = (Path(process.communicate()[0].strip()) for process in processes)
    assert first == second
    assert load_library(first).architectures == ("sm_80", "compute_80")
    assert not list(first.parent.glob("tmp-*"))


def test_doctor_says_which_compiler_will_be_taken(nvrtc, monkeypatch):
    def row():
        return next(row for row in doctor_rows() if row.name == "CUDA kernels")

    monkeypatch.setattr("opforge.build.doctor.find_toolkit", stub_nvrtc.no_toolkit)
    monkeypatch.setattr("opforge.build.doctor.find_nvrtc", lambda: nvrtc)
    assert (row().state, row().detail) == (
        "ok",
        f"NVRTC compiles formulas, {launcher.find_launcher()} launches them; no .cu source",
    )
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "nvcc")
    assert row().state == "optional"
    assert row().detail.startswith("OPFORGE_CUDA_COMPILER=nvcc, which is not there: only libraries built ahead")
    monkeypatch.setenv("OPFORGE_CUDA_COMPILER", "auto")
    monkeypatch.setattr("opforge.build.doctor.find_nvrtc", find_nvrtc.__wrapped__)
    monkeypatch.setattr("opforge.build.cuda.nvrtc._libraries", list)
    assert (row().state, row().hint) == ("optional", "pip install 'opforge[cuda]'")
    monkeypatch.setattr("opforge.build.doctor.find_toolkit", lambda: SimpleNamespace(misfit=None))
    host = SimpleNamespace(kind="gcc", version="14")
    monkeypatch.setattr("opforge.build.doctor.find_host_compiler", lambda _: host)
    assert row().detail == "nvcc compiles them"
