"""Inputs and outputs of a session: what is declared, what is refused, every dtype, memory of their own."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.native import native
from opforge.bin.session import Session
from opforge.errors import ArgumentError, DtypeError, UnsupportedError
from tests.unit.bin.programs import Builder, attention_like, single

F32 = np.float32


def test_signature_and_metadata(tmp_path: Path) -> None:
    session = attention_like(tmp_path)
    assert [(i.name, i.dtype, i.shape) for i in session.inputs] == [("x", np.dtype(F32), ("B", "L", 12))]
    assert session.outputs[0].shape == ("B", "L", 12)
    assert session.metadata["tool"] == "opforge tests"
    assert "x: float32[B, L, 12]" in repr(session)


def two_inputs(folder: Path) -> Session:
    b = Builder()
    x, y = b.input("tokens", np.int64, ["N", 2]), b.input("mask", np.int64, ["N", "2*N"])
    b.output(b.node("Identity", [x], np.int64, name="a"), b.node("Identity", [y], np.int64, name="b"))
    return b.session(folder)


@pytest.mark.parametrize(
    ("feeds", "error", "words"),
    [
        (
            {"token": (2, 2), "mask": (2, 4)},
            ArgumentError,
            "there is no such input\n  expected: 'tokens', 'mask'\n  got: 'token'\n  to do: did you mean 'tokens'",
        ),
        (
            {"tokens": (2, 2)},
            ArgumentError,
            "inputs are missing\n  expected: 'tokens', 'mask'\n  got: nothing for 'mask'",
        ),
        (
            {"tokens": (2, 2, 1), "mask": (2, 4)},
            ArgumentError,
            "input 'tokens': an input has the wrong rank\n  expected: i64[N, 2]\n  got: [2, 2, 1]",
        ),
        (
            {"tokens": (2, 3), "mask": (2, 4)},
            ArgumentError,
            "dimension 1 of an input is wrong\n  expected: i64[N, 2], where dimension 1 is 2\n  got: [2, 3]",
        ),
        (
            {"tokens": (2, 2), "mask": (3, 4)},
            ArgumentError,
            "expected: i64[N, 2*N], where dimension 0 is N = 2 from the inputs before\n  got: [3, 4]",
        ),
        ({"tokens": (2, 2), "mask": (2, 5)}, ArgumentError, "where dimension 1 is 2*N = 4 from the inputs before"),
    ],
)
def test_wrong_inputs(tmp_path: Path, feeds: dict[str, tuple[int, ...]], error: type[Exception], words: str) -> None:
    session = two_inputs(tmp_path)
    with pytest.raises(error) as caught:
        session.run({name: np.zeros(shape, np.int64) for name, shape in feeds.items()})
    assert words in str(caught.value)


def test_wrong_dtype(tmp_path: Path) -> None:
    with pytest.raises(DtypeError) as caught:
        two_inputs(tmp_path).run({"tokens": np.zeros((1, 2), F32), "mask": np.zeros((1, 2), np.int64)})
    assert "input 'tokens': an input has the wrong dtype\n  expected: int64\n  got: float32" in str(caught.value)


def test_inputs_without_names(tmp_path: Path) -> None:
    tokens = np.zeros((1, 2), np.int64)
    with pytest.raises(
        ArgumentError, match=r"no mapping of names to arrays\n  expected: 'tokens', 'mask'\n  got: list"
    ):
        two_inputs(tmp_path).run([tokens, tokens])  # type: ignore[arg-type]


def test_strided_big_endian_and_list_inputs(tmp_path: Path) -> None:
    session = two_inputs(tmp_path)
    tokens = np.arange(8).reshape(2, 4)[:, ::2]
    mask = np.arange(8, dtype=">i8").reshape(2, 4)
    result = session.run({"tokens": tokens, "mask": mask})
    np.testing.assert_array_equal(result["a"], tokens)
    np.testing.assert_array_equal(result["b"], mask)
    assert session.run({"tokens": [[1, 2]], "mask": [[3, 4]]})["b"].tolist() == [[3, 4]]  # type: ignore[dict-item, list-item]


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int8, np.int32, np.int64, np.float16, F32, np.float64, ml_dtypes.bfloat16]
)
def test_every_dtype_passes_through(tmp_path: Path, dtype: Any) -> None:
    x = np.array([[0, 1, 2], [3, 4, 250]]).astype(dtype)
    result = single(tmp_path, "Transpose", [x], perm=[1, 0])
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, x.T)


def test_zero_size_and_scalars(tmp_path: Path) -> None:
    assert single(tmp_path, "Transpose", [np.zeros((3, 0, 2), F32)]).shape == (2, 0, 3)
    assert single(tmp_path, "Identity", [np.float32(3)]) == 3


def test_outputs_do_not_alias_inputs_or_each_other(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, [4])
    c = b.constant(np.arange(3, dtype=F32), "c")
    same = b.node("Identity", [x], F32, [4])
    turned = b.node("Concat", [x, x], F32, [8], axis=0)
    view = b.node("Reshape", [turned, b.constant(np.array([2, 4]))], F32, [2, 4])
    b.output(x, same, c, turned, view)
    session = b.session(tmp_path)
    given = np.arange(4, dtype=F32)
    arrays = list(session.run({"x": given}).values())
    assert len(arrays) == 5
    expected = [given.copy(), given.copy(), np.arange(3), np.tile(given, 2), np.tile(given, 2).reshape(2, 4)]
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(array, expected[k])
        array += 100
        for other in arrays[k + 1 :]:
            np.testing.assert_array_equal(other, expected[next(i for i, a in enumerate(arrays) if a is other)])
    np.testing.assert_array_equal(given, np.arange(4))


def test_an_output_that_numpy_cannot_hold_is_refused_while_opening(tmp_path: Path) -> None:
    b = Builder()
    y = b.node("Identity", [b.input("x", F32, [2])], F32, [2], name="halves")
    b.program.values[y].dtype = 22  # int4
    b.output(y)
    path = b.save(tmp_path / "model.bin")
    known = {number: dtype for number, dtype in NUMPY_DTYPES.items() if number != 22}
    with pytest.raises(UnsupportedError) as caught:
        native().Session(str(path), 0, False, [], [], True, True, True, known)
    assert "output 'halves': NumPy has no dtype for an output" in str(caught.value)
    assert "got: ONNX dtype 22" in str(caught.value)
