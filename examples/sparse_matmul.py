"""A kernel operator in use: a pruned layer as a CSR matrix, trained, exported and run from a .bin.

SparseMatMul is written in C++ (src/opforge/ops/sparse_matmul): values, indices and indptr of a CSR matrix times a
dense one. Its gradients by the values and by the dense matrix are operators too.

Run: python -m examples.sparse_matmul
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

import opforge as of

(sparse_matmul,) = of.load("opforge.ops:SparseMatMul")


def to_csr(matrix):
    """Values, column indices and row pointers of a matrix's entries that are not 0."""
    rows, columns = np.nonzero(matrix)
    indptr = np.zeros(len(matrix) + 1, np.int64)
    np.add.at(indptr, rows + 1, 1)
    return matrix[rows, columns], columns.astype(np.int64), np.cumsum(indptr)


class Pruned(torch.nn.Module):
    """y = A x^T with a sparse A whose values learn; where its entries lie does not change."""

    def __init__(self, matrix) -> None:
        super().__init__()
        values, indices, indptr = (torch.from_numpy(part) for part in to_csr(matrix))
        self.values = torch.nn.Parameter(values)
        self.register_buffer("indices", indices)
        self.register_buffer("indptr", indptr)

    def forward(self, x):
        return sparse_matmul(self.values, self.indices, self.indptr, x.t()).t()


def milliseconds(function, rounds: int = 15) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def main(folder: Path) -> dict[str, float]:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((256, 512), np.float32) * (rng.random((256, 512)) < 0.05)
    layer = Pruned(matrix)
    print(f"{len(layer.values)} of {matrix.size} weights are left ({100 * len(layer.values) / matrix.size:.1f} %)")

    x = torch.from_numpy(rng.standard_normal((64, 512), np.float32))
    dense = torch.from_numpy(matrix)
    difference = (layer(x) - x @ dense.t()).abs().max().item()
    print(f"against the dense product: max |error| {difference:.1e}")

    # The gradient reaches the values that are there, and only those.
    layer(x).square().sum().backward()
    full = dense.clone().requires_grad_()
    (x @ full.t()).square().sum().backward()
    rows, columns = np.nonzero(matrix)
    gradient = (layer.values.grad - full.grad[rows, columns]).abs().max() / full.grad.abs().max()
    print(f"gradient of the values against the dense one: relative error {gradient.item():.1e}")

    # A wrong index is an error with its place, not a read beyond the matrix.
    wrong = layer.indices.clone()
    wrong[7] = 512
    try:
        sparse_matmul(layer.values, wrong, layer.indptr, x.t())
    except ValueError as error:
        print("a wrong index:", str(error).splitlines()[0])

    with torch.no_grad():
        sparse_ms = milliseconds(lambda: layer(x))
        dense_ms = milliseconds(lambda: x @ dense.t())
    print(f"sparse {sparse_ms:.3f} ms, dense {dense_ms:.3f} ms")

    path = folder / "pruned.onnx"
    of.torch.export(layer, (x,), path, input_names=["x"])
    of.compile(path, folder / "pruned.bin")
    # The file names the kernel's library; here it is compiled on demand, installed packages bring theirs along.
    result = of.compare(path, {"x": x.numpy()}, engines={"opforge": folder / "pruned.bin", "reference": path})
    (row,) = result.rows
    print(f"the .bin against ONNX's reference evaluator: max |error| {row.difference.max_abs:.1e}")
    return {"difference": difference, "gradient": gradient.item(), "bin": float(result.passed)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["bin"] and figures["gradient"] < 1e-5 else 1)
