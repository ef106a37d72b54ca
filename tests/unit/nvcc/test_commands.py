"""What the command line does with nvcc: libraries for GPUs, occupancy of what is compiled now, what doctor finds."""

import json
from pathlib import Path

import pytest

from opforge.build import load_library
from opforge.build.doctor import doctor_rows
from opforge.cli import main
from opforge.cuda.measure import resources_of_source
from opforge.errors import ArgumentError

KERNELS = Path(__file__).parents[2] / "data" / "cuda" / "kernels.cu"

PACKAGE = """
import opforge as of


@of.formula("test.nvcc_package::Half")
def half(x):
    return x * 0.5
"""


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "half_package.py"
    path.write_text(PACKAGE)
    return path


def test_build_and_occupancy_of_a_package(package, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["build", str(package), "--device", "cuda", "--arch", "sm_80", "--out", str(out), "--json"]
    assert main(arguments) == 0
    library, manifest = map(Path, json.loads(capsys.readouterr().out)["files"])
    assert library.stem.endswith("_cuda")
    assert load_library(library).architectures == ("sm_80", "compute_80")
    assert json.loads(manifest.read_text())["architectures"] == ["sm_80", "compute_80"]
    assert main(["occupancy", str(library), "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert any("dense<Half, float, 4>" in row["kernel"] for row in kernels)
    assert {row["architecture"] for row in kernels} == {"sm_80"}
    assert all(row["spill_stores"] == 0 and row["blocks"] >= 4 for row in kernels)


def test_kernels_of_a_file(tmp_path):
    rows = {row.kernel: row for row in resources_of_source(KERNELS, ["sm_80", "sm_90"])}
    assert any("matmul" in name and row.shared == 2112 for name, row in rows.items())
    assert {row.architecture for row in resources_of_source(KERNELS, ["sm_80", "sm_90"])} == {80, 90}
    empty = tmp_path / "empty.cu"
    empty.write_text("int one() { return 1; }\n")
    with pytest.raises(ArgumentError, match=r"the file has no kernel(?s:.*)__global__"):
        resources_of_source(empty, ["sm_80"])


def test_spills_are_seen(tmp_path):
    source = tmp_path / "wide.cu"
    source.write_text(
        "__global__ void wide(float* x) {\n  float v[64];\n#pragma unroll\n"
        "  for (int k = 0; k < 64; ++k) v[k] = x[k * 256 + threadIdx.x];\n  __syncthreads();\n#pragma unroll\n"
        "  for (int k = 0; k < 64; ++k) x[(k + 1) * 256 + threadIdx.x] = v[k] * v[63 - k];\n}\n"
    )
    (free,) = resources_of_source(source, ["sm_80"])
    (held,) = resources_of_source(source, ["sm_80"], ["-maxrregcount=24"])
    assert free.spill_stores == 0
    assert held.registers <= 24
    assert held.spill_stores > 0
    assert held.spill_loads > 0


def test_doctor_names_the_compiler(toolkit):
    rows = {row.name: row for row in doctor_rows()}
    assert rows["CUDA compiler"].state == "ok"
    assert f"nvcc {toolkit.version}" in rows["CUDA compiler"].detail
    assert rows["NVRTC"].state == "ok"
    assert "NVRTC 13.0" in rows["NVRTC"].detail
    assert "the packages of this environment" in rows["CUDA compiler"].detail
