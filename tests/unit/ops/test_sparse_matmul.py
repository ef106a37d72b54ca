"""SparseMatMul: invariants with their positions, gradients against differences, unusual matrices."""

import numpy as np
import pytest

from opforge import ops
from opforge.errors import ArgumentError, DtypeError

pytestmark = pytest.mark.compiler

VALUES = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
INDICES = np.array([0, 2, 1, 1], np.int32)
INDPTR = np.array([0, 2, 2, 4], np.int32)
DENSE = np.arange(6, dtype=np.float32).reshape(3, 2)


def call(values=VALUES, indices=INDICES, indptr=INDPTR, dense=DENSE):
    return ops.sparse_matmul(values, indices, indptr, dense)


def test_empty_row_and_repeated_column():
    np.testing.assert_array_equal(call(), [[8, 11], [0, 0], [14, 21]])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("indptr", [1, 2, 2, 4], "indptr[0] is 1, expected 0"),
        ("indptr", [0, 3, 2, 4], "indptr decreases at row 1: indptr[1] is 3, indptr[2] is 2"),
        ("indptr", [0, 2, 2, 3], "indptr[3] is 3, expected the number of entries, 4"),
        ("indptr", [0, 2, 2, 9], "indptr[3] is 9, expected the number of entries, 4"),
        ("indptr", [0, -1, 2, 4], "indptr decreases at row 0: indptr[0] is 0, indptr[1] is -1"),
        ("indices", [0, 3, 1, 1], "indices[1] (row 0) is 3, expected 0 <= index < 3"),
        ("indices", [0, 2, -1, 1], "indices[2] (row 2) is -1, expected 0 <= index < 3"),
        ("indices", [0, 2, 1, 2**31 - 1], "indices[3] (row 2) is 2147483647, expected 0 <= index < 3"),
    ],
)
def test_violations_name_their_position(index, part, value, words):
    arrays = {"indices": INDICES.astype(index), "indptr": INDPTR.astype(index), part: np.array(value, index)}
    with pytest.raises(ArgumentError) as caught:
        call(**arrays)
    assert str(caught.value) == f"com.example::SparseMatMul:1: {words}"


def test_a_wide_index_is_checked_before_it_is_narrowed():
    with pytest.raises(ArgumentError, match=r"indices\[0\] \(row 0\) is 4294967296"):
        call(indices=np.array([2**32, 2, 1, 1]), indptr=INDPTR.astype(np.int64))


def test_gradient_operators_check_too():
    bad = np.array([0, 7, 1, 1], np.int32)
    with pytest.raises(ArgumentError, match=r"SparseMatMulGradDense:1: indices\[1\] \(row 0\) is 7"):
        ops.sparse_matmul_grad_dense(VALUES, bad, INDPTR, np.ones((3, 2), np.float32), DENSE)
    with pytest.raises(ArgumentError, match=r"SparseMatMulGradValues:1: indices\[1\] \(row 0\) is 7"):
        ops.sparse_matmul_grad_values(bad, INDPTR, np.ones((3, 2), np.float32), DENSE)


def test_schema_errors():
    with pytest.raises(ArgumentError, match="argument indices"):
        call(indices=INDICES[:3])
    with pytest.raises(ArgumentError, match="wrong rank"):
        call(dense=DENSE[0])
    with pytest.raises(DtypeError, match="argument indices"):
        call(indices=INDICES.astype(np.int16))
    with pytest.raises(DtypeError, match="argument dense"):
        call(dense=DENSE.astype(np.float64))
    with pytest.raises(ArgumentError):
        call(indptr=np.array([], np.int32))


def test_non_contiguous_inputs():
    wide = np.repeat(INDICES, 2)
    np.testing.assert_array_equal(call(indices=wide[::2], dense=np.asfortranarray(DENSE)), call())


def test_row_sums_keep_the_order_of_entries():
    """A sum in another order would lose the small values."""
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    out = ops.sparse_matmul(values, np.zeros(4, np.int32), np.array([0, 4], np.int32), np.ones((1, 40), np.float32))
    expected = np.float32(0)
    for value in values:
        expected = np.float32(expected + value)
    assert (out == expected).all()


def test_columns_do_not_depend_on_their_block():
    """Every column gets the same bits, whether its vector is wide, narrow or overlaps another."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(50).astype(np.float32)
    indices = rng.integers(0, 20, 50).astype(np.int32)
    indptr = np.array([0, 30, 30, 50], np.int32)
    column = rng.standard_normal((20, 1)).astype(np.float32)
    for n in (1, 5, 15, 16, 17, 31, 33, 127, 128, 213):
        out = ops.sparse_matmul(values, indices, indptr, np.repeat(column, n, axis=1))
        assert (out == out[:, :1]).all()
        if n == 1:
            first = out
        np.testing.assert_array_equal(out[:, :1], first)


def dense_of(values, indices, indptr, columns):
    full = np.zeros((len(indptr) - 1, columns))
    for row in range(len(indptr) - 1):
        for p in range(indptr[row], indptr[row + 1]):
            full[row, indices[p]] += values[p]
    return full


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_three_operators_agree_with_dense_algebra(dtype):
    rng = np.random.default_rng(1)
    indptr = np.array([0, 3, 3, 7, 12], np.int64)
    indices = rng.integers(0, 6, 12)
    values, dense, other = (rng.standard_normal(s).astype(dtype) for s in (12, (6, 19), (4, 19)))
    full = dense_of(values, indices, indptr, 6)
    close = {"rtol": 1e-5 if dtype is np.float32 else 1e-13, "atol": 1e-5 if dtype is np.float32 else 1e-13}
    np.testing.assert_allclose(ops.sparse_matmul(values, indices, indptr, dense), full @ dense, **close)
    transposed = ops.sparse_matmul_grad_dense(values, indices, indptr, other, dense)
    np.testing.assert_allclose(transposed, full.T @ other, **close)
    rows = np.repeat(np.arange(4), np.diff(indptr))
    sampled = ops.sparse_matmul_grad_values(indices, indptr, other, dense)
    np.testing.assert_allclose(sampled, (other @ dense.T)[rows, indices], **close)


def test_gradient_programs_name_the_declared_operators():
    assert ops.sparse_matmul.gradient == (
        "com.example::SparseMatMulGradValues:1(i1, i2, g0, i3) -> v0; "
        "com.example::SparseMatMulGradDense:1(i0, i1, i2, g0, i3) -> v1; return v0, -, -, v1"
    )
    for operator in (ops.sparse_matmul_grad_dense, ops.sparse_matmul_grad_values):
        assert operator.differentiable
        assert operator.gradient
