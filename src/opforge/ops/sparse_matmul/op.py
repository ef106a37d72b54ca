"""SparseMatMul: a sparse matrix in CSR form times a dense matrix, and the two operators that its gradients call.

Row r of the sparse matrix A has the entries indptr[r] <= p < indptr[r+1], each with its column indices[p] and
its value values[p]. Rows may be empty; columns need no order, and equal ones add up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import opforge as of

__all__ = ["sparse_matmul", "sparse_matmul_grad_dense", "sparse_matmul_grad_values"]

_TYPES = {"T": of.floating, "I": of.index}


# For runtimes without the kernel: the row of each entry is the number of rows that end before it, counted by a
# running sum over marks at the row ends; then the products are gathered and scattered. ScatterElements, not
# ScatterND: ONNX Runtime adds with the latter on several threads at once, and loses terms of equal rows.
_ONNX_BODY = """
    zero = Constant <value_ints: ints = [0]> ()
    one = Constant <value_ints: ints = [1]> ()
    end = Constant <value_ints: ints = [9223372036854775807]> ()
    axis = Constant <value_int: int = 0> ()
    columns = Cast <to: int = 7> (indices)
    pointers = Cast <to: int = 7> (indptr)
    ends = Slice (pointers, one, end, zero)
    entries = Shape (values)
    positions = Add (entries, one)
    blank = ConstantOfShape <value: tensor = int64[1] {0}> (positions)
    rows = Shape (ends)
    ones = ConstantOfShape <value: tensor = int64[1] {1}> (rows)
    marks = ScatterElements <axis: int = 0, reduction: string = "add"> (blank, ends, ones)
    counts = CumSum (marks, axis)
    row = Slice (counts, zero, entries, zero)
    gathered = Gather <axis: int = 0> (dense, columns)
    column = Unsqueeze (values, one)
    products = Mul (column, gathered)
    dense_shape = Shape (dense)
    width = Slice (dense_shape, one, end, zero)
    shape = Concat <axis: int = 0> (rows, width)
    zeros = ConstantOfShape (shape)
    start = CastLike (zeros, dense)
    row_column = Unsqueeze (row, one)
    extent = Shape (products)
    where = Expand (row_column, extent)
    out = ScatterElements <axis: int = 0, reduction: string = "add"> (start, where, products)
"""


def _rows(indptr: Any) -> Any:  # noqa: ANN401 - arrays
    """Row of each entry."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _reference(values: Any, indices: Any, indptr: Any, dense: Any) -> Any:  # noqa: ANN401 - arrays
    out = np.zeros((len(indptr) - 1, dense.shape[1]))
    np.add.at(out, _rows(indptr), values[:, None] * dense[indices])
    return out


def _reference_grad_dense(values: Any, indices: Any, indptr: Any, dense: Any, like: Any) -> Any:  # noqa: ANN401
    out = np.zeros((like.shape[0], dense.shape[1]))
    np.add.at(out, indices, values[:, None] * dense[_rows(indptr)])
    return out


def _reference_grad_values(indices: Any, indptr: Any, left: Any, right: Any) -> Any:  # noqa: ANN401 - arrays
    return np.einsum("pj,pj->p", left[_rows(indptr)], right[indices])


def _gradient(inputs: Any, outputs: Any, grads: Any, attrs: Any) -> Any:  # noqa: ANN401 - traced values
    values, indices, indptr, dense = inputs.values, inputs.indices, inputs.indptr, inputs.dense
    return {
        "values": sparse_matmul_grad_values(indices, indptr, grads.out, dense),
        "dense": sparse_matmul_grad_dense(values, indices, indptr, grads.out, dense),
    }


def _gradient_of_grad_dense(inputs: Any, outputs: Any, grads: Any, attrs: Any) -> Any:  # noqa: ANN401
    values, indices, indptr, dense = inputs.values, inputs.indices, inputs.indptr, inputs.dense
    return {
        "values": sparse_matmul_grad_values(indices, indptr, dense, grads.out),
        "dense": sparse_matmul(values, indices, indptr, grads.out),
        "like": None,
    }


def _gradient_of_grad_values(inputs: Any, outputs: Any, grads: Any, attrs: Any) -> Any:  # noqa: ANN401
    indices, indptr, left, right = inputs.indices, inputs.indptr, inputs.left, inputs.right
    return {
        "left": sparse_matmul(grads.out, indices, indptr, right),
        "right": sparse_matmul_grad_dense(grads.out, indices, indptr, left, right),
    }


sparse_matmul = of.kernel(
    "com.example::SparseMatMul",
    "(values: T[nnz], indices: I[nnz], indptr: I[m+1], dense: T[k, n]) -> (out: T[m, n])",
    types=_TYPES,
    sources=["cpu.cc", "cuda.cu"],
    reference=_reference,
    gradient=_gradient,
    host_name="sparse_matmul",
    onnx_body=_ONNX_BODY,
)

# out = A^T dense. `like` only tells the number of A's columns.
sparse_matmul_grad_dense = of.kernel(
    "com.example::SparseMatMulGradDense",
    "(values: T[nnz], indices: I[nnz], indptr: I[m+1], dense: T[m, n], like: T[k, _]) -> (out: T[k, n])",
    types=_TYPES,
    sources=["cpu.cc", "cuda.cu"],
    reference=_reference_grad_dense,
    gradient=_gradient_of_grad_dense,
    host_name="sparse_matmul_grad_dense",
)

# out = (left right^T) at the entries of A.
sparse_matmul_grad_values = of.kernel(
    "com.example::SparseMatMulGradValues",
    "(indices: I[nnz], indptr: I[m+1], left: T[m, n], right: T[k, n]) -> (out: T[nnz])",
    types=_TYPES,
    sources=["cpu.cc", "cuda.cu"],
    reference=_reference_grad_values,
    gradient=_gradient_of_grad_values,
    host_name="sparse_matmul_grad_values",
)
