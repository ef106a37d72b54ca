"""Sequences and optionals from ONNX through the file to a session's lists and None."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import opforge as of
from opforge.bin import format as bin_format
from opforge.bin.session import Session
from opforge.errors import ArgumentError, DtypeError, OpforgeError, UnsupportedError

F32 = np.float32


def session(text: str, folder: Path) -> Session:
    of.compile(onnx.parser.parse_model(text), folder / "model.bin")
    return Session(folder / "model.bin")


def header(inputs: str, outputs: str, body: str) -> str:
    return f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {body} }}'


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.arange(np.prod(s), dtype=F32).reshape(s) + 10 * k for k, s in enumerate(shapes)]


def test_a_signature_says_its_kinds(tmp_path: Path) -> None:
    s = session(
        header(
            "seq(float[K,2]) s, optional(float[3]) o, optional(seq(int64[])) q, float[N] x",
            "seq(float[K,2]) s2, bool b, bool c, float[N] y",
            "s2 = Identity(s) b = OptionalHasElement(o) c = OptionalHasElement(q) y = Neg(x)",
        ),
        tmp_path,
    )
    assert [i.kind for i in s.inputs] == ["sequence", "optional", "optional_sequence", "tensor"]
    assert [i.kind for i in s.outputs] == ["sequence", "tensor", "tensor", "tensor"]
    assert [str(i) for i in s.inputs] == [
        "sequence of float32[K, 2]",
        "optional float32[3]",
        "optional sequence of int64 of any rank",
        "float32[N]",
    ]
    assert "s: sequence of float32[K, 2]" in repr(s)
    program = bin_format.read(tmp_path / "model.bin").program
    assert [program.values[k].kind for k in program.graphs[0].inputs] == [i.kind for i in s.inputs]
    given = arrays((1, 2), (3, 2))
    got = s.run({"s": given, "x": np.ones(4, F32)})  # optionals may be left out
    assert [a.tolist() for a in got["s2"]] == [a.tolist() for a in given]
    assert not got["b"]
    assert not got["c"]
    got = s.run({"s": [], "o": np.zeros(3, F32), "q": [np.array(1)], "x": np.ones(4, F32)})
    assert got["s2"] == []
    assert got["b"]
    assert got["c"]


def test_inputs_of_a_wrong_kind_are_explained(tmp_path: Path) -> None:
    s = session(header("seq(float[2]) s, float[2] x", "seq(float[2]) t", "t = SequenceInsert(s, x)"), tmp_path)
    x = np.zeros(2, F32)
    with pytest.raises(ArgumentError, match="an input is not a list") as caught:
        s.run({"s": x, "x": x})
    assert "expected: sequence of float32[2], as a list of arrays" in str(caught.value)
    assert "put the array into a list" in str(caught.value)
    with pytest.raises(DtypeError, match="wrong dtype") as caught:
        s.run({"s": [x, np.zeros(2)], "x": x})
    assert "element 1 of input 's'" in str(caught.value)
    with pytest.raises(ArgumentError, match="wrong rank") as caught:
        s.run({"s": [np.zeros((2, 1), F32)], "x": x})
    assert "element 0 of input 's'" in str(caught.value)
    with pytest.raises(ArgumentError, match="an input is None"):
        s.run({"s": [], "x": None})
    with pytest.raises(ArgumentError, match="inputs are missing"):
        s.run({"x": x})
    with pytest.raises(UnsupportedError, match="not planned ahead"):
        s.prepare({"s": [2], "x": [2]})


def test_insert_erase_at_length(tmp_path: Path) -> None:
    s = session(
        header(
            "seq(float[N]) s, float[N] x, int64 i, int64 e, int64 a",
            "seq(float[N]) t, seq(float[N]) u, float[N] y, int64 n",
            "t = SequenceInsert(s, x, i) u = SequenceErase(t, e) y = SequenceAt(u, a) n = SequenceLength(u)",
        ),
        tmp_path,
    )
    given = arrays((1,), (2,), (3,))
    x = np.array([99], F32)
    for i in range(-3, 4):
        for e, a in ((0, 0), (-1, -1), (1, 2), (-4, -3)):
            feeds = {"s": given, "x": x, "i": np.array(i), "e": np.array(e), "a": np.array(a)}
            got = s.run(feeds)
            expected = list(given)
            expected.insert(i if i >= 0 else i + 3, x)
            assert [v.tolist() for v in got["t"]] == [v.tolist() for v in expected]
            del expected[e]
            assert [v.tolist() for v in got["u"]] == [v.tolist() for v in expected]
            assert got["y"].tolist() == expected[a].tolist()
            assert got["n"] == 3
    assert [v.shape for v in given] == [(1,), (2,), (3,)]  # the caller's lists stay as they were
    bad = {"s": given, "x": x, "i": np.array(4), "e": np.array(0), "a": np.array(0)}
    with pytest.raises(ArgumentError, match="a position lies outside of the sequence") as caught:
        s.run(bad)
    assert re.search(r"node \d+ SequenceInsert", str(caught.value))
    for name, value in (("e", 4), ("a", -4)):
        with pytest.raises(ArgumentError, match="a position lies outside"):
            s.run({**bad, "i": np.array(0), name: np.array(value)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_and_concat_along_any_axis(axis: int, tmp_path: Path) -> None:
    x = np.arange(24, dtype=F32).reshape(4, 6)
    parts = f"SplitToSequence <axis = {axis}>"
    s = session(
        header(
            "float[A,B] x, int64 n, int64[K] sizes",
            "seq(float[A,B]) one, seq(float[A,B]) many, seq(float[A,B]) listed, float[A,B] y, float[P,Q,R] z",
            f"one = {parts} (x) many = {parts} (x, n) listed = {parts} (x, sizes)"
            f" y = ConcatFromSequence <axis = {axis}> (listed)"
            f" z = ConcatFromSequence <axis = {axis}, new_axis = 1> (one)",
        ),
        tmp_path,
    )
    length = x.shape[axis]
    got = s.run({"x": x, "n": np.array(4), "sizes": np.array([1, 0, length - 1])})
    assert [a.tolist() for a in got["one"]] == [a.tolist() for a in np.split(x, length, axis)]
    assert [a.tolist() for a in got["many"]] == [a.tolist() for a in np.split(x, [4], axis) if a.size]
    assert [a.shape[axis] for a in got["listed"]] == [1, 0, length - 1]
    np.testing.assert_array_equal(got["y"], x)
    np.testing.assert_array_equal(got["z"], np.stack(np.split(x, length, axis), axis))
    with pytest.raises(ArgumentError, match="the parts of a split are not those of the axis"):
        s.run({"x": x, "n": np.array(4), "sizes": np.array([1, 1])})
    with pytest.raises(ArgumentError, match="not a positive number"):
        s.run({"x": x, "n": np.array(0), "sizes": np.array([length])})


def test_concat_of_nothing_and_of_what_does_not_fit(tmp_path: Path) -> None:
    s = session(header("seq(float[A,B]) s", "float[A,B] y", "y = ConcatFromSequence <axis = 0> (s)"), tmp_path)
    assert s.run({"s": arrays((1, 2), (0, 2), (3, 2))})["y"].shape == (4, 2)
    with pytest.raises(ArgumentError, match="an empty sequence has nothing to join"):
        s.run({"s": []})
    with pytest.raises(ArgumentError, match="do not fit together"):
        s.run({"s": arrays((1, 2), (1, 3))})


APPEND = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N] x, int64 m, seq(float[N]) start) => (seq(float[N]) s, int64 n) {
  go = Constant <value = bool {1}> ()
  s = Loop (m, go, start) <body = b (int64 i, bool ci, seq(float[N]) t) => (bool co, seq(float[N]) u) {
    co = Identity(ci)
    f = Cast <to = 1> (i)
    y = Add(x, f)
    two = Constant <value_int = 2> ()
    r = Mod(i, two)
    zero = Constant <value_int = 0> ()
    even = Equal(r, zero)
    u = If (even) <then_branch = p () => (seq(float[N]) v) { v = SequenceInsert(t, y) },
                   else_branch = q () => (seq(float[N]) w) { w = Identity(t) }>
  }>
  n = SequenceLength(s)
}
"""


def test_a_loop_that_appends(tmp_path: Path) -> None:
    s = session(APPEND, tmp_path)
    start = [np.zeros(2, F32)]
    got = s.run({"x": np.ones(2, F32), "m": np.array(7), "start": start})
    assert [v.tolist() for v in got["s"]] == [[0, 0], [1, 1], [3, 3], [5, 5], [7, 7]]
    assert got["n"] == 5
    assert len(start) == 1
    assert len(s.run({"x": np.ones(2, F32), "m": np.array(20_000), "start": []})["s"]) == 10_000


def test_optionals_through_branches_and_loops(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (optional(float[N]) o, bool c) => (optional(float[N]) p, float[N] y) {
      p = If (c) <then_branch = t () => (optional(float[N]) a) { a = Identity(o) },
                  else_branch = e () => (optional(float[N]) b) { b = Optional <type = float[N]> () }>
      has = OptionalHasElement(p)
      y = If (has) <then_branch = t2 () => (float[N] k) { k = OptionalGetElement(p) },
                    else_branch = e2 () => (float[N] l) <float[1] l0 = {-1.0}> { l = Identity(l0) }>
    }
    """
    s = session(text, tmp_path)
    x = np.array([1, 2], F32)
    for given, flag, kept in ((x, True, x), (x, False, None), (None, True, None)):
        got = s.run({"o": given, "c": np.array(flag)})
        if kept is None:
            assert got["p"] is None
            assert got["y"].tolist() == [-1]
        else:
            assert got["p"].tolist() == got["y"].tolist() == [1, 2]


def test_the_element_of_an_empty_optional_is_an_error(tmp_path: Path) -> None:
    s = session(header("optional(float[N]) o", "float[N] y", "y = OptionalGetElement(o)"), tmp_path)
    with pytest.raises(ArgumentError, match="an optional that is empty is given where a value is needed"):
        s.run({})


def test_outputs_may_be_inputs_and_runs_do_not_share(tmp_path: Path) -> None:
    s = session(header("seq(float[N]) s", "seq(float[N]) t", "t = Identity(s)"), tmp_path)
    given = arrays((2,))
    first = s.run({"s": given})["t"]
    given[0][:] = 7
    assert first[0].tolist() == [0, 1]
    assert s.run({"s": given})["t"][0].tolist() == [7, 7]


@pytest.mark.parametrize("kind", ["tensor(complex64)", "seq(complex64)"])
def test_types_without_tensors_are_refused(kind: str, tmp_path: Path) -> None:
    declared = "complex64[N]" if kind.startswith("tensor") else "seq(complex64[N])"
    model: Any = onnx.parser.parse_model(header(f"{declared} s", f"{declared} t", "t = Identity(s)"))
    with pytest.raises(OpforgeError, match="the model has nodes that cannot run") as caught:
        of.compile(model, tmp_path / "model.bin")
    assert "COMPLEX64 (2 nodes: s, t): the runtime has no tensors of this type" in str(caught.value)
