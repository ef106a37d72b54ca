"""Sessions: inputs and their words, files that are none, memory, profiles, and LiteRT's absence."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.errors import (
    ArgumentError,
    CorruptFileError,
    DtypeError,
    MissingOperatorError,
    OpforgeError,
    UnsupportedError,
)
from tests.unit.litert.conftest import options, write

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.compiler

KEY = "com.example::CustomGELU:1"
KINDS = {"x": ("f32", [None, 4])}, {"y": ("f32", [None, 4])}


@pytest.fixture(scope="module")
def gelu():
    """A model of one node of ours."""
    of.load("opforge.ops:CustomGELU")
    return write([(KEY, ["x"], ["y"], b"")], *KINDS)


def test_inputs_that_do_not_fit_are_told_by_name(gelu):
    session = of.litert.session(gelu)
    for inputs, kind, words in (
        ({"z": np.zeros((2, 4), np.float32)}, ArgumentError, ("expected: 'x'", "got: 'z'")),
        ({"x": np.zeros((2, 4))}, DtypeError, ("input 'x'", "float32", "float64")),
        ({"x": np.zeros((2, 5), np.float32)}, ArgumentError, ("input 'x'", "float32[?, 4]", "[2, 5]")),
        ({"x": np.zeros(4, np.float32)}, ArgumentError, ("input 'x'", "float32[?, 4]", "[4]")),
    ):
        with pytest.raises(kind) as caught:
            session.run(inputs)
        assert all(word in str(caught.value) for word in words)


def test_a_whole_file_that_a_session_cannot_take_is_not_called_damaged():
    from opforge.engines.litert._model import TfliteModel, pack

    tree = TfliteModel(write([("RELU", ["x"], ["y"], None)], *KINDS)).tree
    tree.subgraphs[0].tensors[0].type = 5  # a string
    with pytest.raises(DtypeError, match=r"(?s)model, x: tensors of this type cannot be passed.*got: string"):
        of.litert.session(pack(tree, set()))


def test_an_operator_that_nobody_registered():
    data = write([("com.example::CustomGELUU:1", ["x"], ["y"], b""), ("What", ["x"], ["z"], b"")], KINDS[0],
                 {**KINDS[1], "z": KINDS[1]["y"]})  # fmt: skip
    of.load("opforge.ops")
    with pytest.raises(MissingOperatorError) as caught:
        of.litert.session(data)
    words = ("com.example::CustomGELUU:1", "did you mean com.example::CustomGELU:1", "What", "opforge.load")
    assert all(word in str(caught.value) for word in words)


def test_two_versions_of_an_operator(tmp_path):
    @of.formula("test.litert::Scale", since=1)
    def one(x):
        return 2 * x

    @of.formula("test.litert::Scale", since=3)
    def three(x):
        return 3 * x

    nodes = [("test.litert::Scale:1", ["x"], ["y"], b""), ("test.litert::Scale:3", ["x"], ["z"], b"")]
    got = of.litert.session(write(nodes, KINDS[0], {**KINDS[1], "z": KINDS[1]["y"]})).run(
        {"x": np.ones((1, 4), np.float32)}
    )
    assert (got["y"][0, 0], got["z"][0, 0]) == (2, 3)
    with pytest.raises(MissingOperatorError, match="Scale:2"):
        of.litert.session(write([("test.litert::Scale:2", ["x"], ["y"], b"")], *KINDS))


def test_files_that_are_none(tmp_path, gelu):
    with pytest.raises(ArgumentError, match="does not exist"):
        of.litert.session(tmp_path / "none.tflite")
    for data, words in ((b"", "empty file"), (b"PK\3\4 no model", "TFL3")):
        (tmp_path / "bad.tflite").write_bytes(data)
        with pytest.raises(ArgumentError, match=r"not a \.tflite model") as caught:
            of.litert.session(tmp_path / "bad.tflite")
        assert words in str(caught.value)
    told = 0
    for size in range(8, len(gelu), 7):
        try:
            of.litert.session(gelu[:size])
        except (CorruptFileError, ArgumentError, MissingOperatorError):
            told += 1
    assert told > len(range(8, len(gelu), 7)) * 0.9


def test_damaged_models_end_no_process(tmp_path, gelu):
    """Each in a process that runs what it can read; a crash would end it."""
    code = """
import sys, numpy as np, opforge as of
from opforge.errors import OpforgeError
of.load("opforge.ops:CustomGELU")
data = open(sys.argv[1], "rb").read()
rng = np.random.default_rng(1)
told = 0
for k in range(100):
    bad = bytearray(data)
    bad[rng.integers(8, len(bad))] = rng.integers(0, 256)
    try:
        of.litert.session(bytes(bad)).run({"x": np.ones((2, 4), np.float32)})
    except OpforgeError:
        told += 1
print(told)
"""
    path = tmp_path / "gelu.tflite"
    path.write_bytes(gelu)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10


def test_a_hundred_sessions_leave_nothing(gelu):
    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def run():
        with of.litert.session(gelu) as session:
            session.run({"x": np.ones((64, 4), np.float32)})

    for _ in range(20):
        run()
    grown = []
    for _ in range(3):  # what is lost is lost every time; what an allocator keeps, it takes once
        before = resident()
        for _ in range(100):
            run()
        grown.append(resident() - before)
        if grown[-1] < 4 << 20:
            break
    assert min(grown) < 4 << 20


def test_a_closed_session_says_so(gelu):
    session = of.litert.session(gelu)
    session.close()
    session.close()
    with pytest.raises(ArgumentError, match="closed"):
        session.run({"x": np.ones((1, 4), np.float32)})


@pytest.mark.parametrize("shape", [(1, 1), (1, 12), (200, 400)])
def test_an_output_whose_size_litert_computes_is_refused(gelu, shape):
    """LiteRT writes such an output to memory of its own, and says that all is well where there is room."""
    kinds = {"x": ("f32", [None]), "s": ("i32", [2])}, {"_g": ("f32", [None]), "y": ("f32", [None, None])}
    data = write([(KEY, ["x"], ["_g"], b""), ("RESHAPE", ["_g", "s"], ["y"], None)], *kinds)
    session = of.litert.session(data)
    with pytest.raises(UnsupportedError) as caught:
        session.run({"x": np.ones(shape[0] * shape[1], np.float32), "s": np.array(shape, np.int32)})
    assert "shapes={...}" in str(caught.value)


# Whether LiteRT takes memory as large as this depends on where the allocator lays it: fresh pages are 16 bytes off.
BEHIND_A_COMPUTED_SIZE = """
import sys
import numpy as np
import opforge as of
from opforge.errors import UnsupportedError

of.load("opforge.ops:CustomGELU")
session = of.litert.session(sys.argv[1])
x, s = np.full(10**6, 3, np.float32), np.array([1000, 1000], np.int32)
try:
    print(session.run({"x": x, "s": s})["y"])
except UnsupportedError as error:
    print(error)
"""


def test_a_custom_node_behind_a_size_that_litert_computes(gelu, tmp_path):
    between = {n: ("f32", [None, None]) for n in ("_m", "_n")}
    nodes = [
        ("RESHAPE", ["x", "s"], ["_m"], None),
        (KEY, ["_m"], ["_n"], b""),
        ("SUM", ["_n", "axes"], ["y"], {"options": "ReducerOptions", "keepDims": False}),
    ]
    inputs = {"x": ("f32", [None]), "s": ("i32", [2])}
    path = tmp_path / "behind.tflite"
    path.write_bytes(write(nodes, inputs, {**between, "y": ("f32", [])}, {"axes": np.array([0, 1], np.int32)}))
    program = [sys.executable, "-c", BEHIND_A_COMPUTED_SIZE, str(path)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    told = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout
    assert "size it learns only while it runs" in told and "shapes={...}" in told

    small = {"x": np.full(6, 3, np.float32), "s": np.array([2, 3], np.int32)}
    try:  # runs wherever the memory lies right, and is told with the same words elsewhere
        y = of.litert.session(path).run(small)["y"]
    except UnsupportedError as error:
        assert "size it learns only while it runs" in str(error)
    else:
        np.testing.assert_allclose(y, 6 * 2.9963627, rtol=1e-5)


def test_a_profile_names_our_node_and_litert_s(gelu, tmp_path):
    from opforge.verify import find_engine

    kinds = {"x": ("f32", [64, 64])}, {"_m": ("f32", [64, 64]), "_n": ("f32", [64, 64]), "y": ("f32", [64, 64])}
    nodes = [("TANH", ["x"], ["_m"], None), (KEY, ["_m"], ["_n"], b""), ("TANH", ["_n"], ["y"], None)]
    path = tmp_path / "three.tflite"
    path.write_bytes(write(nodes, *kinds))
    rows = find_engine("litert").profile(path, {"x": np.ones((64, 64), np.float32)}, runs=3, threads=1)
    assert [row.operator for row in rows if row.device == "cpu"] == [KEY] and len(rows) == 3
    assert all(row.runs == 3 for row in rows) and sum(row.nanoseconds for row in rows) > 0


def test_litert_words_reach_the_user():
    data = write([("LOGICAL_NOT", ["x"], ["y"], None)], *KINDS)
    with pytest.raises(UnsupportedError) as caught:
        of.litert.session(data).run({"x": np.ones((1, 4), np.float32)})
    assert "LiteRT cannot run the model" in str(caught.value)


def test_an_old_litert_and_none(monkeypatch, gelu):
    from opforge.engines.litert import _engine, _library

    monkeypatch.setattr(_library, "version", lambda: "1.4.0")
    _library.library.cache_clear()
    with pytest.raises(UnsupportedError) as caught:
        of.litert.session(gelu)
    assert all(word in str(caught.value) for word in ("too old", "2.2 or newer", "1.4.0", "pip install --upgrade"))
    monkeypatch.undo()
    _library.library.cache_clear()

    def absent(name):
        raise _library.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_library.metadata, "version", absent)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'opforge\[litert\]'"):
        of.litert.session(gelu)
    monkeypatch.undo()
    monkeypatch.setattr(_engine.util, "find_spec", lambda name: None)
    state = _engine.LiteRt().availability()
    assert not state.ok and "opforge[litert]" in state.hint
    monkeypatch.setattr(_engine.util, "find_spec", lambda name: object())
    monkeypatch.setattr(_engine.metadata, "version", lambda name: "1.4.0")
    state = _engine.LiteRt().availability()
    assert not state.ok and "too old" in state.reason


def test_a_program_in_c_finds_operators_by_the_environment(hand_library):
    """Without Python's registry the adapter reads the libraries of OPFORGE_LIBRARY_PATH."""
    code = """
import ctypes, sys
from opforge.engines.litert._library import library
from opforge.engines.litert._adapter import Kernels
Kernels(["test.hand::Gelu:1", "TestHandGeluV1#3"], 0).close()
try:
    Kernels(["test.hand::None:1"], 0)
except Exception as problem:
    print(type(problem).__name__, problem)
"""
    environment = {**os.environ, "OPFORGE_LIBRARY_PATH": str(hand_library.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("MissingOperatorError test.hand::None:1: the operator is not defined")


def test_options_of_an_unknown_kind_are_no_crash(gelu):
    for given in (options(lo=1), b"\xff" * 40, b"\x00\x00\x00"):
        with pytest.raises(OpforgeError):
            of.litert.session(write([(KEY, ["x"], ["y"], given)], *KINDS))
