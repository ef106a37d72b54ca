"""Kernel operators from libraries: where they are searched, what must match, how they run."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opforge.bin.program import RequiredOperator
from opforge.bin.session import Session
from opforge.build.package import build_package
from opforge.errors import ArgumentError, CorruptFileError, MissingOperatorError
from opforge.schema import load
from tests.unit.bin.programs import Builder

pytestmark = pytest.mark.compiler
F32 = np.float32


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package("opforge.ops.sparse_matmul", tmp_path_factory.mktemp("libraries"))


def required(name: str = "") -> RequiredOperator:
    operator = next(op for op in load("opforge.ops.sparse_matmul") if op.name == "SparseMatMul")
    return RequiredOperator(
        domain=operator.domain,
        name=operator.name,
        version=operator.since_version,
        library=name or operator.package or operator.host_namespace,
        schema_hash=operator.schema_hash,
        content_hash="",
        signature=str(operator.signature),
        types=operator.types_text,
    )


def model(folder: Path, wanted: RequiredOperator, out: type = F32) -> Path:
    b = Builder()
    b.program.required.append(wanted)
    values, indices = b.input("values", F32, ["nnz"]), b.input("indices", np.int64, ["nnz"])
    indptr, dense = b.input("indptr", np.int64, ["rows"]), b.input("dense", F32, ["k", "n"])
    result = b.node(
        wanted.name,
        [values, indices, indptr, dense],
        out,
        [None, "n"],
        domain=wanted.domain,
        since=wanted.version,
        name="out",
    )
    b.output(b.node("Transpose", [result], out, ["n", None], name="turned", perm=[1, 0]))
    return b.save(folder / "model.bin")


def feeds(seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((40, 30)).astype(F32) * (rng.random((40, 30)) < 0.1)
    dense = rng.standard_normal((30, 17)).astype(F32)
    rows, columns = np.nonzero(full)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=40))]).astype(np.int64)
    return {"values": full[rows, columns], "indices": columns, "indptr": indptr, "dense": dense}, full.astype(
        float
    ) @ dense


def test_runs_from_each_place(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path, required())
    given, expected = feeds()
    for libraries in ([library], [library.parent]):
        result = Session(path, libraries=libraries).run(given)["turned"]
        np.testing.assert_allclose(result, expected.T, rtol=1e-5, atol=1e-5)
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", f"/nonexistent:{library.parent}")
    session = Session(path, threads=1)
    np.testing.assert_allclose(session.run(given)["turned"], expected.T, rtol=1e-5, atol=1e-5)
    assert session.statistics["executed_nodes"] == 2


def test_missing_library_says_where_it_looked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingOperatorError) as caught:
        Session(model(tmp_path, required("a.strange.package")), libraries=[tmp_path / "empty", tmp_path / "none.so"])
    text = str(caught.value)
    assert f"operator {required().domain}::SparseMatMul:1: the kernel library of an operator is not found" in text
    assert "expected: library 'a.strange.package' with schema" in text
    assert f"{tmp_path / 'empty'} (libraries=): it holds no a_strange_package.so" in text
    assert f"{tmp_path / 'none.so'} (libraries=): there is no such file" in text
    assert "to do: install the operator's package, or pass its library" in text


def test_the_folder_of_the_model_is_not_searched(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path, replace(required("somewhere.else"), schema_hash="0" * 16))  # nor is it a declared one
    shutil.copy(library, tmp_path / "somewhere_else.so")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingOperatorError, match="the kernel library of an operator is not found"):
        Session(path)


def test_declared_operators_serve_where_no_libraries_are_named(tmp_path: Path) -> None:
    path = model(tmp_path, required())
    given, expected = feeds()
    np.testing.assert_allclose(Session(path).run(given)["turned"], expected.T, rtol=1e-5, atol=1e-5)
    with pytest.raises(MissingOperatorError, match="not found"):
        Session(path, libraries=[tmp_path])
    with pytest.raises(MissingOperatorError, match="native code is refused"):
        Session(path, allow_native=False)


def test_schema_hash_must_match(tmp_path: Path, library: Path) -> None:
    with pytest.raises(MissingOperatorError, match="its schema of the operator differs"):
        Session(model(tmp_path, replace(required(), schema_hash="0" * 16)), libraries=[library])


def test_differing_content_warns(tmp_path: Path, library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Session(model(tmp_path, replace(required(), content_hash="f" * 16)), libraries=[library])
    assert "has another build of" in capfd.readouterr().err


def test_native_code_can_be_refused(tmp_path: Path, library: Path) -> None:
    with pytest.raises(MissingOperatorError, match="the model needs a kernel library, and native code is refused"):
        Session(model(tmp_path, required()), libraries=[library], allow_native=False)


def test_not_a_kernel_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(MissingOperatorError, match=r"text\.so: .*(invalid ELF header|file too short)"):
        Session(model(tmp_path, required()), libraries=[tmp_path / "text.so"])


def test_errors_of_the_kernel_and_of_its_contract(tmp_path: Path, library: Path) -> None:
    session = Session(model(tmp_path, required()), libraries=[library])
    given, expected = feeds()
    bad = {**given, "indices": np.full_like(given["indices"], 99)}
    with pytest.raises(ArgumentError, match=r"node 0 \S+::SparseMatMul \(output 'out'\): .*99"):
        session.run(bad)
    np.testing.assert_allclose(session.run(given)["turned"], expected.T, rtol=1e-5, atol=1e-5)


def test_a_file_that_contradicts_the_signature_is_refused(tmp_path: Path, library: Path) -> None:
    """The kernel writes f32; memory for one byte per element must never be given to it."""
    path = model(tmp_path, required(), out=np.uint8)
    with pytest.raises(CorruptFileError, match="output 0 of a kernel operator has another dtype") as caught:
        Session(path, libraries=[library])
    assert "expected: f32" in str(caught.value)
    assert "got: u8" in str(caught.value)


def test_results_do_not_depend_on_threads(tmp_path: Path, library: Path) -> None:
    given, _ = feeds(3)
    path = model(tmp_path, required())
    results = [Session(path, libraries=[library], threads=n).run(given)["turned"] for n in (1, 2)]
    assert results[0].tobytes() == results[1].tobytes()
    assert os.environ.get("OPFORGE_LIBRARY_PATH") is None
