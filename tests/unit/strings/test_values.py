"""Tensors of strings as values: in and out of a session, moved by operators, through control flow and sequences."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
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
from tests.unit.kernels.one_node import check, run

TEXTS = ["", "a", "bé", "€uro", "🙂", "two words", "a\0b", "a"]


def texts(*shape: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return np.array([f"{TEXTS[k % len(TEXTS)]}{k // len(TEXTS) or ''}" for k in range(count)], object).reshape(shape)


def session(body: str, inputs: str, outputs: str, folder: Path, **options: Any) -> Session:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    of.compile(model, folder / "model.bin")
    return Session(folder / "model.bin", **options)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


MOVES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("Identity", [], {}, lambda x: x),
    ("Reshape", [ints(6, -1)], {}, lambda x: x.reshape(6, 4)),
    ("Flatten", [], {"axis": 2}, lambda x: x.reshape(6, 4)),
    ("Unsqueeze", [ints(1)], {}, lambda x: x[:, None]),
    ("Transpose", [], {"perm": [2, 0, 1]}, lambda x: x.transpose(2, 0, 1)),
    ("Slice", [ints(1, 3), ints(9, -9), ints(1, 2), ints(1, -2)], {}, lambda x: x[:, 1:, 3::-2]),
    ("Gather", [np.array([[2, -1]])], {"axis": 1}, lambda x: x[:, [[2, -1]]]),
    ("GatherElements", [np.full((2, 1, 4), -1)], {"axis": 1}, lambda x: x[:, -1:]),
    ("GatherND", [np.array([[1, 0], [0, 2]])], {}, lambda x: x[[1, 0], [0, 2]]),
    ("Expand", [ints(2, 2, 3, 4)], {}, lambda x: np.broadcast_to(x, (2, 2, 3, 4))),
    ("Tile", [ints(1, 2, 1)], {}, lambda x: np.tile(x, (1, 2, 1))),
    ("Compress", [np.array([True, False, True])], {"axis": 1}, lambda x: x[:, [0, 2]]),
    ("ReverseSequence", [ints(2, 1, 2)], {"batch_axis": 1, "time_axis": 0}, None),
    ("Pad", [ints(0, 1, 0, 0, 0, 1)], {}, lambda x: np.pad(x, ((0, 0), (1, 0), (0, 1)), constant_values="")),
    ("Shape", [], {}, lambda x: ints(2, 3, 4)),
    ("Size", [], {}, lambda x: np.array(24)),
    ("ScatterND", [np.array([[1, 2, 3]]), np.array(["new"], object)], {}, None),
]


@pytest.mark.parametrize(("op", "further", "attributes", "want"), MOVES, ids=[row[0] for row in MOVES])
def test_moves(op: str, further: list[Any], attributes: dict[str, Any], want: Any) -> None:
    x = texts(2, 3, 4)
    if op == "ReverseSequence":
        expected = x.copy()
        expected[:, [0, 2]] = x[::-1][:, [0, 2]]
    elif op == "ScatterND":
        expected = x.copy()
        expected[1, 2, 3] = "new"
    else:
        expected = want(x)
    dtype = np.int64 if op in ("Shape", "Size") else object
    check(op, [x, *further], [dtype], want=[np.asarray(expected)], **attributes)


def test_moves_of_several_tensors() -> None:
    x, y = texts(2, 3), texts(2, 1)
    check("Concat", [x, y], [object], want=[np.concatenate([x, y], 1)], axis=1)
    check("Concat", [x, y], [object], want=[np.concatenate([x, y], 1)], constants=[1], axis=1)
    condition = np.array([[True], [False]])
    check("Where", [condition, x, y], [object], want=[np.where(condition, x, y)])
    check("Where", [condition, x, y], [object], want=[np.where(condition, x, y)], constants=[1, 2])
    first, second = run("Split", [texts(5), ints(2, 3)], [object, object])
    assert first.tolist() == texts(5)[:2].tolist()
    assert second.tolist() == texts(5)[2:].tolist()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1, 1, 1, 1, 1, 1, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = texts(*shape)
    check("Identity", [x], [object], want=[x])
    check("Equal", [x, x], [np.bool_], want=[np.ones(shape, np.bool_)])
    check("StringConcat", [x, x], [object], want=[np.array([t + t for t in x.reshape(-1)], object).reshape(shape)])


def test_what_an_input_may_be(tmp_path: Path) -> None:
    s = session("t = Identity(s)", "string[N, 2] s", "string[N, 2] t", tmp_path)
    assert str(s.inputs[0]) == "string[N, 2]"
    assert s.inputs[0].dtype == np.dtype(object)
    want = [["a", "bé"], ["", "🙂"]]
    utf8 = [[t.encode() for t in row] for row in want]
    for given in (want, np.array(want), np.array(want, object), np.array(utf8, object), np.array(want, object)[:, :]):
        got = s.run({"s": given})["t"]
        assert got.dtype == object
        assert got.tolist() == want
    strided = np.array([[t, "no"] for row in want for t in row], object)[:, 0].reshape(2, 2).T
    assert s.run({"s": strided})["t"].tolist() == strided.tolist()
    if hasattr(np.dtypes, "StringDType"):
        assert s.run({"s": np.array(want, np.dtypes.StringDType())})["t"].tolist() == want


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ([["a", None]], DtypeError, r"input 's', element \[0, 1\]: an element of an input is no text"),
        (np.array([["a", 1.5]], object), DtypeError, "expected: str or bytes"),
        (np.zeros((1, 2)), DtypeError, "an input has the wrong dtype"),
        ([["\ud800", ""]], ArgumentError, r"element \[0, 0\]: an element of an input is no valid text"),
        (
            np.array([[b"\xff", b""]], object),
            ArgumentError,
            r"element \[0, 0\]: an element of an input is no valid text",
        ),
        ([["a"]], ArgumentError, "dimension 1 of an input is wrong"),
    ],
)
def test_what_an_input_may_not_be(given: Any, kind: type[Exception], words: str, tmp_path: Path) -> None:
    s = session("t = Identity(s)", "string[N, 2] s", "string[N, 2] t", tmp_path)
    with pytest.raises(kind, match=words):
        s.run({"s": given})


def test_a_session_of_strings_is_not_planned_ahead(tmp_path: Path) -> None:
    s = session("t = Identity(s)", "string[2] s", "string[2] t", tmp_path)
    with pytest.raises(UnsupportedError, match="a model with strings, sequences or optionals is not planned ahead"):
        s.prepare({"s": [2]})


def test_strings_between_numbers_run_like_any_model(tmp_path: Path) -> None:
    s = session("s = Cast<to = 8>(x) y = Cast<to = 1>(s)", "int64[N] x", "float[N] y", tmp_path)
    for count in (3, 0, 5):
        x = np.arange(count) - 2
        assert s.run({"x": x})["y"].tolist() == x.tolist()


def test_control_flow(tmp_path: Path) -> None:
    branches = """
        t = If (c) <
            then_branch = g1 () => (string[N] a) { a = Identity(s) },
            else_branch = g2 () => (string[N] b) { b = StringConcat(s, s) }
        >
    """
    s = session(branches, "string[N] s, bool c", "string[N] t", tmp_path)
    assert s.run({"s": ["a", "b"], "c": np.array(True)})["t"].tolist() == ["a", "b"]
    assert s.run({"s": ["a", "b"], "c": np.array(False)})["t"].tolist() == ["aa", "bb"]
    loop = """
        go = Constant<value = bool {1}>()
        last, rows = Loop (n, go, s) <
            body = g1 (int64 i, bool c, string[N] u) => (bool d, string[N] v, string[N] row) {
                d = Identity(c) v = StringConcat(u, s) row = Identity(u)
            }
        >
    """
    s = session(loop, "int64 n, string[N] s", "string[N] last, string[M, N] rows", tmp_path)
    for count in (0, 1, 3, 40):
        got = s.run({"n": np.array(count), "s": ["x", ""]})
        assert got["last"].tolist() == ["x" * (count + 1), ""]
        assert got["rows"].tolist() == [["x" * (k + 1), ""] for k in range(count)]


def test_sequences_and_optionals(tmp_path: Path) -> None:
    body = "u = SequenceInsert(s, x) t = ConcatFromSequence<axis = 0>(u) n = SequenceLength(u)"
    s = session(body, "seq(string[]) s, string[K] x", "string[] t, seq(string[]) u, int64 n", tmp_path)
    assert str(s.inputs[0]).startswith("sequence of string")
    got = s.run({"s": [np.array(["a", "b"]), ["€"]], "x": ["d"]})
    assert got["t"].tolist() == ["a", "b", "€", "d"]
    assert [u.tolist() for u in got["u"]] == [["a", "b"], ["€"], ["d"]]
    assert got["n"] == 3
    s = session(
        "b = OptionalHasElement(o) p = Identity(o)", "optional(string[2]) o", "bool b, optional(string[2]) p", tmp_path
    )
    assert s.run({})["p"] is None
    assert s.run({"o": ["a", ""]})["p"].tolist() == ["a", ""]


def test_runs_do_not_share_and_may_repeat(tmp_path: Path) -> None:
    s = session("t = StringConcat(s, s)", "string[N] s", "string[N] t", tmp_path, memory_limit=1 << 20)
    first = s.run({"s": ["a"]})["t"]
    for k in range(200):  # more than the limit, were texts of a run kept
        assert s.run({"s": [str(k) * 4000]})["t"].tolist() == [str(k) * 8000]
    assert first.tolist() == ["aa"]


def test_callers_of_one_session_at_once(tmp_path: Path) -> None:
    s = session("t = StringConcat(s, s) n = Equal(s, t)", "string[N] s", "string[N] t, bool[N] n", tmp_path)

    def run_often(caller: int) -> bool:
        mine = [f"{caller} {k}" for k in range(1 + caller)]
        runs = [s.run({"s": mine}) for _ in range(20)]
        return all(r["t"].tolist() == [t + t for t in mine] and not r["n"].any() for r in runs)

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(run_often, range(8)))


def test_the_memory_of_texts_is_limited(tmp_path: Path) -> None:
    loop = """
        go = Constant<value = bool {1}>()
        last = Loop (n, go, s) <
            body = g1 (int64 i, bool c, string[1] u) => (bool d, string[1] v) { d = Identity(c) v = StringConcat(u, u) }
        >
    """
    s = session(loop, "int64 n, string[1] s", "string[1] last", tmp_path, memory_limit=1 << 20)
    assert len(s.run({"n": np.array(10), "s": ["x"]})["last"][0]) == 1024
    with pytest.raises(
        OpforgeError, match=r"node 1 StringConcat .*the texts of a run take more memory .* memory_limit"
    ):
        s.run({"n": np.array(60), "s": ["x"]})
    assert s.run({"n": np.array(2), "s": ["x"]})["last"].tolist() == ["xxxx"]


def test_constants_of_a_file(tmp_path: Path) -> None:
    words = texts(2, 3)
    words[1, 0] = "without a zero"
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Where", ["c", "k", "s"], ["t"])],
        "g",
        [
            onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [2, 3]),
            onnx.helper.make_tensor_value_info("s", onnx.TensorProto.STRING, [1]),
        ],
        [onnx.helper.make_tensor_value_info("t", onnx.TensorProto.STRING, [2, 3])],
        [onnx.numpy_helper.from_array(words, "k")],
    )
    path = tmp_path / "model.bin"
    of.compile(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), path)
    read = bin_format.read(path).program
    held = next(v for v in read.values if v.data is not None)
    assert held.data is not None
    assert [read.texts[k] for k in np.asarray(held.data).reshape(-1)] == words.reshape(-1).tolist()
    again = tmp_path / "again.bin"
    bin_format.write(read, again)
    feeds = {"c": np.array([[True, False, True]] * 2), "s": ["other"]}
    want = np.where(feeds["c"], words, "other").tolist()
    assert Session(path).run(feeds)["t"].tolist() == Session(again).run(feeds)["t"].tolist() == want


def test_a_constant_that_no_file_holds(tmp_path: Path) -> None:
    for value, words in ((b"\xff", "a constant of strings is not valid UTF-8"), (b"a\0b", "holds a zero byte")):
        tensor = onnx.helper.make_tensor("k", onnx.TensorProto.STRING, [1], [value])
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Concat", ["s", "k"], ["t"], axis=0)],
            "g",
            [onnx.helper.make_tensor_value_info("s", onnx.TensorProto.STRING, ["N"])],
            [onnx.helper.make_tensor_value_info("t", onnx.TensorProto.STRING, ["M"])],
            [tensor],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
        with pytest.raises(ArgumentError, match=re.escape(words)):
            of.compile(model, tmp_path / "model.bin")


def test_an_operator_that_takes_no_strings_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"Unique .*: its kernel takes and gives no tensors of strings"):
        session("t = Unique(s)", "string[N] s", "string[M] t", tmp_path)
