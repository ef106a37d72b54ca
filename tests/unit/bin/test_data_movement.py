"""Data-movement and integer kernels against NumPy."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opforge.errors import ArgumentError, OpforgeError
from tests.unit.bin.programs import single

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
I64 = np.int64


def i64(*values: int) -> Any:
    return np.array(values, I64)


CASES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("Shape", [X], {}, i64(3, 4, 5)),
    ("Shape", [X], {"start": -2, "end": 10}, i64(4, 5)),
    ("Shape", [X], {"start": 2, "end": 1}, i64()),
    ("Size", [X], {}, np.array(60)),
    ("Reshape", [X, i64(0, -1)], {}, X.reshape(3, 20)),
    ("Reshape", [X, i64(5, 3, 4)], {}, X.reshape(5, 3, 4)),
    ("Reshape", [np.zeros((0, 3), np.float32), i64(3, 0)], {"allowzero": 1}, np.zeros((3, 0), np.float32)),
    ("Reshape", [np.float32(7), i64()], {}, np.float32(7)),
    ("Flatten", [X], {"axis": 2}, X.reshape(12, 5)),
    ("Flatten", [X], {"axis": 0}, X.reshape(1, 60)),
    ("Unsqueeze", [X, i64(0, -1)], {}, X[None, ..., None]),
    ("Squeeze", [X[:, None, :, :1], i64(1)], {}, X[:, :, :1]),
    ("Squeeze", [X[:1, None, :, :1]], {}, X[0, :, 0]),
    ("Transpose", [X], {}, X.T),
    ("Transpose", [X], {"perm": [1, 2, 0]}, X.transpose(1, 2, 0)),
    ("Transpose", [X.astype(np.int8)], {"perm": [0, 2, 1]}, X.astype(np.int8).transpose(0, 2, 1)),
    ("Transpose", [X[:1]], {"perm": [1, 0, 2]}, X[:1].transpose(1, 0, 2)),
    ("Gather", [X, i64(2, 0, -1)], {"axis": 1}, X[:, [2, 0, -1]]),
    ("Gather", [X, np.array([[0, 1], [2, 1]], np.int32)], {}, X[[[0, 1], [2, 1]]]),
    ("Gather", [X, np.array(-1)], {"axis": 2}, X[..., -1]),
    (
        "GatherElements",
        [X[0], np.array([[0, 1, -1, 2, 3]])],
        {},
        np.take_along_axis(X[0], np.array([[0, 1, 3, 2, 3]]), 0),
    ),
    ("GatherND", [X, np.array([[0, 1], [2, -1]])], {}, X[[0, 2], [1, -1]]),
    ("GatherND", [X, np.array([[[1]], [[0]], [[3]]])], {"batch_dims": 1}, X[[0, 1, 2], [1, 0, 3]][:, None]),
    ("Concat", [X, X[:, :1], X[:, :0]], {"axis": 1}, np.concatenate([X, X[:, :1]], 1)),
    ("Concat", [X, X], {"axis": -1}, np.concatenate([X, X], -1)),
    ("Slice", [X, i64(1), i64(3)], {}, X[1:3]),
    ("Slice", [X, i64(0, -3), i64(2, 2**62), i64(0, 2), i64(1, 2)], {}, X[:2, :, -3::2]),
    ("Slice", [X, i64(-1), i64(-(2**63)), i64(1), i64(-1)], {}, X[:, ::-1]),
    ("Slice", [X, i64(3), i64(1), i64(1), i64(-2)], {}, X[:, 3:1:-2]),
    ("Slice", [X, i64(10), i64(20), i64(2)], {}, X[..., 10:20]),
    ("Slice", [X, np.array([1], np.int32), np.array([2], np.int32), np.array([-1], np.int32)], {}, X[..., 1:2]),
    ("Expand", [X[:, :1], i64(2, 1, 4, 1)], {}, np.broadcast_to(X[:, :1], (2, 3, 4, 5))),
    ("Expand", [np.float32(2), i64(2, 3)], {}, np.full((2, 3), 2, np.float32)),
    ("Tile", [X, i64(2, 1, 3)], {}, np.tile(X, (2, 1, 3))),
    ("Tile", [X, i64(2, 0, 3)], {}, np.tile(X, (2, 0, 3))),
    ("Pad", [X, i64(1, 0, 2, 0, 1, 0)], {}, np.pad(X, ((1, 0), (0, 1), (2, 0)))),
    ("Pad", [X, i64(1, 2), np.float32(9), i64(-1)], {}, np.pad(X, ((0, 0), (0, 0), (1, 2)), constant_values=9)),
    ("Pad", [X, i64(0, 2, 3, 0, 1, 4)], {"mode": "reflect"}, np.pad(X, ((0, 0), (2, 1), (3, 4)), "reflect")),
    ("Pad", [X, i64(0, 2, 3, 1, 1, 7)], {"mode": "edge"}, np.pad(X, ((0, 1), (2, 1), (3, 7)), "edge")),
    ("Pad", [X, i64(0, 2, 3, 1, 9, 7)], {"mode": "wrap"}, np.pad(X, ((0, 1), (2, 9), (3, 7)), "wrap")),
    ("Pad", [X, i64(0, -1, 0, 0, 0, -2)], {}, X[:, 1:, :-2]),
    ("ConstantOfShape", [i64(2, 3)], {"dtype": np.float32}, np.zeros((2, 3), np.float32)),
    ("ConstantOfShape", [i64(2), i64(7)], {}, i64(7, 7)),
    ("Range", [np.array(3), np.array(10), np.array(3)], {}, np.arange(3, 10, 3)),
    ("Range", [np.float32(1), np.float32(0), np.float32(-0.25)], {}, np.arange(1, 0, -0.25, dtype=np.float32)),
    ("Range", [np.array(3), np.array(3), np.array(1)], {}, i64()),
    (
        "OneHot",
        [i64(0, 2, -1, 5), np.array(3), np.array([0, 9], np.float32)],
        {"dtype": np.float32},
        np.array([[9, 0, 0], [0, 0, 9], [0, 0, 9], [0, 0, 0]], np.float32),
    ),
    ("OneHot", [i64(1, 0), np.array(3), i64(5, 6)], {"axis": 0}, np.array([[5, 6], [6, 5], [5, 5]])),
    ("NonZero", [np.array([[1, 0], [-0.0, np.nan]], np.float32)], {"dtype": I64}, np.array([[0, 1], [0, 1]])),
    ("Where", [np.array([[True], [False]]), i64(1, 2), i64(8, 9)], {"dtype": I64}, np.array([[1, 2], [8, 9]])),
    ("ScatterND", [X, np.array([[1], [0]]), X[:2] * 2], {}, np.concatenate([X[1:2] * 2, X[:1] * 2, X[2:]])),
    (
        "ScatterND",
        [np.zeros(3, np.float32), np.array([[1], [1], [2]]), np.float32([1, 2, 3])],
        {"reduction": "add"},
        np.float32([0, 3, 3]),
    ),
    (
        "ScatterElements",
        [np.zeros((2, 3), np.float32), np.array([[1, 0, -1]]), np.float32([[7, 8, 9]])],
        {},
        np.float32([[0, 8, 0], [7, 0, 9]]),
    ),
    ("ScatterElements", [np.full(3, 5), i64(0, 0, 2), i64(2, 9, 3)], {"reduction": "max"}, i64(9, 5, 5)),
    ("Add", [i64(1, 2)[:, None], i64(10, 20)], {}, np.array([[11, 21], [12, 22]])),
    ("Sub", [np.uint8([1]), np.uint8([2])], {}, np.uint8([255])),
    ("Mul", [i64(2**62), i64(4)], {}, i64(0)),
    ("Div", [i64(-7, 7, 5, -(2**63)), i64(2, -2, 0, -1)], {}, i64(-3, -3, 0, -(2**63))),
    ("Mod", [i64(-7, 7, 7), i64(3, -3, 0)], {}, i64(2, -2, 0)),
    ("Mod", [i64(-7, 7), i64(3, -3)], {"fmod": 1}, i64(-1, 1)),
    ("Min", [i64(5, 1), i64(3, 9), i64(4, 0)], {}, i64(3, 0)),
    ("Max", [np.int32([5, 1])], {}, np.int32([5, 1])),
    ("Pow", [i64(3, -2, 5, -1), i64(4, 3, -1, -3)], {}, i64(81, -8, 0, -1)),
    ("Equal", [i64(1, 2), i64(1, 3)], {"dtype": np.bool_}, np.array([True, False])),
    ("Less", [np.uint64([2**63]), np.uint64([1])], {"dtype": np.bool_}, np.array([False])),
    ("GreaterOrEqual", [i64(1, 2, 3), np.array(2)], {"dtype": np.bool_}, np.array([False, True, True])),
    ("Neg", [i64(-(2**63), 4)], {}, i64(-(2**63), -4)),
    ("Abs", [np.int8([-128, -3])], {}, np.int8([-128, 3])),
    ("Sign", [i64(-5, 0, 9)], {}, i64(-1, 0, 1)),
    ("BitwiseAnd", [i64(12), i64(10)], {}, i64(8)),
    ("BitwiseNot", [np.uint8([1])], {}, np.uint8([254])),
]


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "expected"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_against_numpy(
    tmp_path: Path, op: str, inputs: list[Any], attributes: dict[str, Any], expected: Any, from_file: bool
) -> None:
    """Arguments once as inputs of the model (dynamic mode where shapes depend on them), once as constants."""
    attributes = dict(attributes)
    dtype = attributes.pop("dtype", I64 if op in ("Shape", "Size") else np.asarray(expected).dtype)
    constant = tuple(range(1 if len(inputs) > 1 else 0, len(inputs))) if from_file else ()
    result = single(tmp_path, op, inputs, dtype, constant=constant, **attributes)
    np.testing.assert_array_equal(result, expected)
    assert result.shape == np.shape(expected)


@pytest.mark.parametrize(("sizes", "parts"), [(None, 2), (None, 3), ([1, 0, 3], 3)])
def test_split(tmp_path: Path, sizes: list[int] | None, parts: int) -> None:
    inputs = [X] if sizes is None else [X, np.array(sizes)]
    result = single(tmp_path, "Split", inputs, np.float32, outputs=parts, axis=1)
    ends = np.cumsum(sizes) if sizes else np.minimum(np.arange(1, parts + 1) * -(-4 // parts), 4)
    for got, expected in zip(result, np.split(X, ends[:-1], axis=1), strict=True):
        np.testing.assert_array_equal(got, expected)


FLOATS = np.array(
    [0, -0.0, 1.5, -2.5, 3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, np.nan, 255.9, 65519.9, 1e-8], np.float64
)


@pytest.mark.parametrize("target", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_float_to_integer_saturates_and_nan_gives_zero(tmp_path: Path, source: Any, target: Any) -> None:
    with np.errstate(over="ignore"):
        x = FLOATS.astype(source)
    limits = np.iinfo(target)
    wide = [
        int(v) if np.isfinite(v) else (0 if np.isnan(v) else limits.max if v > 0 else limits.min)
        for v in x.astype(np.float64)
    ]
    expected = np.array([min(max(v, limits.min), limits.max) for v in wide], target)
    np.testing.assert_array_equal(single(tmp_path, "Cast", [x], target), expected)


@pytest.mark.parametrize("target", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.bool_])
@pytest.mark.parametrize(
    "source", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int64, np.uint64, np.int8, np.bool_]
)
def test_casts_to_floats_round_once(tmp_path: Path, source: Any, target: Any) -> None:
    if np.dtype(source).kind in "iub":
        x = np.array([0, 1, 2, 3, 100, 2**24 + 1, 2**53 + 1, 2**63 - 1, 65519, 2049, 257], np.uint64).astype(source)
    else:
        with np.errstate(over="ignore"):
            x = np.concatenate([FLOATS, [1.00048828125 + 2**-30, 1.00390625 + 2**-40, 6.1e-5, 3e-8]]).astype(source)
    result = single(tmp_path, "Cast", [x], target)
    with np.errstate(over="ignore", invalid="ignore"):
        if np.dtype(target) in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)) and x.dtype.itemsize == 8:
            # ml_dtypes and NumPy round 64-bit numbers to half types through float32, twice; the exact neighbour wins.
            candidates = x.astype(np.float64).astype(target)
            bits = candidates.view(np.uint16)
            around = np.stack([(bits + np.uint16(d)).view(target) for d in (0, 1, 65535)])
            distance = np.abs(around.astype(np.longdouble) - x.astype(np.longdouble))
            best = np.nanmin(np.where(np.isfinite(distance), distance, np.inf), axis=0)
            good = (
                (np.abs(result.astype(np.longdouble) - x.astype(np.longdouble)) == best)
                | ~np.isfinite(x.astype(np.float64))
                | ~np.isfinite(candidates.astype(np.float64))
            )
            assert good.all(), (x[~good], result[~good])
        else:
            np.testing.assert_array_equal(result.astype(np.float64), x.astype(target).astype(np.float64))


def test_integer_casts_wrap(tmp_path: Path) -> None:
    x = i64(-1, 300, 2**40, -(2**63))
    for target in (np.int8, np.uint8, np.int32, np.uint64):
        np.testing.assert_array_equal(single(tmp_path, "Cast", [x], target), x.astype(target))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "words"),
    [
        ("Reshape", [X, i64(7, -1)], {}, "60 elements cannot take the new shape"),
        ("Reshape", [X, i64(-1, -1)], {}, "dimension 1 of the new shape is not valid: -1"),
        ("Reshape", [X, i64(2**62, 2**62)], {}, "is not valid"),
        ("Gather", [X, i64(4)], {"axis": 1}, "index 4 is out of range for a dimension of 4"),
        ("Gather", [X, i64(-5)], {"axis": 1}, "index -5 is out of range for a dimension of 4"),
        ("GatherND", [X, np.array([[3]])], {}, "index 3 is out of range for a dimension of 3"),
        ("ScatterND", [X, np.array([[3]]), X[:1]], {}, "index 3 is out of range"),
        ("Concat", [X, X[:2]], {"axis": 1}, "input 1 does not fit the first one"),
        ("Transpose", [X], {"perm": [0, 0, 1]}, "perm is no permutation of 3 dimensions"),
        ("Slice", [X, i64(0), i64(1), i64(5)], {}, "starts, ends, axes or steps are not valid"),
        ("Expand", [X, i64(2, 5)], {}, "cannot be broadcast"),
        ("Tile", [X, i64(2**62, 1, 4)], {}, "repeat"),
        ("Pad", [X, i64(5, 0, 0, 0, 0, 0)], {"mode": "reflect"}, "the mode or the pads of dimension 0 are not valid"),
        ("Unsqueeze", [X, i64(9)], {}, "out of range or repeat"),
        ("ConstantOfShape", [i64(2**40, 2**40)], {}, "impossible size"),
        ("Range", [np.array(0), np.array(5), np.array(0)], {}, "the range is not finite"),
    ],
)
def test_bad_arguments(tmp_path: Path, op: str, inputs: list[Any], attributes: dict[str, Any], words: str) -> None:
    constant = tuple(range(1, len(inputs)))
    with pytest.raises(OpforgeError, match=words):
        single(tmp_path, op, inputs, inputs[0].dtype, constant=constant, **attributes)


def test_error_is_the_callers(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"node 0 Concat \(output 'Concat"):
        single(tmp_path, "Concat", [X, X[:2]], axis=1)
