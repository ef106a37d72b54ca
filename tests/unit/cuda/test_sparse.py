"""SparseMatMul's CUDA kernels in the emulator: uneven rows, both variants, what is no CSR matrix, equal bits.

`make cuda` runs their cases under the sanitizers.
"""

import ctypes
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from opforge.build import abi, load_library
from opforge.build.invoke import Call
from opforge.build.tuning import CLASSES, Choice, set_choice
from opforge.cuda import ORDERS, emulate_operators
from opforge.errors import ArgumentError, UnsupportedError
from opforge.frameworks import numpy_host
from opforge.ops.sparse_matmul.op import sparse_matmul, sparse_matmul_grad_dense, sparse_matmul_grad_values

MEMBERS = [sparse_matmul, sparse_matmul_grad_values, sparse_matmul_grad_dense]
VARIANTS = {"by the device": 0, "by rows": 1, "merged": 2}
LIMITS = {"float64": 1e-13, "float32": 2e-6, "float16": 2**-10, "bfloat16": 2**-7}
HALVES = {"bfloat16": ml_dtypes.bfloat16}


@cache
def built():
    return emulate_operators(MEMBERS)


def run(operator, arrays, variant=0, order="forward"):
    loaded = load_library(built().path)
    built().load(order, 3)
    for kernel in loaded.operator(operator.key).kernels:
        for klass in range(CLASSES):
            set_choice(kernel, klass, Choice(variant=variant))
    return numpy_host.call(operator, arrays, {}, library=loaded, device=abi.DEVICE_CUDA)


def csr(counts, k, index=np.int64, seed=0):
    """Rows of so many entries each; columns in any order, equal ones too."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    return rng.standard_normal(indptr[-1]), rng.integers(0, k, indptr[-1]).astype(index), indptr


def inputs_of(operator, counts, k, n, dtype="float64", index=np.int64):
    values, indices, indptr = csr(counts, k, index)
    rng = np.random.default_rng(1)
    right, left = (rng.standard_normal((rows, n)) for rows in (k, len(counts)))
    like = np.zeros((k, 1))
    two = {sparse_matmul: [values, right], sparse_matmul_grad_dense: [values, left, like]}
    reals = [a.astype(HALVES.get(dtype, dtype)) for a in two.get(operator, [left, right])]
    if operator is sparse_matmul_grad_values:
        return [indices, indptr, *reals]
    return [reals[0], indices, indptr, *reals[1:]]


def close(operator, arrays, got, dtype="float64"):
    exact = [a.astype(np.float64) if a.dtype.kind not in "iu" else a for a in arrays]
    expected = operator.reference(*exact)
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=LIMITS[dtype], atol=LIMITS[dtype] * scale)


# Rows of a segment's 256 entries and one more or less; one long row among many, at either end; only empty ones.
ROWS = {
    "even": [3] * 40,
    "one long": [2, 0, 1500, 1, 0, 0, 3],
    "long first": [700, 1, 1],
    "long last": [0, 0, 900],
    "edges": [255, 256, 257, 1, 254, 512],
    "empty between": [0] * 300 + [5] + [0] * 300,
    "all empty": [0] * 20,
    "one row": [4000],
}
# Rows that more than 64 segments have, which blocks put together.
LONG = {"very long": [3] * 5 + [20000] + [1] * 9, "two long": [17000, 0, 17500, 2]}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_every_length_in_both_variants(rows, variant):
    for operator in MEMBERS[:1] + MEMBERS[2:]:
        for n in (1, 2, 3, 4, 6, 70):
            arrays = inputs_of(operator, ROWS[rows], 50, n)
            close(operator, arrays, run(operator, arrays, VARIANTS[variant]))


@pytest.mark.parametrize("rows", LONG)
def test_rows_that_many_segments_have(rows):
    for n in (1, 3, 40):
        arrays = inputs_of(sparse_matmul, LONG[rows], 50, n, "float32")
        found = run(sparse_matmul, arrays)
        close(sparse_matmul, arrays, found, "float32")
        np.testing.assert_array_equal(run(sparse_matmul, arrays, order="random"), found)
        assert np.array_equal(found, run(sparse_matmul, arrays, VARIANTS["merged"]))


def test_segments_grow_with_the_matrix():
    """More than 16,384 segments of 256 would be kept; scratch memory does not grow with the entries from there on."""
    counts = [2, 4_300_000, 0, 1]
    arrays = inputs_of(sparse_matmul, counts, 50, 1)
    expected = sparse_matmul.reference(*arrays)
    found = run(sparse_matmul, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert not np.array_equal(found, run(sparse_matmul, arrays, VARIANTS["by rows"]))


@pytest.mark.parametrize(("n", "most"), [(9_001, 34e6), (131_072, 34e6), (300_000, 32 * 4 * 300_000)])
def test_what_is_kept_of_cut_rows_is_small_for_many_columns_too(monkeypatch, n, most):
    """Nothing is computed: the columns are none of the matrix, which a graph that is captured cannot be told."""
    asked = []
    whole = Call._scratch

    def scratch(self, context, size, alignment):
        asked.append(size)
        return whole(self, context, size, alignment)

    monkeypatch.setattr(Call, "_scratch", scratch)
    values, indices, indptr, dense = inputs_of(sparse_matmul, [1, 200_000], 1, n, "float32")
    capturing = ctypes.CDLL(str(built().path)).opforge_cuda_capturing
    capturing(1)
    try:
        found = run(sparse_matmul, [values, indices + 7, indptr, dense])
    finally:
        capturing(0)
    assert np.isnan(found).all()
    assert 1e6 < max(asked) <= most


def test_a_few_columns_are_computed_across_alike():
    """Lanes take entries in turn: the same sums whatever the alignment, and the same columns alone or together."""
    values, indices, indptr, dense = inputs_of(sparse_matmul, [700, 3, 0, 20] * 5, 40, 4, "float32")
    together = run(sparse_matmul, [values, indices, indptr, dense])
    for n in (1, 2, 3):
        alone = run(sparse_matmul, [values, indices, indptr, np.ascontiguousarray(dense[:, :n])])
        np.testing.assert_array_equal(alone, together[:, :n])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("operator", MEMBERS, ids=lambda o: o.name)
def test_every_dtype(operator, dtype, index):
    arrays = inputs_of(operator, [4, 0, 600, 2], 30, 72, dtype, index)
    close(operator, arrays, run(operator, arrays), dtype)


def test_columns_that_take_several_passes_of_the_sort():
    arrays = inputs_of(sparse_matmul_grad_dense, [9] * 50, 70_000, 3)
    close(sparse_matmul_grad_dense, arrays, run(sparse_matmul_grad_dense, arrays))


def test_tiles_of_the_sort():
    arrays = inputs_of(sparse_matmul_grad_dense, [1, 9000, 0, 8000], 300, 2)
    close(sparse_matmul_grad_dense, arrays, run(sparse_matmul_grad_dense, arrays))


@pytest.mark.parametrize("operator", MEMBERS, ids=lambda o: o.name)
def test_equal_bits_in_every_order_and_for_every_alignment(operator):
    arrays = inputs_of(operator, [700, 3, 0, 20], 40, 12, "float32", np.int32)
    first = run(operator, arrays)
    for order in ORDERS:
        np.testing.assert_array_equal(run(operator, arrays, order=order), first)
    shifted = []
    for array in arrays:
        moved = np.empty(array.size + 1, array.dtype)[1:].reshape(array.shape)
        moved[...] = array
        shifted.append(moved)
    np.testing.assert_array_equal(run(operator, shifted), first)


def test_the_longest_row_chooses_the_variant():
    """Uneven rows are summed in segments, which other bits show, and so are a few long ones; others by rows."""
    for counts, same in (([1] * 30 + [3000], 2), ([100] * 31, 1), ([900, 901], 2), ([300] * 256, 1)):
        arrays = inputs_of(sparse_matmul, counts, 50, 8, "float32")
        chosen, rows, merged = (run(sparse_matmul, arrays, variant) for variant in (0, 1, 2))
        assert np.array_equal(chosen, {1: rows, 2: merged}[same])
        assert not np.array_equal(rows, merged)


def test_a_variant_that_is_none_is_refused():
    arrays = inputs_of(sparse_matmul, [1, 2], 4, 3)
    with pytest.raises(UnsupportedError, match="there is no variant 5: 1 is by rows, 2 merged, 3 cuSPARSE, 4"):
        run(sparse_matmul, arrays, 5)


@pytest.mark.parametrize(
    ("indices", "indptr", "words"),
    [
        ([0, 1, 2], [1, 2, 3], r"indptr\[0\] is 1, expected 0"),
        ([0, 1, 2], [0, 2, 1], r"indptr decreases at row 1: indptr\[1\] is 2, indptr\[2\] is 1"),
        ([0, 1, 2], [0, 2, 5], r"indptr\[2\] is 5, expected the number of entries, 3"),
        ([0, 1, 4], [0, 1, 3], r"indices\[2\] \(row 1\) is 4, expected 0 <= index < 4"),
        ([-1, 1, 9], [0, 1, 3], r"indices\[0\] \(row 0\) is -1, expected 0 <= index < 4"),
        ([2**31 - 1, 1, 9], [0, 1, 3], r"indices\[0\] \(row 0\) is 2147483647, expected"),
    ],
)
@pytest.mark.parametrize("operator", MEMBERS, ids=lambda o: o.name)
def test_what_is_no_csr_matrix_is_refused_with_the_position(operator, indices, indptr, words):
    arrays = inputs_of(operator, [1, 2], 4, 3)
    at = 0 if operator is sparse_matmul_grad_values else 1
    arrays[at], arrays[at + 1] = np.array(indices), np.array(indptr)
    with pytest.raises(ArgumentError, match=words):
        run(operator, arrays)
