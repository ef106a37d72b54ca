"""The example operator package: wheel, installation, entry point, and a .bin that needs its kernel."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import opforge
from opforge._paths import include_dir

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "operator_package"
SOURCE = Path(opforge.__file__).parents[1]


def python(folder, code, *paths, **environment):
    """Run code in a fresh process whose path holds opforge and these folders; return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*paths, SOURCE])), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, made by the command line."""
    out = tmp_path_factory.mktemp("dist")
    code = f"""
    from opforge.cli import main
    raise SystemExit(main(["build", {str(PROJECT)!r}, "--wheel", "--out", {str(out)!r}, "--json"]))
    """
    (file,) = python(out, code)["files"]
    return Path(file)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder in which pip installed the wheel."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    return target


def test_the_wheel_is_of_its_platform_and_complete(wheel):
    assert wheel.name.startswith("opforge_example_ops-1.2.0-py3-none-")
    assert "any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = archive.read("opforge_example_ops-1.2.0.dist-info/WHEEL").decode()
        manifest = json.loads(archive.read("example_ops/_lib/example_ops.manifest.json"))
    assert {"example_ops/_lib/example_ops.so", "example_ops/segment_sum/cpu.cc"} <= names
    assert "Root-Is-Purelib: false" in info
    assert "; portable; " in manifest["build"]
    assert "-march=native" not in manifest["build"]
    assert {o["name"] for o in manifest["operators"]} >= {"SoftGate", "SoftGateGrad", "SegmentSum", "SegmentSpread"}


def test_the_project_stays_as_it_was(wheel):
    assert not list(PROJECT.rglob("*.so"))
    assert not list(PROJECT.rglob("*.egg-info"))


def test_installed_operators_run_without_a_compiler(installed, tmp_path):
    code = """
    import json, numpy as np, opforge as of
    import torch
    from opforge.schema import discover
    discover()
    op = of.operators()["example.ops::SegmentSum"]
    x = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    offsets = np.array([0, 2, 2, 5])
    leaf = torch.from_numpy(x).requires_grad_()
    y = op(leaf, torch.from_numpy(offsets))
    y.sum().backward()
    gate = of.operators()["example.ops::SoftGate"]
    gated = gate(np.float32([2.0]), np.float32([0.0]))
    print(json.dumps([op(x, offsets).tolist(), y.tolist(), leaf.grad.tolist(), float(gated[0])]))
    """
    nothing = {"OPFORGE_JIT": "off", "OPFORGE_CACHE": str(tmp_path / "cache"), "CXX": "/no/compiler"}
    got = python(tmp_path, code, installed, **nothing)
    want = [[2.0, 4.0], [0.0, 0.0], [18.0, 21.0]]
    assert got == [want, want, [[1.0, 1.0]] * 5, 1.0]


@pytest.fixture(scope="module")
def bin_file(installed, tmp_path_factory):
    """A .bin whose only node is SegmentSum; compiled without --package, since the package is installed."""
    folder = tmp_path_factory.mktemp("model")
    code = """
    import json
    from opforge.cli import main
    assert main(["export", "example_ops:SegmentSum", "-o", "segment.onnx", "--json"]) == 0
    """
    python(folder, code, installed)
    code = """
    from opforge.cli import main
    raise SystemExit(main(["compile", "segment.onnx", "--json"]))
    """
    content = python(folder, code, installed)
    assert list(content["report"]["custom"]) == ["example.ops::SegmentSum:1"]
    return folder / "segment.bin"


_RUN = """
import json, numpy as np, opforge as of
inputs = {"values": np.ones((5, 2), np.float32), "offsets": np.array([0, 2, 2, 5])}
try:
    session = of.Session(FILE, OPTIONS)
    print(json.dumps(session.run(inputs)["out"].tolist()))
except of_error as error:
    print(json.dumps(str(error)))
"""


def run(bin_file, *paths, options="threads=1", **environment):
    code = _RUN.replace("FILE", repr(str(bin_file))).replace("OPTIONS", options)
    code = code.replace("of_error", "Exception")
    return python(bin_file.parent, code, *paths, **environment)


def test_a_session_finds_the_kernel_in_the_installed_package(bin_file, installed):
    assert run(bin_file, installed) == [[2.0, 2.0], [0.0, 0.0], [3.0, 3.0]]


def test_a_session_is_told_where_to_look(bin_file, installed):
    library = installed / "example_ops" / "_lib"
    want = [[2.0, 2.0], [0.0, 0.0], [3.0, 3.0]]
    assert run(bin_file, options=f"libraries=[{str(library)!r}]") == want
    assert run(bin_file, OPFORGE_LIBRARY_PATH=str(library)) == want


def test_a_missing_package_is_named(bin_file):
    text = run(bin_file)
    assert "example.ops::SegmentSum:1" in text
    assert "the kernel library of an operator is not found" in text
    assert "looked in" in text


def test_native_code_can_be_refused(bin_file, installed):
    text = run(bin_file, installed, options="allow_native=False")
    assert "example.ops::SegmentSum:1" in text
    assert "allow_native" in text


def test_a_kernel_checks_values(bin_file, installed):
    code = _RUN.replace("np.array([0, 2, 2, 5])", "np.array([0, 3, 2, 5])")
    code = code.replace("FILE", repr(str(bin_file))).replace("OPTIONS", "").replace("of_error", "ValueError")
    text = python(bin_file.parent, code, installed)
    assert "offsets[2] is 2, less than the one before, 3" in text


def test_a_library_for_another_processor_is_refused_and_built_here(installed, tmp_path):
    site = tmp_path / "site"
    shutil.copytree(installed, site)
    source = """
    #include <stdio.h>
    #include "opforge/abi.h"
    __attribute__((visibility("default"))) const opforge_library* opforge_library_v1(const opforge_host* host) {
      snprintf(host->reason, host->reason_size, "it is built for a processor with AVX-512");
      return 0;
    }
    """
    (tmp_path / "other.c").write_text(source)
    library = site / "example_ops" / "_lib" / "example_ops.so"
    command = ["gcc", "-shared", "-fPIC", f"-I{include_dir()}", tmp_path / "other.c", "-o", library]
    subprocess.run(command, check=True, capture_output=True)
    code = """
    import json, warnings, numpy as np, opforge as of
    op = of.load("example_ops:SoftGate")[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = float(op(np.float32([2.0]), np.float32([0.0]))[0])
    print(json.dumps([value, [str(w.message) for w in caught]]))
    """
    value, texts = python(tmp_path, code, site)
    assert value == 1.0
    assert any("a library built ahead does not serve" in text for text in texts)
    assert any("it is built for a processor with AVX-512" in text for text in texts)


def test_a_folder_without_a_project_makes_no_wheel(tmp_path):
    from opforge.build.wheel import build_wheel
    from opforge.errors import ArgumentError

    with pytest.raises(ArgumentError, match="a wheel needs a project"):
        build_wheel(tmp_path, tmp_path / "dist")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ArgumentError, match="the project names no operator package"):
        build_wheel(tmp_path, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()
