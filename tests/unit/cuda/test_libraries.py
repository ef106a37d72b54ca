"""Variants of CUDA kernels that call cuSPARSE and cuBLAS, in the emulator and with fakes of both on the host's memory.

The fakes (tests/data/cuda/fake_*.cpp) refuse what does not fit together, follow every index, write the whole workspace
and note each call. That they have NVIDIA's signatures was compared with cusparse.h of CUDA 13 by eye.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from examples.tiled_matmul.op import tiled_matmul
from opforge._paths import include_dir
from opforge.build import abi, load_library
from opforge.build import invoke as invoking
from opforge.build.cuda.libraries import LIBRARIES
from opforge.build.toolchain import find_compiler
from opforge.build.tuning import CLASSES, Choice, library_used, set_choice
from opforge.cuda import emulate_operators
from opforge.errors import OpforgeError, UnsupportedError
from opforge.frameworks import numpy_host
from opforge.ops.sparse_matmul.op import sparse_matmul, sparse_matmul_grad_dense, sparse_matmul_grad_values
from opforge.schema import DType
from opforge.verify.cases import arrays, cases_of
from tests.unit.cuda.test_sparse import LIMITS, MEMBERS, close, inputs_of

pytestmark = pytest.mark.compiler
ROOT = Path(__file__).parents[3]
FIXED, ANY_ORDER = 3, 4
NUMBERS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
PRODUCTS = (sparse_matmul, sparse_matmul_grad_dense)


class Fake:
    """A fake of a library, and what was called of it."""

    def __init__(self, path):
        self.path = path
        self._calls = ctypes.CDLL(str(path)).fake_calls
        self._calls.restype = ctypes.c_char_p

    def calls(self):
        """The calls since the last time: name, and numbers by name."""
        rows = [line.split(" ") for line in self._calls(1).decode().splitlines()]
        return [(row[0], {k: int(v) for k, v in (word.split("=") for word in row[1:])}) for row in rows]


@pytest.fixture(scope="session")
def fakes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fakes")
    return {name: Fake(compile_fake(name, folder / f"lib{name}.so")) for name in ("cusparse", "cublas")}


def compile_fake(name, target):
    source = ROOT / "tests" / "data" / "cuda" / f"fake_{name}.cpp"
    flags = ("-std=c++17", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{target.name}")
    subprocess.run([*find_compiler().command, *flags, source, "-o", target], check=True)
    return target


class Kernels:
    """The emulated kernels in a library of its own, since each opens cuSPARSE once."""

    def __init__(self, operators, folder):
        self.path = Path(shutil.copy(emulated(operators), folder / "kernels.so"))
        self.loaded = load_library(self.path)

    def run(self, operator, given, variant, *, optional=False, measured=0):
        for kernel in self.loaded.operator(operator.key).kernels:
            for klass in range(CLASSES):
                set_choice(kernel, klass, Choice(variant=variant, library=measured), optional=optional)
        return numpy_host.call(operator, given, {}, library=self.loaded, device=abi.DEVICE_CUDA)

    def capturing(self, state):
        ctypes.CDLL(str(self.path)).opforge_cuda_capturing(ctypes.c_int(state))


@cache
def emulated(operators):
    return emulate_operators(list(operators)).path


@pytest.fixture
def fresh(tmp_path, fakes, monkeypatch):
    monkeypatch.setenv("OPFORGE_CUSPARSE", str(fakes["cusparse"].path))
    fakes["cusparse"].calls()
    return Kernels(tuple(MEMBERS), tmp_path)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory, fakes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPFORGE_CUSPARSE", str(fakes["cusparse"].path))
        kernels = Kernels(tuple(MEMBERS), tmp_path_factory.mktemp("kernels"))
        kernels.run(sparse_matmul, inputs_of(sparse_matmul, [1, 2], 4, 3), FIXED)
    return kernels


def dots_variant(operator, variant):
    return 1 if operator is sparse_matmul_grad_values else variant


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("operator", PRODUCTS, ids=lambda o: o.name)
def test_products_by_cusparse(sparse, fakes, operator, dtype, index):
    counts, k = [4, 0, 60, 2], 30
    for n in (1, 7, 64):
        for variant in (FIXED, ANY_ORDER):
            given = inputs_of(operator, counts, k, n, dtype, index)
            fakes["cusparse"].calls()
            close(operator, given, sparse.run(operator, given, variant), dtype)
            ((name, facts),) = fakes["cusparse"].calls()
            turns = operator is sparse_matmul_grad_dense and variant == ANY_ORDER
            m, columns = (k, 4) if operator is sparse_matmul_grad_dense and not turns else (4, k)
            vector = n == 1 and not turns
            assert name == ("cusparseSpMV" if vector else "cusparseSpMM")
            expected = {
                "rows": m, "columns": columns, "entries": 66, "index": 2 if index is np.int32 else 3,
                "type": NUMBERS[dtype], "compute": 1 if dtype == "float64" else 0, "operation": int(turns),
                "algorithm": 3 if vector else 12 if variant == FIXED else 6,
            }  # fmt: skip
            assert {key: facts[key] for key in expected} == expected


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_dot_products_at_entries_by_cusparse(sparse, fakes, dtype):
    for n in (1, 7, 64):
        given = inputs_of(sparse_matmul_grad_values, [4, 0, 60, 2], 30, n, dtype)
        fakes["cusparse"].calls()
        close(sparse_matmul_grad_values, given, sparse.run(sparse_matmul_grad_values, given, 1), dtype)
        ((name, facts),) = fakes["cusparse"].calls()
        assert name == "cusparseSDDMM" and facts["n"] == n and facts["type"] == NUMBERS[dtype]


@pytest.mark.parametrize("operator", MEMBERS, ids=lambda o: o.name)
def test_every_case_by_cusparse_and_nothing_of_it_for_what_is_empty(sparse, fakes, operator):
    types = {"T": DType.parse("f32"), "I": DType.parse("i64")}
    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=0)
        fakes["cusparse"].calls()
        found = sparse.run(operator, given, dots_variant(operator, FIXED))
        close(operator, given, found, "float32")
        empty = any(array.size == 0 for array in given)
        assert len(fakes["cusparse"].calls()) == (0 if empty else 1), case.name


def test_a_dtype_that_the_library_has_not(sparse):
    given = inputs_of(sparse_matmul_grad_values, [4, 0, 60, 2], 30, 7, "bfloat16")
    with pytest.raises(UnsupportedError, match=r"cusparseSDDMM_bufferSize: CUSPARSE_STATUS_NOT_SUPPORTED \(10\)"):
        sparse.run(sparse_matmul_grad_values, given, 1)
    own = sparse.run(sparse_matmul_grad_values, given, 0)
    np.testing.assert_array_equal(sparse.run(sparse_matmul_grad_values, given, 1, optional=True), own)


@pytest.mark.parametrize("operator", MEMBERS, ids=lambda o: o.name)
def test_what_is_no_csr_matrix_is_never_followed(sparse, fakes, operator):
    """In a captured graph nothing can be refused: the fake would follow wrong indices, and says that it got none."""
    at = 0 if operator is sparse_matmul_grad_values else 1
    for indices, indptr in (([0, 9, 2], [0, 1, 3]), ([0, 1, -5], [0, 1, 3]), ([0, 1, 2], [0, 9, 3])):
        for variant in (FIXED, ANY_ORDER):
            given = inputs_of(operator, [1, 2], 4, 3)
            given[at], given[at + 1] = np.array(indices), np.array(indptr)
            sparse.capturing(1)
            try:
                found = sparse.run(operator, given, dots_variant(operator, variant))
            finally:
                sparse.capturing(0)
            assert len(fakes["cusparse"].calls()) == 1
            assert np.isnan(found).all()


def test_the_first_call_inside_a_captured_graph(fresh, fakes, capfd):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    own = fresh.run(sparse_matmul, given, 0)
    fresh.capturing(1)
    with pytest.raises(
        UnsupportedError, match=r"cannot be started while a graph is captured(?s:.*)call the operator once"
    ):
        fresh.run(sparse_matmul, given, FIXED)
    capfd.readouterr()
    np.testing.assert_array_equal(fresh.run(sparse_matmul, given, FIXED, optional=True), own)
    np.testing.assert_array_equal(fresh.run(sparse_matmul, given, FIXED, optional=True), own)
    assert capfd.readouterr().err.count("the operator's own kernels run instead") == 1  # said once
    assert fakes["cusparse"].calls() == []
    fresh.capturing(0)
    close(sparse_matmul, given, fresh.run(sparse_matmul, given, FIXED), "float32")
    fresh.capturing(1)
    close(sparse_matmul, given, fresh.run(sparse_matmul, given, FIXED), "float32")  # now there is a handle
    assert [name for name, _ in fakes["cusparse"].calls()] == ["cusparseCreate", "cusparseSpMM", "cusparseSpMM"]


def test_a_handle_breaks_no_capture_of_another_thread(fresh, fakes):
    """Making one allocates, which ends other threads' captures unless this thread's mode is relaxed (2)."""
    mode = ctypes.CDLL(str(fresh.path)).opforge_cuda_capture_mode
    seen = []
    asking = ctypes.CFUNCTYPE(None)(lambda: seen.append(mode(-1)))
    slot = ctypes.c_void_p.in_dll(ctypes.CDLL(str(fakes["cusparse"].path)), "fake_at_create")
    slot.value = ctypes.cast(asking, ctypes.c_void_p).value
    try:
        fresh.run(sparse_matmul, inputs_of(sparse_matmul, [1, 2], 4, 3), FIXED)
    finally:
        slot.value = None
    assert seen == [2] and mode(-1) == 0


def at(monkeypatch, device, stream):
    """Calls of NumPy's host are on this device and stream from now on."""
    whole = invoking.Call.context

    def context(self, kernel):
        found = whole(self, kernel)
        found.device, found.stream = abi.Device(abi.DEVICE_CUDA, device), stream
        return found

    def arguments(self, groups, whole=invoking.Call.arguments):
        self.device = abi.Device(abi.DEVICE_CUDA, device)
        return whole(self, groups)

    monkeypatch.setattr(invoking.Call, "context", context)
    monkeypatch.setattr(invoking.Call, "arguments", arguments)


def test_handles_belong_to_devices_and_are_bound_to_the_calls_stream(fresh, fakes):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    for device, stream in ((0, 0x5EED0), (1, 0x5EED8), (0, 0x5EEE0), (1, None)):
        with pytest.MonkeyPatch.context() as patch:
            at(patch, device, stream)
            close(sparse_matmul, given, fresh.run(sparse_matmul, given, FIXED), "float32")
    products = [facts for name, facts in fakes["cusparse"].calls() if name == "cusparseSpMM"]
    assert [facts["stream"] for facts in products] == [0x5EED0, 0x5EED8, 0x5EEE0, 0]
    first, second, third, fourth = (facts["handle"] for facts in products)
    assert first == third != second == fourth


def test_calls_at_once_have_handles_of_their_own(fresh, fakes):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    fresh.run(sparse_matmul, given, FIXED)
    failed = []

    def work():
        try:
            for _ in range(10):
                found = numpy_host.call(sparse_matmul, given, {}, library=fresh.loaded, device=abi.DEVICE_CUDA)
                close(sparse_matmul, given, found, "float32")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    called = fakes["cusparse"].calls()
    assert sum(name == "cusparseSpMM" for name, _ in called) == 41
    assert 1 <= sum(name == "cusparseCreate" for name, _ in called) <= 4


@pytest.mark.parametrize(
    ("fails", "kind", "words"),
    [
        ("cusparseCreate=1", UnsupportedError, r"making a handle: CUSPARSE_STATUS_NOT_INITIALIZED \(1\)"),
        ("cusparseSetStream=3", OpforgeError, r"binding a handle to the stream: CUSPARSE_STATUS_INVALID_VALUE \(3\)"),
        ("cusparseCreateCsr=2", OpforgeError, r"cusparseCreateCsr: CUSPARSE_STATUS_ALLOC_FAILED \(2\)"),
        ("cusparseSpMM=6", OpforgeError, r"cuSPARSE: cusparseSpMM: CUSPARSE_STATUS_EXECUTION_FAILED \(6\)"),
        ("cusparseSpMM=77", OpforgeError, r"cuSPARSE: cusparseSpMM: an error without a name \(77\)"),
        ("cusparseSpMM_bufferSize=10", UnsupportedError, r"bufferSize: CUSPARSE_STATUS_NOT_SUPPORTED \(10\)"),
    ],
)
def test_errors_of_the_library(fresh, fails, kind, words, monkeypatch):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    own = fresh.run(sparse_matmul, given, 0)
    monkeypatch.setenv("FAKE_FAIL", fails)
    with pytest.raises(kind, match=words):
        fresh.run(sparse_matmul, given, FIXED)
    if kind is UnsupportedError:  # what was stored some day is no reason to fail
        np.testing.assert_array_equal(fresh.run(sparse_matmul, given, FIXED, optional=True), own)
    else:
        with pytest.raises(kind, match=words):
            fresh.run(sparse_matmul, given, FIXED, optional=True)
    monkeypatch.delenv("FAKE_FAIL")
    close(sparse_matmul, given, fresh.run(sparse_matmul, given, FIXED), "float32")


def test_workspaces_are_the_calls_scratch_memory(sparse, fakes, monkeypatch):
    asked = []
    whole = invoking.Call._scratch

    def scratch(self, context, size, alignment):
        asked.append((whole(self, context, size, alignment), size, alignment))
        return asked[-1][0]

    monkeypatch.setattr(invoking.Call, "_scratch", scratch)
    last = ctypes.CDLL(str(fakes["cusparse"].path)).fake_last_workspace
    last.restype = ctypes.c_void_p
    for operator in MEMBERS:
        asked.clear()
        given = inputs_of(operator, [3, 40, 1], 9, 8, "float32")
        sparse.run(operator, given, dots_variant(operator, FIXED))
        size = ctypes.c_size_t()
        assert (last(ctypes.byref(size)), size.value, 256) in asked


def test_no_memory_for_a_workspace(sparse, monkeypatch):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    own = sparse.run(sparse_matmul, given, 0)
    whole = invoking.Call._scratch

    def scratch(self, context, size, alignment):
        return None if size == 1234 else whole(self, context, size, alignment)

    monkeypatch.setattr(invoking.Call, "_scratch", scratch)
    with pytest.raises(OpforgeError, match="cuSPARSE: no memory on the GPU for a workspace of 1234 bytes"):
        sparse.run(sparse_matmul, given, FIXED)
    np.testing.assert_array_equal(sparse.run(sparse_matmul, given, FIXED, optional=True), own)


def test_addresses_that_are_no_multiples_of_16(sparse):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    moved = np.empty(given[3].size + 1, np.float32)[1:].reshape(given[3].shape)
    moved[...] = given[3]
    with pytest.raises(UnsupportedError, match="multiples of 16"):
        sparse.run(sparse_matmul, [*given[:3], moved], FIXED)
    close(sparse_matmul, given, sparse.run(sparse_matmul, [*given[:3], moved], FIXED, optional=True), "float32")


@pytest.mark.parametrize("variant", [FIXED, ANY_ORDER])
@pytest.mark.parametrize("operator", PRODUCTS, ids=lambda o: o.name)
def test_more_columns_than_cusparse_has_blocks_for(sparse, fakes, operator, variant):
    """It would leave zeros, and say nothing (before the version of CUDA 13.1)."""
    most = inputs_of(operator, [2, 1], 3, 65535, "float32")
    close(operator, most, sparse.run(operator, most, variant), "float32")
    more = inputs_of(operator, [2, 1], 3, 65536, "float32")
    fakes["cusparse"].calls()
    with pytest.raises(UnsupportedError, match="at most 65535 columns"):
        sparse.run(operator, more, variant)
    close(operator, more, sparse.run(operator, more, variant, optional=True), "float32")
    assert fakes["cusparse"].calls() == []


def test_a_library_that_is_not_here(fresh, monkeypatch):
    monkeypatch.setenv("OPFORGE_CUSPARSE", "/nowhere/libcusparse.so.12")
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    np.testing.assert_array_equal(
        fresh.run(sparse_matmul, given, FIXED, optional=True), fresh.run(sparse_matmul, given, 0)
    )
    with pytest.raises(UnsupportedError) as failed:
        fresh.run(sparse_matmul, given, FIXED)
    head, expected, got, hint = str(failed.value).splitlines()
    assert head == "com.example::SparseMatMul:1: cuSPARSE is not here"
    assert expected == "  expected: OPFORGE_CUSPARSE that names libcusparse.so.12"
    assert got.startswith("  got: /nowhere/libcusparse.so.12: cannot open shared object file")
    assert hint.startswith("  to do: pip install nvidia-cusparse (CUDA 13) or nvidia-cusparse-cu12, or name the file")
    assert hint.endswith("`opforge doctor` shows what is found")


def test_a_choice_is_for_the_version_that_it_was_measured_with(fresh, fakes, capfd):
    given = inputs_of(sparse_matmul, [3, 40, 1], 9, 8, "float32")
    kernels = fresh.loaded.operator(sparse_matmul.key).kernels
    fresh.run(sparse_matmul, given, FIXED)
    assert sorted(map(library_used, kernels))[-2:] == [0, 12_005_010]  # the kernel of these dtypes
    assert not any(map(library_used, kernels))
    fakes["cusparse"].calls()
    fresh.run(sparse_matmul, given, FIXED, optional=True, measured=12_005_010)
    assert fakes["cusparse"].calls() and not any(map(library_used, kernels))
    assert "cuSPARSE" not in capfd.readouterr().err
    own = fresh.run(sparse_matmul, given, 0)
    np.testing.assert_array_equal(fresh.run(sparse_matmul, given, FIXED, optional=True, measured=12_004_001), own)
    assert not fakes["cusparse"].calls()
    words = "cuSPARSE is 12.5.10 here, while the choice was measured with 12.4.1\n  to do: run `opforge tune` again"
    assert words in capfd.readouterr().err
    close(sparse_matmul, given, fresh.run(sparse_matmul, given, FIXED, measured=12_004_001), "float32")
    assert fakes["cusparse"].calls()  # what is asked for by name is no matter of another day


def test_a_library_that_lacks_a_call(fresh, fakes, monkeypatch):
    monkeypatch.setenv("OPFORGE_CUSPARSE", str(fakes["cublas"].path))
    with pytest.raises(UnsupportedError, match="it has no cusparseCreate: the library is too old, or another one"):
        fresh.run(sparse_matmul, inputs_of(sparse_matmul, [1, 2], 4, 3), FIXED)


FOUND = """
import ctypes, sys
sys.path[:0] = [{root!r}]
from opforge.build import load_library, abi
from opforge.build.tuning import CLASSES, Choice, set_choice
from opforge.frameworks import numpy_host
from tests.unit.cuda.test_sparse import close, inputs_of, sparse_matmul
{before}
loaded = load_library({kernels!r})
for kernel in loaded.operator(sparse_matmul.key).kernels:
    for klass in range(CLASSES):
        set_choice(kernel, klass, Choice(variant=3))
given = inputs_of(sparse_matmul, [3, 4], 5, 6)
try:
    close(sparse_matmul, given, numpy_host.call(sparse_matmul, given, {{}}, library=loaded, device=abi.DEVICE_CUDA))
    print([line.split()[-1] for line in open("/proc/self/maps") if "libcusparse" in line][0])
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("way", ["the process", "a package", "the system", "nowhere"])
def test_where_a_library_is_looked_for(tmp_path, way):
    if way in ("the system", "nowhere") and LIBRARIES[0].find() is not None:
        pytest.skip("this machine has a cuSPARSE, which is found first")
    packages = tmp_path / "site-packages"
    folder = packages / "nvidia" / "cusparse" / "lib" if way == "a package" else tmp_path / "other"
    for made in (folder, packages / "mine"):
        made.mkdir(parents=True)
    library = compile_fake("cusparse", folder / "libcusparse.so.12")
    kernels = shutil.copy(emulated(tuple(MEMBERS)), packages / "mine" / "kernels.so")
    before = f"ctypes.CDLL({str(library)!r})" if way == "the process" else ""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPFORGE_CUSPARSE", "LD_LIBRARY_PATH")}
    environment |= {"LD_LIBRARY_PATH": str(folder)} if way == "the system" else {}
    script = FOUND.format(root=str(ROOT), before=before, kernels=str(kernels))
    environment["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    if way == "nowhere":
        assert "cuSPARSE is not here" in done.stdout and "got: libcusparse.so.12: cannot open" in done.stdout
    else:
        assert done.stdout.strip() == str(library)


def test_of_several_packages_that_one_is_opened_which_doctor_shows(tmp_path, fakes, monkeypatch):
    """CUDA 12's cuSPARSE and 13's have the same name, in folders that are listed in any order."""
    packages = tmp_path / "site-packages"
    (packages / "mine").mkdir(parents=True)
    for name in ("cu14", "cusparse", "cu12", "cu13", "b", "cu11", "a", "cu10"):
        folder = packages / "nvidia" / name / "lib"
        folder.mkdir(parents=True)
        shutil.copy(fakes["cusparse"].path, folder / "libcusparse.so.12")
    kernels = shutil.copy(emulated(tuple(MEMBERS)), packages / "mine" / "kernels.so")
    environment = {k: v for k, v in os.environ.items() if k not in ("OPFORGE_CUSPARSE", "LD_LIBRARY_PATH")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    script = FOUND.format(root=str(ROOT), before="", kernels=str(kernels))
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    monkeypatch.delenv("OPFORGE_CUSPARSE", raising=False)
    monkeypatch.setattr(sys, "path", [str(packages)])
    assert done.stdout.strip() == str(LIBRARIES[0].find())


# cuBLAS


@pytest.fixture(scope="module")
def tiled(tmp_path_factory, fakes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPFORGE_CUBLAS", str(fakes["cublas"].path))
        kernels = Kernels((tiled_matmul,), tmp_path_factory.mktemp("tiled"))
        kernels.run(tiled_matmul, [np.ones((2, 2)), np.ones((2, 2))], 1)
    return kernels


@pytest.mark.parametrize("dtype", LIMITS)
def test_matrix_products_by_cublas(tiled, fakes, dtype):
    rng = np.random.default_rng(0)
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    for m, k, n in ((1, 1, 1), (5, 3, 7), (40, 17, 1)):
        left, right = (rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
        fakes["cublas"].calls()
        close(tiled_matmul, [left, right], tiled.run(tiled_matmul, [left, right], 1), dtype)
        ((name, facts),) = fakes["cublas"].calls()
        wide = dtype == "float64"
        expected = {"m": n, "n": m, "k": k, "type": NUMBERS[dtype], "compute": 70 if wide else 68, "math": 16}
        assert name == "cublasGemmEx" and {key: facts[key] for key in expected} == expected
        assert facts["workspace"] == 32 << 20  # of an emulated device of capability 9.0


def test_empty_matrices_are_not_for_cublas(tiled, fakes):
    fakes["cublas"].calls()
    for m, k, n in ((3, 0, 2), (0, 3, 2), (3, 2, 0)):
        np.testing.assert_array_equal(tiled.run(tiled_matmul, [np.ones((m, k)), np.ones((k, n))], 1), np.zeros((m, n)))
    assert fakes["cublas"].calls() == []


def test_errors_of_cublas(tiled, monkeypatch):
    given = [np.ones((3, 4)), np.ones((4, 2))]
    monkeypatch.setenv("FAKE_FAIL", "cublasGemmEx=13")
    with pytest.raises(OpforgeError, match=r"cuBLAS: cublasGemmEx: CUBLAS_STATUS_EXECUTION_FAILED \(13\)"):
        tiled.run(tiled_matmul, given, 1)
    monkeypatch.delenv("FAKE_FAIL")
    with pytest.raises(UnsupportedError, match="there is no variant 2: 1 is cuBLAS"):
        tiled.run(tiled_matmul, given, 2)


# What is found, tuned and told


def test_the_rows_of_the_headers_are_those_of_doctor():
    for library in LIBRARIES:
        text = (include_dir() / "opforge" / "cuda" / f"{library.name.lower()}.h").read_text()
        row = re.search(r"LibraryRow kRow = \{(.*?)\};", text, re.DOTALL)
        assert row is not None
        words = re.findall(r'"([^"]*)"', row[1])
        assert words == [library.name, " ".join(library.files), library.variable, library.packages]


def test_what_doctor_finds(tmp_path, monkeypatch):
    cusparse = LIBRARIES[0]
    monkeypatch.delenv("OPFORGE_CUSPARSE", raising=False)
    folder = tmp_path / "site-packages" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcusparse.so.12").touch()
    monkeypatch.syspath_prepend(folder.parents[2])
    assert cusparse.find() == folder / "libcusparse.so.12"
    monkeypatch.setenv("OPFORGE_CUSPARSE", str(tmp_path / "none"))
    assert cusparse.find() is None


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, fakes):
    """A folder with the emulated kernels and the fake driver, as `make device-build` would make it."""
    from opforge.build.plan import plan_library
    from tools.device_check.prebuilt import DRIVER, _place, build_fake_driver

    folder = tmp_path_factory.mktemp("prebuilt")
    plan = plan_library([sparse_matmul])
    assert set(plan.operators) == set(MEMBERS)
    _place(emulated(tuple(MEMBERS)), plan, folder, f"{plan.name}_cuda")
    build_fake_driver(folder)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OPFORGE_LIBRARY_PATH": str(folder),
        "OPFORGE_CUDA_DRIVER": str(folder / DRIVER),
        "OPFORGE_CACHE": str(tmp_path_factory.mktemp("cache")),
        "OPFORGE_CUSPARSE": str(fakes["cusparse"].path),
    }


def tune(environment, *words, **changes):
    command = [sys.executable, "-m", "opforge", "tune", "opforge.ops:SparseMatMul", "--largest", "5000", *words]
    return subprocess.run(
        command, env={**environment, **changes}, capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_tune_measures_the_library_beside_the_own_variants(prepared):
    done = tune(prepared, "--dtype", "f32", "--json")
    assert done.returncode == 0, done.stderr
    row = next(r for r in json.loads(done.stdout)["rows"] if r["operator"] == sparse_matmul.key)
    assert list(row["tried"]) == ["as it is", "by rows", "merged", "cuSPARSE", "cuSPARSE, any order"]
    assert row["kept"] and row["text"] in ("as it is", "cuSPARSE")  # what else may be faster is shown only
    assert row["choice"]["library"] == (12_005_010 if row["text"] == "cuSPARSE" else 0)
    stored = json.loads(Path(json.loads(done.stdout)["file"]).read_text())["rows"]
    assert all((one["choice"]["variant"] == FIXED) == (one["choice"]["library"] > 0) for one in stored.values())


def test_tune_says_why_a_library_is_left_out(prepared):
    done = tune(prepared, "--dtype", "f32", OPFORGE_CUSPARSE="/nowhere/libcusparse.so.12")
    assert done.returncode == 0, done.stderr
    assert (
        "left out cuSPARSE: com.example::SparseMatMul:1: cuSPARSE is not here; got: /nowhere/libcusparse" in done.stdout
    )
    assert "as it is" in done.stdout


def test_a_variant_that_is_asked_for_by_name(prepared):
    done = tune(prepared, "--dtype", "f32", "--variant", "cuSPARSE", "--json")
    assert done.returncode == 0, done.stderr
    assert all(list(r["tried"]) == ["as it is", "cuSPARSE"] for r in json.loads(done.stdout)["rows"])
    done = tune(prepared, "--dtype", "f32", "--variant", "cuSPARSE", OPFORGE_CUSPARSE="/nowhere/libcusparse.so.12")
    assert done.returncode == 2
    assert "cuSPARSE is not here" in done.stderr and "pip install nvidia-cusparse" in done.stderr
    done = tune(prepared, "--variant", "cuRAND")
    assert done.returncode == 2
    assert "no operator has this variant" in done.stderr and "expected: by rows" in done.stderr.replace(
        "cuSPARSE, ", ""
    )


def test_the_tests_on_a_device_are_rehearsed(prepared):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/device/test_libraries.py"]
    environment = {**prepared, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPFORGE_DEVICE_CHECK": "emulated"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    marks = done.stdout.split()[0]  # the fake has no dot products in bf16, with either index
    assert marks.count(".") > 40 and marks.count("s") == 2, done.stdout
