"""SparseMatMul 1024x1024 (95 % zeros) x 1024x512 against dense matmul, torch's CSR and SciPy's."""

from __future__ import annotations

from functools import partial

from benchmarks._case import OURS, Case, Prepared


def _prepare(threads: int) -> Prepared:
    import numpy as np
    import scipy.sparse
    import torch

    torch.set_num_threads(threads)
    import opforge.torch  # noqa: F401
    from opforge.ops import sparse_matmul

    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((1024, 1024)) < 0.05, rng.standard_normal((1024, 1024)), 0).astype(np.float32)
    dense = rng.standard_normal((1024, 512)).astype(np.float32)
    csr = scipy.sparse.csr_matrix(matrix)
    a, b = torch.from_numpy(matrix), torch.from_numpy(dense)
    values = torch.from_numpy(csr.data)
    indices, indptr = torch.from_numpy(csr.indices.astype(np.int64)), torch.from_numpy(csr.indptr.astype(np.int64))
    torch_csr = torch.sparse_csr_tensor(indptr, indices, values, (1024, 1024), check_invariants=False)
    runs = {
        OURS: partial(sparse_matmul, values, indices, indptr, b),
        "torch dense": lambda: a @ b,
        "torch CSR": lambda: torch_csr @ b,
        "scipy CSR": lambda: csr @ dense,
    }
    right = matrix.astype(np.float64) @ dense
    for name, run in runs.items():
        np.testing.assert_allclose(np.asarray(run()), right, rtol=1e-4, atol=1e-4, err_msg=name)
    return Prepared(runs=runs)


_LIMITS = {"torch dense": 4.3, "torch CSR": 1.3, "scipy CSR": 2.0}
CASES = [
    Case("sparse matmul/95 %", _prepare, _LIMITS, needs=("torch", "scipy")),
    Case("sparse matmul/95 %, 2 threads", _prepare, {}, threads=2, needs=("torch", "scipy")),
]
