"""Ahead of time: a library and its manifest in a folder, found again without a compiler."""

import json
import shutil

import numpy as np
import pytest

import opforge as of
from opforge.build import build_package, library_for, load_library
from opforge.build.package import build_libraries, default_folder
from opforge.errors import ArgumentError, CorruptFileError, MissingOperatorError, UnsupportedError
from tests.unit.build.conftest import write_scale

pytestmark = pytest.mark.compiler


@pytest.fixture
def package(tmp_path):
    return write_scale(tmp_path / "package", "Ahead")


def test_library_and_manifest(package, tmp_path):
    path = build_package(package, tmp_path / "out")
    assert sorted(p.name for p in path.parent.iterdir()) == ["test_build.manifest.json", "test_build.so"]
    library = load_library(path)
    written = json.loads(path.with_name("test_build.manifest.json").read_text())
    assert written["content_hash"] == library.content_hash
    row = written["operators"][0]
    assert (row["domain"], row["name"], row["since_version"]) == ("test.build", "Ahead", 1)
    assert row["signature"] == "(x: T[n]; scale: float = 2.0) -> (y: T[n])"
    assert row["flags"] == ["pure", "deterministic"]
    assert row["kernels"] == [{"device": "cpu", "dtypes": ["f32"], "strided": False, "inplace": []}]
    assert row["schema_hash"] == library.operators["test.build::Ahead:1"].schema_hash
    assert list(written["sources"]) == ["test.build::Ahead:1/cpu.cc", "test.build::Ahead:1/factor.h"]


def test_each_domain_has_its_library_and_a_bin_finds_it(tmp_path):
    """A .bin asks for the library of an operator's domain by its name."""
    write_scale(tmp_path / "ops" / "first", "Ahead")
    other = write_scale(tmp_path / "ops" / "second", "AheadOther")
    (other / "op.py").write_text((other / "op.py").read_text().replace("test.build::", "test.build.other::"))
    first, second = of.load(tmp_path / "ops")
    made = build_libraries([first, second], tmp_path / "out")
    assert [path.name for path in made] == ["test_build.so", "test_build_other.so"]
    assert [list(load_library(path).operators) for path in made] == [[first.key], [second.key]]
    of.compile(of.onnx.one_node_model(second), tmp_path / "second.bin")
    session = of.Session(tmp_path / "second.bin", libraries=[tmp_path / "out"])
    assert session.run({"x": np.ones(2, np.float32)})["y"].tolist() == [2.0, 2.0]


def test_found_without_compiler_through_the_library_path(tmp_path, monkeypatch):
    folder = write_scale(tmp_path / "package", "AheadPath")
    path = build_package(folder, tmp_path / "out")
    operator = of.load(folder)[0]
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", str(path.parent))
    assert library_for([operator]).path == path
    assert operator(np.ones(2, np.float32)).tolist() == [2.0, 2.0]


def test_found_in_the_package(tmp_path, monkeypatch):
    folder = write_scale(tmp_path / "package", "AheadWheel")
    path = build_package(folder, folder / "_lib")
    monkeypatch.setenv("OPFORGE_JIT", "off")
    operator = of.load(folder)[0]
    assert library_for([operator]).path == path


def test_edited_source_makes_the_library_unfit(tmp_path):
    folder = write_scale(tmp_path / "package", "AheadStale")
    path = build_package(folder, folder / "_lib")
    source = folder / "cpu.cc"
    source.write_text(source.read_text() + "// changed\n")
    assert library_for([of.load(folder)[0]]).path != path


def test_edited_header_makes_the_library_unfit(tmp_path):
    folder = write_scale(tmp_path / "package", "AheadHeader")
    path = build_package(folder, folder / "_lib")
    (folder / "factor.h").write_text("constexpr float kFactor = 7.0f;\n")
    operator = of.load(folder)[0]
    assert library_for([operator]).path != path
    assert operator(np.ones(1, np.float32)).tolist() == [14.0]


def test_failed_build_leaves_nothing(tmp_path):
    folder = write_scale(tmp_path / "package", "AheadBroken", cc="#error no\n")
    with pytest.raises(of.errors.BuildError):
        build_package(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_package_without_operators(tmp_path):
    (tmp_path / "op.py").write_text("")
    with pytest.raises(ArgumentError):
        build_package(tmp_path, tmp_path / "out")


def test_load_errors(tmp_path):
    with pytest.raises(MissingOperatorError, match="kernel library not found"):
        load_library(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(CorruptFileError, match="not a loadable shared object"):
        load_library(tmp_path / "text.so")


def test_shared_object_of_another_kind(tmp_path):
    import ctypes.util

    plain = shutil.copyfile(next(iter(_shared_objects())), tmp_path / "plain.so")
    with pytest.raises(CorruptFileError, match="expected: the exported symbol opforge_library_v1"):
        load_library(plain)
    assert ctypes.util  # the import documents where such objects come from


def _shared_objects():
    import _ctypes

    yield _ctypes.__file__


def test_kernel_for_lists_what_exists(tmp_path):
    path = build_package(write_scale(tmp_path / "package", "AheadList"), tmp_path / "out")
    row = load_library(path).operator("test.build::AheadList:1")
    with pytest.raises(UnsupportedError, match=r"test\.build::AheadList:1: no kernel for these dtypes"):
        row.kernel_for(((2, 64),))
    with pytest.raises(MissingOperatorError, match="operator a::B:1 is not in the library"):
        load_library(path).operator("a::B:1")


def test_one_library_for_a_folder_of_operators(tmp_path, monkeypatch):
    folder = tmp_path / "several"
    for name in ("AheadOne", "AheadTwo"):
        write_scale(folder / name.lower(), name)
    path = build_package(folder, default_folder(folder))
    assert path == folder / "_lib" / "test_build.so"
    monkeypatch.setenv("OPFORGE_JIT", "off")
    for operator in of.load(folder):
        assert library_for([operator]).path == path
